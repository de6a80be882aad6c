package tidegate.pulsar;

import io.netty.util.Timeout;
import io.netty.util.Timer;
import java.util.Map;
import java.util.NavigableSet;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.PositionFactory;
import org.apache.pulsar.broker.delayed.bucket.BucketDelayedDeliveryTracker;
import org.apache.pulsar.broker.delayed.bucket.BucketSnapshotStorage;
import org.apache.pulsar.broker.delayed.bucket.RecoverDelayedDeliveryTrackerException;
import org.apache.pulsar.broker.service.persistent.AbstractPersistentDispatcherMultipleConsumers;
import org.apache.pulsar.common.policies.data.stats.TopicMetricBean;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.cursor.StoredSeals;
import tidegate.pulsar.gate.TrackerCore;
import tidegate.pulsar.indexlog.LogDeletions;
import tidegate.pulsar.link.DaemonLink;
import tidegate.pulsar.readahead.EntryPrefetch;

/**
 * Pulsar's view of a {@link TrackerCore}. It extends BucketDelayedDeliveryTracker because only for that class the dispatcher
 * skips positions while reading, and keeps the tracker over a rewind. It overrides every method that would touch the buckets,
 * and uses neither Pulsar's timer nor its tick.
 */
public final class Tracker extends BucketDelayedDeliveryTracker {
    private static final Logger LOG = LoggerFactory.getLogger(Tracker.class);

    /** From 5.0 on the super class has no clock. */
    private final AbstractPersistentDispatcherMultipleConsumers subscribed;
    private final TrackerCore core;
    private final DaemonLink link;
    private final CursorContext context;
    private final LogDeletions deletions;
    private final StoredSeals seals;
    /** Null without prefetch. */
    private final EntryPrefetch prefetch;

    Tracker(AbstractPersistentDispatcherMultipleConsumers dispatcher, TrackerCore core, DaemonLink link, CursorContext context,
            LogDeletions deletions, Timer unusedTimer, BucketSnapshotStorage leftovers, StoredSeals seals, EntryPrefetch prefetch)
            throws RecoverDelayedDeliveryTrackerException {
        super(dispatcher, unusedTimer, 1, true, leftovers, Long.MAX_VALUE, Long.MAX_VALUE, 1, -1);
        subscribed = dispatcher;
        this.core = core;
        this.link = link;
        this.context = context;
        this.deletions = deletions;
        this.seals = seals;
        this.prefetch = prefetch;
    }

    @Override
    public boolean addMessage(long ledgerId, long entryId, long deliverAt) {
        // Pulsar 5.0 may have gathered entries before there was a tracker: on false it would deliver the wish.
        return EarlyTrackers.isWish(ledgerId) || core.queue().addMessage(ledgerId, entryId, deliverAt);
    }

    @Override
    public boolean hasMessageAvailable() {
        return core.queue().hasDue();
    }

    @Override
    public NavigableSet<Position> getScheduledMessages(int maxMessages) {
        NavigableSet<Position> positions = new TreeSet<>();
        core.queue().popDue(maxMessages, (ledgerId, entryId) -> positions.add(PositionFactory.create(ledgerId, entryId)));
        if (prefetch != null) {
            positions.forEach(position -> prefetch.onHandedOut(position.getLedgerId(), position.getEntryId()));
            prefetch.prefetch();
        }
        return positions;
    }

    @Override
    public boolean containsMessage(long ledgerId, long entryId) {
        return core.queue().contains(ledgerId, entryId);
    }

    @Override
    public boolean shouldPauseAllDeliveries() {
        return core.queue().shouldPause();
    }

    @Override
    public long getNumberOfDelayedMessages() {
        return core == null ? 0 : core.queue().delayedMessages();
    }

    @Override
    public long getBufferMemoryUsage() {
        return core.memoryBytes();
    }

    @Override
    protected long nextDeliveryTime() {
        return core.queue().nextDueMs();
    }

    /** Entries are gated by the millisecond; there is no tick. */
    @Override
    public void resetTickTime(long tickTime) {
        // Nothing depends on it.
    }

    @Override
    public void run(Timeout timeout) {
        // Pulsar's timer is never started.
    }

    @Override
    public CompletableFuture<Void> clear() {
        // With consumers connected only the backlog goes; without, perhaps the subscription.
        if (!subscribed.isConsumerConnected()) {
            deletions.expect(subscribed.getCursor(), context.log(), context.overrides(), core.whenClosed());
        }
        return core.queue().clear();
    }

    /**
     * The super class's close() would call closeAsync(), overridden here, from 4.2 on. Frees everything that it would free.
     */
    @Override
    public void close() {
        // The super constructor closes a tracker that cannot recover, before there is a core.
        if (core != null) {
            core.close();
            if (prefetch != null) {
                prefetch.close();
            }
            // The topic may be about to close with messages that were skipped just now.
            seals.look(subscribed.getCursor());
        }
        getSharedBucketPriorityQueue().close();
        Object bucket = getLastMutableBucket();
        if (bucket instanceof AutoCloseable closeable) {
            try {
                closeable.close();
            } catch (Exception e) {
                LOG.warn("[{}] Freeing the unused bucket failed", core == null ? "a tracker" : subscribed.getName(), e);
            }
        }
    }

    /** Pulsar 4.2 closes a tracker with this method; 4.0 and 4.1 do not know it. */
    public CompletableFuture<Void> closeAsync() {
        close();
        return CompletableFuture.completedFuture(null);
    }

    @Override
    public Map<String, TopicMetricBean> genTopicMetricMap() {
        return TrackerMetrics.of(core.stats(), link.stats(), prefetch == null ? 0 : prefetch.prefetched());
    }
}
