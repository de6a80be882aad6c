package tidegate.pulsar;

import java.util.List;
import java.util.Map;
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
     * Makes the dispatcher give this consumer, which has the first chunk, the others of the message, unless it gives them to
     * one: it forgets the consumer of a last chunk that it could not give away for want of permits (apache/pulsar#25620).
     */
    static void remember(AbstractPersistentDispatcherMultipleConsumers dispatcher, String uuid, Consumer consumer) {
        if (ASSIGNOR.of(dispatcher) instanceof SharedConsumerAssignor assignor) {
            assignor.getUuidToConsumer().putIfAbsent(uuid, consumer);
        }
    }

    /** By identity: a consumer that reconnects over the same connection equals its former self. */
    static void keepOnly(List<?> connected, Map<String, ?> byMessage) {
        byMessage.values().removeIf(consumer -> connected.stream().noneMatch(one -> one == consumer));
    }
}
