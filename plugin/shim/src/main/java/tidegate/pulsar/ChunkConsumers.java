package tidegate.pulsar;

import java.util.List;
import java.util.Map;
import java.util.function.Supplier;
import org.apache.pulsar.broker.service.Consumer;
import org.apache.pulsar.broker.service.SharedConsumerAssignor;
import org.apache.pulsar.broker.service.persistent.AbstractPersistentDispatcherMultipleConsumers;

/**
 * The consumers that got the first chunk of a message: a Shared dispatcher gives them the later ones. Before 5.0 it remembers
 * some too long, and some too short: the chunks are lost, or queued for redelivery again and again, and nothing else is read.
 */
final class ChunkConsumers {
    private static final DispatcherField ASSIGNOR = new DispatcherField("assignor",
            "does not show its consumers of chunks: these chunks may wait");

    private ChunkConsumers() {}

    /** Makes the dispatcher forget all consumers but the connected ones. Needs the dispatcher's lock. */
    static void forgetGone(AbstractPersistentDispatcherMultipleConsumers dispatcher) {
        if (ASSIGNOR.of(dispatcher) instanceof SharedConsumerAssignor assignor) {
            keepOnly(dispatcher.getConsumers(), assignor.getUuidToConsumer());
        }
    }

    /**
     * Makes the dispatcher give this consumer, which has the first chunk, the others of the message, unless it gives them to a
     * connected one: it forgets the consumer of a last chunk that it could not give away for want of permits
     * (apache/pulsar#25620).
     */
    static void remember(AbstractPersistentDispatcherMultipleConsumers dispatcher, String uuid, Consumer consumer) {
        if (ASSIGNOR.of(dispatcher) instanceof SharedConsumerAssignor assignor) {
            put(uuid, consumer, dispatcher::getConsumers, assignor.getUuidToConsumer());
        }
    }

    /** Without a lock: a consumer that goes meanwhile does not stay. */
    static <C> void put(String uuid, C consumer, Supplier<? extends List<? extends C>> connected, Map<String, C> byMessage) {
        byMessage.compute(uuid, (id, former) -> former != null && isAmong(connected.get(), former) ? former : consumer);
        if (!isAmong(connected.get(), consumer)) {
            byMessage.computeIfPresent(uuid, (id, there) -> there == consumer ? null : there);
        }
    }

    static void keepOnly(List<?> connected, Map<String, ?> byMessage) {
        byMessage.values().removeIf(consumer -> !isAmong(connected, consumer));
    }

    /** By identity: a consumer that reconnects over the same connection equals its former self. */
    private static boolean isAmong(List<?> connected, Object consumer) {
        return connected.stream().anyMatch(one -> one == consumer);
    }
}
