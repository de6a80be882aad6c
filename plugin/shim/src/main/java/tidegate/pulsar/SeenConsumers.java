package tidegate.pulsar;

import java.util.List;

/**
 * Tells whether all consumers were replaced between two looks at them.
 *
 * <p>By identity, not {@code equals}: a consumer that reconnects over the same connection equals its former self. Not
 * thread-safe.
 */
final class SeenConsumers {
    /** The consumers of the last look that showed any. */
    private Object[] seen;

    /** Begins with those that are there now. */
    SeenConsumers(List<?> consumers) {
        seen = consumers.toArray();
    }

    /** Whether there were consumers, there are some now, and none of the former ones is among them. */
    boolean replacedBy(List<?> consumers) {
        if (isUnchanged(consumers)) {
            return false;
        }
        Object[] now = consumers.toArray();
        if (now.length == 0) {
            return false;
        }
        boolean replaced = seen.length > 0;
        for (Object former : seen) {
            replaced &= !contains(now, former);
        }
        seen = now;
        return replaced;
    }

    /** The usual answer, without copying the list. */
    private boolean isUnchanged(List<?> consumers) {
        int i = 0;
        for (Object consumer : consumers) {
            if (i == seen.length || seen[i++] != consumer) {
                return false;
            }
        }
        return i == seen.length;
    }

    private static boolean contains(Object[] consumers, Object wanted) {
        for (Object consumer : consumers) {
            if (consumer == wanted) {
                return true;
            }
        }
        return false;
    }
}
