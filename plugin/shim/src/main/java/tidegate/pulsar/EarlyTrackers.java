package tidegate.pulsar;

import java.util.function.Consumer;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.pulsar.broker.service.BrokerService;
import org.apache.pulsar.broker.service.Dispatcher;
import org.apache.pulsar.broker.service.Subscription;
import org.apache.pulsar.broker.service.TopicEventsListener;
import org.apache.pulsar.broker.service.persistent.AbstractPersistentDispatcherMultipleConsumers;
import org.apache.pulsar.broker.service.persistent.PersistentSubscription;
import org.apache.pulsar.common.api.proto.MessageMetadata;
import tidegate.pulsar.cursor.CursorRecord;
import tidegate.pulsar.cursor.UndoneResets;
import tidegate.pulsar.timing.BackoffPoller;

/**
 * Makes a tracker before its dispatcher's first read, where an index may hold the messages of that read: Pulsar makes one
 * only after reading a delayed message, so up to 100 entries are read in vain. Why: docs/decisions/early-trackers.md.
 *
 * <p>Pulsar announces loaded topics, but no consumers. A consumer's arrival makes the dispatcher, a round trip to the client
 * before the first read: in between, this class looks at the subscriptions of a newly loaded topic that have had a tracker.
 * If it comes too late, one batch is read.
 */
final class EarlyTrackers implements TopicEventsListener {
    /** No entry's position: the tracker recognises a wish by it. */
    private static final long NOWHERE = -1;

    private final BrokerService broker;
    private final BackoffPoller poller;
    private final UndoneResets undone;
    private final Consumer<PersistentSubscription> known;

    EarlyTrackers(BrokerService broker, BackoffPoller poller, UndoneResets undone, Consumer<PersistentSubscription> known) {
        this.known = known;
        this.broker = broker;
        this.poller = poller;
        this.undone = undone;
    }

    static boolean isWish(long ledgerId) {
        return ledgerId == NOWHERE;
    }

    @Override
    public void handleEvent(String topicName, TopicEvent event, EventStage stage, Throwable error) {
        if (event == TopicEvent.LOAD && stage == EventStage.SUCCESS) {
            broker.getTopicReference(topicName).ifPresent(topic -> topic.getSubscriptions().values().forEach(this::expect));
        }
    }

    private void expect(Subscription some) {
        if (some instanceof PersistentSubscription subscription) {
            undone.onLoaded(subscription);
            if (CursorRecord.ownership(subscription.getCursor()) != null) {
                known.accept(subscription);
            }
            if (mayBeHeld(subscription.getCursor())) {
                poller.pollUntil(() -> isMade(subscription));
            }
        }
    }

    /** True if there are entries to read, and a daemon knows the subscription from an earlier tracker. */
    private static boolean mayBeHeld(ManagedCursor cursor) {
        return CursorRecord.ownership(cursor) != null && cursor.getNumberOfEntriesInBacklog(false) > 0;
    }

    private static boolean isMade(PersistentSubscription subscription) {
        Dispatcher dispatcher = subscription.getDispatcher();
        if (dispatcher instanceof AbstractPersistentDispatcherMultipleConsumers shared) {
            make(shared);
        }
        return dispatcher != null;
    }

    private static void make(AbstractPersistentDispatcherMultipleConsumers dispatcher) {
        synchronized (dispatcher) {
            // Closing sets the flag, then takes the tracker under this lock, so none is left unclosed.
            if (!dispatcher.isClosed()) {
                dispatcher.trackDelayedDelivery(NOWHERE, NOWHERE, new MessageMetadata().setDeliverAtTime(Long.MAX_VALUE));
            }
        }
    }
}
