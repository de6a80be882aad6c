package tidegate.pulsar;

import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.pulsar.broker.service.Dispatcher;
import org.apache.pulsar.broker.service.persistent.AbstractPersistentDispatcherMultipleConsumers;
import org.apache.pulsar.broker.service.persistent.PersistentSubscription;
import org.apache.pulsar.broker.service.persistent.PersistentTopic;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.gate.TrackerCore;

/**
 * Tells the daemon to forget the index of a subscription that gates no messages any more: its consumers have another type
 * now, or its topic has disabled delayed delivery. Nobody would query that index or update its acknowledgements, and Pulsar
 * does not announce the deletion of such a subscription. Once it is gated again, its topic is read again. Why:
 * docs/decisions/unasked-indexes.md.
 *
 * <p>A subscription without consumers keeps its index, and a live tracker gates its messages, whatever the topic's policy
 * says since. Each subscription that has had a tracker is checked once a second.
 */
final class UnaskedIndexes {
    private static final Logger LOG = LoggerFactory.getLogger(UnaskedIndexes.class);

    /** A subscription that has had a tracker. */
    interface Subject {
        String name();

        /** True if this broker no longer has the subscription. */
        boolean isGone();

        /** True if a tracker has its delayed messages, or may be created for them. */
        boolean isGated();
    }

    interface Forgetter {
        boolean isConnected();

        /** Completes with true if the daemon has forgotten the subscription. */
        CompletableFuture<Boolean> forget();
    }

    private static final class Watched {
        private final Subject subject;
        private final Forgetter forgetter;
        private boolean wasUngated;
        private volatile boolean forgotten;

        private Watched(Subject subject, Forgetter forgetter) {
            this.subject = subject;
            this.forgetter = forgetter;
        }
    }

    private final Map<Object, Watched> watched = new ConcurrentHashMap<>();

    /** Watches a subscription, in place of the former subject of that {@code key}. Any thread may call it. */
    void watch(Object key, Subject subject, Forgetter forgetter) {
        watched.put(key, new Watched(subject, forgetter));
    }

    /** As {@link #watch}, unless the key is known. */
    void watchNew(Object key, Subject subject, Forgetter forgetter) {
        watched.putIfAbsent(key, new Watched(subject, forgetter));
    }

    int size() {
        return watched.size();
    }

    /** Checks each subject. One thread, once a second. */
    void look() {
        watched.values().removeIf(one -> one.subject.isGone());
        watched.values().forEach(this::look);
    }

    private void look(Watched one) {
        boolean ungated = !one.subject.isGated();
        // Two looks: a state seen amid a change would cost reading the topic again.
        boolean stays = ungated && one.wasUngated;
        one.wasUngated = ungated;
        if (!ungated) {
            one.forgotten = false;
        } else if (stays && !one.forgotten && one.forgetter.isConnected()) {
            one.forgotten = true;
            LOG.info("[{}] Its delayed messages are gated no more: the daemon forgets its index", one.subject.name());
            one.forgetter.forget().whenComplete((done, error) -> one.forgotten = error == null && done);
        }
    }

    /** The subscription as Pulsar shows it. {@code tracker}: the latest; null without one. */
    record OfPulsar(PersistentSubscription subscription, TrackerCore tracker) implements Subject {
        @Override
        public String name() {
            return subscription.getTopicName() + " / " + subscription.getName();
        }

        @Override
        public boolean isGone() {
            ManagedCursor cursor = subscription.getCursor();
            return cursor.isClosed() || subscription.getTopic().getSubscription(subscription.getName()) != subscription;
        }

        @Override
        public boolean isGated() {
            Dispatcher dispatcher = subscription.getDispatcher();
            if (dispatcher != null && !(dispatcher instanceof AbstractPersistentDispatcherMultipleConsumers)) {
                return false;
            }
            return tracker != null && tracker.isLive() || !(subscription.getTopic() instanceof PersistentTopic topic)
                    || topic.isDelayedDeliveryEnabled();
        }
    }
}
