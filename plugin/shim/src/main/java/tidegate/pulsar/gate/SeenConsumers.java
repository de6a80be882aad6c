package tidegate.pulsar.gate;

import java.util.List;

/**
 * The consumers that have gone between two looks.
 *
 * <p>By identity, not {@code equals}: a consumer that reconnects over the same connection equals its former self. Not
 * thread-safe.
 */
public final class SeenConsumers {
    /** The fate of the consumers of the look before. */
    public enum Change {
        NONE,
        /** Some have gone: their messages are delivered again. */
        SOME_GONE,
        /** There were some, there are some now, and none of the former ones. */
        REPLACED
    }

    /** The consumers of the last look that had any. */
    private Object[] seen;

    public SeenConsumers(List<?> consumers) {
        seen = consumers.toArray();
    }

    public Change look(List<?> consumers) {
        if (isUnchanged(consumers)) {
            return Change.NONE;
        }
        Object[] now = consumers.toArray();
        if (now.length == 0) {
            return Change.NONE;
        }
        int gone = 0;
        for (Object former : seen) {
            gone += contains(now, former) ? 0 : 1;
        }
        Change change = gone == 0 ? Change.NONE : gone < seen.length ? Change.SOME_GONE : Change.REPLACED;
        seen = now;
        return change;
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
