package tidegate.pulsar;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledFuture;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.pulsar.broker.service.Consumer;
import org.apache.pulsar.broker.service.PendingAcksMap;
import org.apache.pulsar.broker.service.RedeliveryTracker;
import org.apache.pulsar.broker.service.RedeliveryTrackerDisabled;
import org.apache.pulsar.broker.service.Topic;
import org.apache.pulsar.broker.service.persistent.AbstractPersistentDispatcherMultipleConsumers;
import org.apache.pulsar.broker.service.persistent.PersistentSubscription;
import tidegate.pulsar.cursor.CursorProperties;
import tidegate.pulsar.cursor.RefusedResets;
import tidegate.pulsar.cursor.UndoneResets;
import tidegate.pulsar.gate.DelayPolicy;
import tidegate.pulsar.gate.SeenConsumers;
import tidegate.pulsar.indexlog.LogLedgers;
import tidegate.pulsar.link.DaemonLink;
import tidegate.pulsar.position.PositionSet;
import tidegate.pulsar.timing.Wakeups;
import tidegate.pulsar.wire.Position;

/** A {@code TrackerContext} on a live Shared or Key_Shared dispatcher. */
final class DispatcherContext extends CursorContext {
    private final AbstractPersistentDispatcherMultipleConsumers dispatcher;
    private final Wakeups wakeups;
    private final TopicUnloader unloader;
    /** Guarded by the dispatcher's lock. */
    private final SeenConsumers seen;
    private final ReadPosition reading;
    private final PolicyProperties policies;
    @GuardedBy("this")
    private ScheduledFuture<?> wake;

    /** {@code background} may wait for Pulsar's locks. The constructor needs the dispatcher's lock. */
    DispatcherContext(AbstractPersistentDispatcherMultipleConsumers dispatcher, DaemonLink link, Wakeups wakeups,
            Executor background, LogLedgers.Shared logs, UndoneResets undone, TopicUnloader unloader) {
        super(dispatcher.getName(), properties(dispatcher, undone, background), link, background, logs, undone);
        this.dispatcher = dispatcher;
        this.wakeups = wakeups;
        this.unloader = unloader;
        seen = new SeenConsumers(dispatcher.getConsumers());
        reading = new ReadPosition(dispatcher.getCursor(), dispatcher::isHavePendingRead);
        policies = new PolicyProperties(dispatcher.getName(), dispatcher.getSubscription().getName(),
                PolicyProperties.OfPulsar.of(dispatcher.getTopic(), dispatcher.getCursor().getManagedLedger()),
                this::onPolicyKnown);
    }

    /** Lets the link open the stream, which waits for the rules. */
    private void onPolicyKnown() {
        if (core() != null) {
            framesWaiting();
        }
    }

    private static CursorProperties properties(AbstractPersistentDispatcherMultipleConsumers dispatcher, UndoneResets undone,
            Executor background) {
        ManagedCursor cursor = dispatcher.getCursor();
        return dispatcher.getSubscription() instanceof PersistentSubscription subscription
                ? new CursorProperties(cursor, new OfTheDispatcher(dispatcher, subscription, undone), background)
                : CursorProperties.withoutReset(cursor);
    }

    /** The cursor's read position does not show a rewind to the same position (everything before is acknowledged). */
    @Override
    public SeenConsumers.Change lookAtConsumers() {
        SeenConsumers.Change change = seen.look(dispatcher.getConsumers());
        if (change != SeenConsumers.Change.NONE) {
            ChunkConsumers.forgetGone(dispatcher);
        }
        return change;
    }

    @Override
    public boolean hasConsumers() {
        return !dispatcher.getConsumers().isEmpty();
    }

    @Override
    public List<?> consumers() {
        // Pulsar changes its list.
        return List.copyOf(dispatcher.getConsumers());
    }

    @Override
    public boolean isOutstanding(long ledgerId, long entryId) {
        return holder(ledgerId, entryId) != null;
    }

    /** The connected consumer that has the message; null without one. */
    private Consumer holder(long ledgerId, long entryId) {
        for (Consumer consumer : dispatcher.getConsumers()) {
            PendingAcksMap pendingAcks = consumer.getPendingAcks();
            if (pendingAcks != null && pendingAcks.contains(ledgerId, entryId)) {
                return consumer;
            }
        }
        return null;
    }

    @Override
    void firstChunkWaits(String uuid, Position first) {
        Consumer holder = holder(first.ledgerId(), first.entryId());
        if (holder != null) {
            ChunkConsumers.remember(dispatcher, uuid, holder);
        }
    }

    @Override
    public int redeliveryCount(long ledgerId, long entryId) {
        RedeliveryTracker tracker = dispatcher.getRedeliveryTracker();
        return tracker == RedeliveryTrackerDisabled.REDELIVERY_TRACKER_DISABLED
                ? UNCOUNTED : tracker.getRedeliveryCount(ledgerId, entryId);
    }

    @Override
    public long redeliveries() {
        return dispatcher.getNumberOfMessagesInReplay();
    }

    @Override
    public Position firstRedelivery() {
        return Redeliveries.first(dispatcher);
    }

    @Override
    public void reopenTopic() {
        Topic topic = dispatcher.getTopic();
        unloader.unload(topic.getName(), () -> topic.close(false));
    }

    /** Without a consumer a reset may be in progress, and the next consumer rewinds the cursor. */
    @Override
    public void pass(PositionSet held) {
        if (hasConsumers()) {
            reading.pass(held);
        }
    }

    @Override
    public void passReplayed(PositionSet replayed) {
        reading.passReplayed(replayed);
    }

    @Override
    public boolean isAtTerminatedEnd(boolean replaced) {
        return reading.isAtTerminatedEnd(replaced);
    }

    @Override
    public boolean mayDeliver() {
        if (dispatcher.isHavePendingReplayRead()) {
            return false;
        }
        for (Consumer consumer : dispatcher.getConsumers()) {
            if (dispatcher.isConsumerAvailable(consumer)) {
                return true;
            }
        }
        return false;
    }

    @Override
    public int consumersHash() {
        int hash = 0;
        for (Consumer consumer : dispatcher.getConsumers()) {
            hash = 31 * hash + System.identityHashCode(consumer);
        }
        return hash;
    }

    @Override
    public DelayPolicy policy() {
        return policies.policy();
    }

    @Override
    public boolean knowsPolicy() {
        return policies.isKnown();
    }

    @Override
    public void readMore() {
        try {
            dispatcher.readMoreEntriesAsync();
        } catch (RejectedExecutionException e) {
            // The broker is stopping: the next owner reads.
        }
    }

    @Override
    public synchronized void wakeAt(long timeMs) {
        cancelWake();
        wake = wakeups.at(timeMs, () -> core().queue().onWake());
    }

    @Override
    public synchronized void cancelWake() {
        if (wake != null) {
            wake.cancel(false);
            wake = null;
        }
    }

    /** The subscription that a dispatcher serves. */
    private record OfTheDispatcher(AbstractPersistentDispatcherMultipleConsumers dispatcher, PersistentSubscription subscription,
            UndoneResets undone) implements RefusedResets.Subscription {
        @Override
        public boolean isNew() {
            return undone.isNew(dispatcher.getCursor());
        }

        @Override
        public void stored() {
            undone.noteStored(dispatcher.getCursor());
        }

        @Override
        public boolean hasConsumers() {
            return dispatcher.isConsumerConnected();
        }

        @Override
        public CompletableFuture<Void> reset(org.apache.bookkeeper.mledger.Position position) {
            return subscription.resetCursor(position);
        }
    }
}
