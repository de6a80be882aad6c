package tidegate.pulsar;

import java.lang.reflect.Field;
import java.util.Optional;
import org.apache.pulsar.broker.service.persistent.AbstractPersistentDispatcherMultipleConsumers;
import org.apache.pulsar.broker.service.persistent.MessageRedeliveryController;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.wire.Position;

/** The positions that a dispatcher has queued for redelivery. Pulsar exposes only their number. */
final class Redeliveries {
    private static final Logger LOG = LoggerFactory.getLogger(Redeliveries.class);
    private static final String FIELD = "redeliveryMessages";

    /** By the dispatcher's class; empty for a class with another queue. */
    private static final ClassValue<Optional<Field>> FIELDS = new ClassValue<>() {
        @Override
        protected Optional<Field> computeValue(Class<?> type) {
            for (Class<?> each = type; each != null; each = each.getSuperclass()) {
                try {
                    Field field = each.getDeclaredField(FIELD);
                    field.setAccessible(true);
                    return Optional.of(field);
                } catch (NoSuchFieldException e) {
                    LOG.debug("{} may have them from its super class", each, e);
                }
            }
            LOG.warn("This Pulsar's {} does not show its redeliveries: chunks without those before them may wait", type);
            return Optional.empty();
        }
    };

    private Redeliveries() {}

    /** The lowest one; null without one, or if unknown. */
    static Position first(AbstractPersistentDispatcherMultipleConsumers dispatcher) {
        try {
            Optional<Field> field = FIELDS.get(dispatcher.getClass());
            if (field.isPresent() && field.get().get(dispatcher) instanceof MessageRedeliveryController queued) {
                return queued.getFirstPositionInReplay().map(at -> new Position(at.getLedgerId(), at.getEntryId())).orElse(null);
            }
        } catch (IllegalAccessException e) {
            LOG.debug("[{}] Its redeliveries are unknown", dispatcher.getName(), e);
        }
        return null;
    }
}
