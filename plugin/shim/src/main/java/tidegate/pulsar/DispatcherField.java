package tidegate.pulsar;

import java.lang.reflect.Field;
import java.util.Optional;
import org.apache.pulsar.broker.service.persistent.AbstractPersistentDispatcherMultipleConsumers;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A private field of Pulsar's dispatchers, looked up once for each class. */
final class DispatcherField {
    private static final Logger LOG = LoggerFactory.getLogger(DispatcherField.class);

    private final String name;
    private final String lack;
    private final ClassValue<Optional<Field>> fields = new ClassValue<>() {
        @Override
        protected Optional<Field> computeValue(Class<?> type) {
            return find(type);
        }
    };

    /** {@code lack} says in the log what a Pulsar without the field means. */
    DispatcherField(String name, String lack) {
        this.name = name;
        this.lack = lack;
    }

    private Optional<Field> find(Class<?> type) {
        for (Class<?> each = type; each != null; each = each.getSuperclass()) {
            try {
                Field field = each.getDeclaredField(name);
                field.setAccessible(true);
                return Optional.of(field);
            } catch (NoSuchFieldException e) {
                LOG.debug("{} may have it from its super class", each, e);
            }
        }
        LOG.warn("This Pulsar's {} {}", type, lack);
        return Optional.empty();
    }

    /** Null without the field. */
    Object of(AbstractPersistentDispatcherMultipleConsumers dispatcher) {
        try {
            Optional<Field> field = fields.get(dispatcher.getClass());
            return field.isPresent() ? field.get().get(dispatcher) : null;
        } catch (IllegalAccessException e) {
            LOG.debug("[{}] Its {} is unknown", dispatcher.getName(), name, e);
            return null;
        }
    }
}
