package tidegate.pulsar;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import java.util.function.Supplier;
import java.util.stream.Stream;
import org.apache.pulsar.broker.service.BrokerService;
import org.apache.pulsar.broker.service.Subscription;
import org.apache.pulsar.broker.service.Topic;
import org.apache.pulsar.broker.service.persistent.AbstractPersistentDispatcherMultipleConsumers;

/** The Shared and Key_Shared dispatchers of a broker's topics, through Pulsar's public methods. */
final class BrokerDispatchers implements Supplier<Iterator<? extends BypassWatch.Watched>> {
    private static final int MOST_REASON = 500;

    private final BrokerService broker;
    private final Class<?> ours;

    /** {@code ours} is the class of Tidegate's factory. */
    BrokerDispatchers(BrokerService broker, Class<?> ours) {
        this.broker = broker;
        this.ours = ours;
    }

    /** The dispatchers of the loaded topics. Each is queried only when its turn comes. */
    @Override
    public Iterator<BypassWatch.Watched> get() {
        List<Topic> topics = new ArrayList<>();
        broker.forEachTopic(topics::add);
        return topics.stream().flatMap(this::of).iterator();
    }

    private Stream<BypassWatch.Watched> of(Topic topic) {
        return topic.getSubscriptions().values().stream().map(Subscription::getDispatcher)
                .filter(AbstractPersistentDispatcherMultipleConsumers.class::isInstance)
                .map(one -> new OneDispatcher(broker, ours, (AbstractPersistentDispatcherMultipleConsumers) one));
    }

    private record OneDispatcher(BrokerService broker, Class<?> ours, AbstractPersistentDispatcherMultipleConsumers dispatcher)
            implements BypassWatch.Watched {
        @Override
        public Object identity() {
            return dispatcher;
        }

        @Override
        public String topic() {
            return dispatcher.getTopic().getName();
        }

        @Override
        public String subscription() {
            return dispatcher.getSubscription().getName();
        }

        @Override
        public long delayed() {
            return dispatcher.getNumberOfDelayedMessages();
        }

        /** Judges by the tracker's metrics: the dispatcher shows nothing else of its tracker. */
        @Override
        public Optional<String> bypass() {
            var metrics = dispatcher.getBucketDelayedIndexStats();
            if (TrackerMetrics.areOurs(metrics) || dispatcher.isClosed()) {
                return Optional.empty();
            }
            Object factory = broker.getDelayedDeliveryTrackerFactory();
            String reason = (metrics.isEmpty() ? "another tracker has them" : "Pulsar's Bucket tracker has them")
                    + (ours.isInstance(factory) ? ", which Tidegate's factory did not make"
                    : ", made by " + factory.getClass().getName());
            return Optional.of(reason.substring(0, Math.min(reason.length(), MOST_REASON)));
        }
    }
}
