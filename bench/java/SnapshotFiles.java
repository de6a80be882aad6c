import io.netty.buffer.ByteBuf;
import io.netty.buffer.PooledByteBufAllocator;
import io.netty.buffer.Unpooled;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Stream;
import org.apache.pulsar.broker.delayed.bucket.BucketSnapshotPersistenceException;
import org.apache.pulsar.broker.delayed.bucket.BucketSnapshotStorage;
import org.apache.pulsar.broker.delayed.proto.SnapshotMetadata;
import org.apache.pulsar.broker.delayed.proto.SnapshotSegment;

/**
 * Bucket snapshots as files of a folder, in place of BookKeeper's ledgers.
 *
 * <p>As in Pulsar's own storage a snapshot is the metadata followed by its segments, each in the tracker's own serialisation;
 * the caller's thread serialises the metadata, the storage's the segments. A file is: the number of parts (int32), the length
 * of each part (int32), the parts; part 0 is the metadata, part n is segment n. It is synced before its creation is reported,
 * as a BookKeeper entry is. Nothing is replicated or crosses a socket, in the tracker's favour.
 *
 * <p>Thread-safe. A snapshot never changes.
 */
final class SnapshotFiles implements BucketSnapshotStorage {
    private static final String SUFFIX = ".snapshot";
    private final Path folder;
    private final AtomicLong lastId = new AtomicLong();
    private final AtomicInteger working = new AtomicInteger();
    private ExecutorService threads;

    SnapshotFiles(Path folder) {
        this.folder = folder;
    }

    @Override
    public void start() throws IOException {
        Files.createDirectories(folder);
        try (Stream<Path> files = Files.list(folder)) {
            files.map(file -> file.getFileName().toString()).filter(name -> name.endsWith(SUFFIX))
                    .mapToLong(name -> Long.parseLong(name.substring(0, name.length() - SUFFIX.length())))
                    .forEach(id -> lastId.accumulateAndGet(id, Math::max));
        }
        threads = Executors.newFixedThreadPool(Runtime.getRuntime().availableProcessors(), work -> {
            Thread thread = new Thread(work, "snapshots");
            thread.setDaemon(true);
            return thread;
        });
    }

    @Override
    public void close() {
        threads.shutdownNow();
    }

    /** True while a request is unanswered, or its answer's work in its thread goes on. */
    boolean busy() {
        return working.get() > 0;
    }

    @Override
    public CompletableFuture<Long> createBucketSnapshot(SnapshotMetadata metadata, List<SnapshotSegment> segments,
            String bucketKey, String topicName, String cursorName) {
        byte[] head = metadata.toByteArray();
        return inBackground(() -> {
            long id = lastId.incrementAndGet();
            int parts = segments.size() + 1;
            ByteBuffer lengths = ByteBuffer.allocate(4 * (parts + 1)).putInt(parts).putInt(head.length);
            ByteBuf body = PooledByteBufAllocator.DEFAULT.directBuffer();
            try {
                for (SnapshotSegment segment : segments) {
                    lengths.putInt(segment.getSerializedSize());
                    segment.writeTo(body);
                }
                CursorFile.replace(path(id), lengths.flip(), ByteBuffer.wrap(head), body.nioBuffer());
            } finally {
                body.release();
            }
            return id;
        });
    }

    @Override
    public CompletableFuture<SnapshotMetadata> getBucketSnapshotMetadata(long bucketId) {
        return inBackground(() -> SnapshotMetadata.parseFrom(read(bucketId, 0, 0).get(0)));
    }

    @Override
    public CompletableFuture<List<SnapshotSegment>> getBucketSnapshotSegment(long bucketId, long first, long last) {
        return inBackground(() -> {
            List<SnapshotSegment> segments = new ArrayList<>();
            for (ByteBuffer part : read(bucketId, (int) first, (int) last)) {
                SnapshotSegment segment = new SnapshotSegment();
                segment.parseFrom(Unpooled.wrappedBuffer(part), part.remaining());
                segments.add(segment);
            }
            return segments;
        });
    }

    @Override
    public CompletableFuture<Long> getBucketSnapshotLength(long bucketId) {
        return inBackground(() -> Files.size(path(bucketId)));
    }

    @Override
    public CompletableFuture<Void> deleteBucketSnapshot(long bucketId) {
        return inBackground(() -> {
            Files.deleteIfExists(path(bucketId));
            return null;
        });
    }

    private Path path(long id) {
        return folder.resolve(id + SUFFIX);
    }

    /** The parts {@code first} to {@code last}, both included, with one read of the lengths and one of the parts. */
    private List<ByteBuffer> read(long id, int first, int last) throws IOException {
        try (FileChannel file = FileChannel.open(path(id), StandardOpenOption.READ)) {
            int parts = fill(file, 0, 4).getInt();
            if (last >= parts) {
                throw new IOException("snapshot " + id + " has " + (parts - 1) + " segments, not " + last);
            }
            ByteBuffer lengths = fill(file, 4, 4 * parts);
            long from = 4 + 4L * parts;
            int size = 0;
            for (int part = 0; part <= last; part++) {
                int length = lengths.getInt(4 * part);
                if (part < first) {
                    from += length;
                } else {
                    size += length;
                }
            }
            ByteBuffer all = fill(file, from, size);
            List<ByteBuffer> found = new ArrayList<>(last - first + 1);
            int at = 0;
            for (int part = first; part <= last; part++) {
                int length = lengths.getInt(4 * part);
                found.add(all.slice(at, length));
                at += length;
            }
            return found;
        }
    }

    private static ByteBuffer fill(FileChannel file, long from, int size) throws IOException {
        ByteBuffer buffer = ByteBuffer.allocate(size);
        while (buffer.hasRemaining()) {
            if (file.read(buffer, from + buffer.position()) < 0) {
                throw new IOException("a snapshot is shorter than its lengths say");
            }
        }
        return buffer.flip();
    }

    private <T> CompletableFuture<T> inBackground(Callable<T> work) {
        CompletableFuture<T> answer = new CompletableFuture<>();
        working.incrementAndGet();
        threads.execute(() -> {
            try {
                answer.complete(work.call());
            } catch (NoSuchFileException error) {
                answer.completeExceptionally(error);
            } catch (IOException error) {
                // The exception after which the tracker tries again.
                answer.completeExceptionally(new BucketSnapshotPersistenceException(error.toString()));
            } catch (Exception error) {
                answer.completeExceptionally(new CompletionException(error));
            } finally {
                working.decrementAndGet();
            }
        });
        return answer;
    }
}
