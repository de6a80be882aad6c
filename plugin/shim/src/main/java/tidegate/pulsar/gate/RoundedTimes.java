package tidegate.pulsar.gate;

import java.util.HashMap;
import java.util.Map;

/**
 * Recent times, rounded up to levels: equal times are rounded alike. The chunks of a message have one time and are read one
 * after the other: a client drops a chunk that comes before the first one.
 *
 * <p>A time not asked for since the generation before the last is forgotten: a generation ends after {@link #ROUNDS} looks at
 * the policy, or with {@link #MAX} times. So an unread subscription costs no memory.
 *
 * <p>Invariant: a rounded time is never before the message's own.
 */
final class RoundedTimes {
    static final int MAX = 4096;
    /** At one look a second: longer than the chunks of a message take. */
    static final int ROUNDS = 60;

    private Map<Long, Long> rounded = new HashMap<>();
    private Map<Long, Long> before = new HashMap<>();
    private int rounds;
    private DelayPolicy policy;

    RoundedTimes(DelayPolicy policy) {
        this.policy = policy;
    }

    DelayPolicy policy() {
        return policy;
    }

    void follow(DelayPolicy next) {
        if (!next.levelsMs().equals(policy.levelsMs())) {
            endGeneration();
            endGeneration();
        } else if (++rounds >= ROUNDS) {
            endGeneration();
        }
        policy = next;
    }

    private void endGeneration() {
        rounds = 0;
        before = rounded;
        rounded = new HashMap<>();
    }

    /** The time at which a message of that own time may leave. */
    long of(long ownMs, long nowMs) {
        if (ownMs <= nowMs) {
            return ownMs;
        }
        Long known = rounded.get(ownMs);
        if (known == null) {
            Long earlier = before.get(ownMs);
            known = earlier == null ? policy.roundUp(ownMs, nowMs) : earlier;
            if (rounded.size() == MAX) {
                endGeneration();
            }
            rounded.put(ownMs, known);
        }
        return known;
    }

    int size() {
        return rounded.size() + before.size();
    }
}
