package tidegate.pulsar;

import org.apache.pulsar.broker.service.persistent.AbstractPersistentDispatcherMultipleConsumers;
import org.apache.pulsar.broker.service.persistent.MessageRedeliveryController;
import tidegate.pulsar.wire.Position;

/** The positions that a dispatcher has queued for redelivery. Pulsar exposes only their number. */
final class Redeliveries {
    private static final DispatcherField QUEUED = new DispatcherField("redeliveryMessages",
            "does not show its redeliveries: chunks without those before them may wait");

    private Redeliveries() {}

    /** The lowest one; null without one, or if unknown. */
    static Position first(AbstractPersistentDispatcherMultipleConsumers dispatcher) {
        return QUEUED.of(dispatcher) instanceof MessageRedeliveryController queued
                ? queued.getFirstPositionInReplay().map(at -> new Position(at.getLedgerId(), at.getEntryId())).orElse(null)
                : null;
    }
}
