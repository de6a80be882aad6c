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

/**
 * Has a tracker made before its dispatcher reads for the first time, where an index may hold what that read would bring.
 *
 * <p>Pulsar makes a tracker when the dispatcher has read a delayed message, one of up to 100: after a failover all of them are
 * held, and were read in vain. It tells of no consumer that comes, but of each topic that it has loaded; and between a consumer's
 * coming, which makes the dispatcher, and the first read there is a round trip to its client. So the subscriptions of a topic just
 * loaded are looked at, if they have had a tracker before.
 *
 * <p>Nothing depends on it: if it comes too late, Pulsar has made the tracker, and one batch was read.
 */
final class EarlyTrackers implements TopicEventsListener {
    /** No entry is there: the tracker takes it for a wish to be made. */
    private static final long NOWHERE = -1;

    private final BrokerService broker;
    private final Lookout lookout;
    private final UndoneResets undone;
    private final Consumer<PersistentSubscription> known;

    /** {@code known} hears of each subscription, of a topic just loaded, that has had a tracker. */
    EarlyTrackers(BrokerService broker, Lookout lookout, UndoneResets undone, Consumer<PersistentSubscription> known) {
        this.known = known;
        this.broker = broker;
        this.lookout = lookout;
        this.undone = undone;
    }

    /** Whether a tracker is told of a position so that there is a tracker, and for nothing else. */
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
            if (CursorHost.ownership(subscription.getCursor()) != null) {
                known.accept(subscription);
            }
            if (mayBeHeld(subscription.getCursor())) {
                lookout.lookFor(() -> isMade(subscription));
            }
        }
    }

    /** Whether there is something to read, and a tracker before has told a daemon of the subscription. */
    private static boolean mayBeHeld(ManagedCursor cursor) {
        return CursorHost.ownership(cursor) != null && cursor.getNumberOfEntriesInBacklog(false) > 0;
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
            // Closing takes the tracker with this lock held, after it has said so: none is made that nobody would close.
            if (!dispatcher.isClosed()) {
                dispatcher.trackDelayedDelivery(NOWHERE, NOWHERE, new MessageMetadata().setDeliverAtTime(Long.MAX_VALUE));
            }
        }
    }
}
