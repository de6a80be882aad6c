package tidegate.pulsar;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.delayed.bucket.BookkeeperBucketSnapshotStorage;
import org.apache.pulsar.broker.delayed.bucket.BucketSnapshotStorage;
import org.apache.pulsar.broker.delayed.proto.SnapshotMetadata;
import org.apache.pulsar.broker.delayed.proto.SnapshotSegment;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The snapshot storage of a tracker without snapshots. Those of Pulsar's own Bucket tracker look empty here, so its recovery,
 * which runs in the super constructor, discards them; this class deletes their ledgers in the background.
 */
final class LeftoverSnapshots implements BucketSnapshotStorage {
    private static final Logger LOG = LoggerFactory.getLogger(LeftoverSnapshots.class);

    private final PulsarService pulsar;
    private final Executor executor;
    @GuardedBy("this")
    private BucketSnapshotStorage real;

    LeftoverSnapshots(PulsarService pulsar, Executor executor) {
        this.pulsar = pulsar;
        this.executor = executor;
    }

    @Override
    public CompletableFuture<Long> createBucketSnapshot(SnapshotMetadata metadata, List<SnapshotSegment> segments,
                                                        String bucketKey, String topicName, String cursorName) {
        return CompletableFuture.failedFuture(new UnsupportedOperationException("Tidegate keeps no bucket snapshots"));
    }

    @Override
    public CompletableFuture<SnapshotMetadata> getBucketSnapshotMetadata(long bucketId) {
        try {
            return CompletableFuture.completedFuture(emptyMetadata());
        } catch (ReflectiveOperationException e) {
            return CompletableFuture.failedFuture(e);
        }
    }

    /** The generated class has a factory method up to 4.1, a public constructor from 4.2 on. */
    private static SnapshotMetadata emptyMetadata() throws ReflectiveOperationException {
        try {
            return (SnapshotMetadata) SnapshotMetadata.class.getMethod("getDefaultInstance").invoke(null);
        } catch (NoSuchMethodException e) {
            return SnapshotMetadata.class.getConstructor().newInstance();
        }
    }

    @Override
    public CompletableFuture<List<SnapshotSegment>> getBucketSnapshotSegment(long bucketId, long firstSegmentEntryId,
                                                                             long lastSegmentEntryId) {
        return CompletableFuture.completedFuture(List.of());
    }

    @Override
    public CompletableFuture<Long> getBucketSnapshotLength(long bucketId) {
        return CompletableFuture.completedFuture(0L);
    }

    @Override
    public CompletableFuture<Void> deleteBucketSnapshot(long bucketId) {
        return CompletableFuture.supplyAsync(this::real, executor)
                .thenCompose(storage -> storage.deleteBucketSnapshot(bucketId));
    }

    private synchronized BucketSnapshotStorage real() {
        if (real == null) {
            BucketSnapshotStorage storage = new BookkeeperBucketSnapshotStorage(pulsar);
            try {
                storage.start();
            } catch (Exception e) {
                throw new IllegalStateException("cannot open the storage of Pulsar's bucket snapshots", e);
            }
            real = storage;
        }
        return real;
    }

    @Override
    public void start() {
        // Opened on the first left-over snapshot.
    }

    @Override
    public synchronized void close() {
        if (real != null) {
            try {
                real.close();
            } catch (Exception e) {
                LOG.warn("Closing the storage of Pulsar's bucket snapshots failed", e);
            }
            real = null;
        }
    }
}
