package tidegate.pulsar.gate;

import java.util.LinkedHashMap;
import java.util.Map;

/**
 * The times of late, rounded up to levels: equal times are rounded alike. The chunks of a message have one time, and the broker
 * reads them one after the other: a client drops a chunk that comes before the first one.
 *
 * <p>Invariant: a rounded time is never before the message's own.
 */
final class RoundedTimes {
    private static final int MAX = 4096;

    private final Map<Long, Long> rounded = new LinkedHashMap<>() {
        private static final long serialVersionUID = 1L;

        @Override
        protected boolean removeEldestEntry(Map.Entry<Long, Long> eldest) {
            return size() > MAX;
        }
    };
    private DelayPolicy policy;

    RoundedTimes(DelayPolicy policy) {
        this.policy = policy;
    }

    DelayPolicy policy() {
        return policy;
    }

    void follow(DelayPolicy next) {
        if (!next.levelsMs().equals(policy.levelsMs())) {
            rounded.clear();
        }
        policy = next;
    }

    /** The time at which a message may leave whose own time is {@code ownMs}. */
    long of(long ownMs, long nowMs) {
        if (ownMs <= nowMs) {
            return ownMs;
        }
        return rounded.computeIfAbsent(ownMs, each -> policy.roundUp(each, nowMs));
    }
}
