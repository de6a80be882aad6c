import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.delayed.DelayedDeliveryTracker;
import org.apache.pulsar.broker.delayed.DelayedDeliveryTrackerFactory;
import org.apache.pulsar.broker.delayed.InMemoryDelayedDeliveryTrackerFactory;
import org.apache.pulsar.broker.service.persistent.AbstractPersistentDispatcherMultipleConsumers;
import tidegate.pulsar.TrackerFactory;

/** Tidegate's factory, but that subscriptions of one name get Pulsar's own tracker. */
public final class BypassingFactory implements DelayedDeliveryTrackerFactory {
    private final TrackerFactory ours = new TrackerFactory();
    private final InMemoryDelayedDeliveryTrackerFactory theirs = new InMemoryDelayedDeliveryTrackerFactory();

    @Override
    public void initialize(PulsarService pulsar) throws Exception {
        ours.initialize(pulsar);
        theirs.initialize(pulsar);
    }

    @Override
    public DelayedDeliveryTracker newTracker(AbstractPersistentDispatcherMultipleConsumers dispatcher) {
        return dispatcher.getSubscription().getName().equals("bypassed") ? theirs.newTracker(dispatcher)
                : ours.newTracker(dispatcher);
    }

    @Override
    public void close() throws Exception {
        ours.close();
        theirs.close();
    }
}
