package tidegate.pulsar.gate;

import java.util.ArrayList;
import java.util.List;
import tidegate.pulsar.position.NearTier;

/**
 * The lateness of messages at hand-out: from deliver_at until the dispatcher takes them, by the broker's clock.
 *
 * <p>Without messages that a pace may hold back, and released ones, whose time is unknown. A message handed out again counts
 * again. Guarded by the tracker's lock.
 */
public final class Lateness {
    /** The upper bounds of the buckets in ms. The last bucket has none. */
    public static final List<Long> BOUNDS_MS = List.of(10L, 100L, 1_000L, 10_000L, 60_000L);

    /**
     * A snapshot.
     *
     * @param upTo the number of messages at most as late as each bound, and at last of all
     * @param sumMs the sum of all lateness
     * @param early the number that came before their time, which must stay 0
     */
    public record Figures(List<Long> upTo, long sumMs, long early) {}

    private final long[] counts = new long[BOUNDS_MS.size() + 1];
    private long sumMs;
    private long early;

    Lateness() {}

    /** Notes the hand-out of a message due at {@code dueMs}. */
    void record(long nowMs, long dueMs, boolean mayBeHeldBack) {
        if (nowMs < dueMs) {
            early++;
        }
        if (mayBeHeldBack || dueMs <= NearTier.AT_ONCE_MS) {
            return;
        }
        long lateMs = Math.max(0, nowMs - dueMs);
        int bucket = 0;
        while (bucket < BOUNDS_MS.size() && lateMs > BOUNDS_MS.get(bucket)) {
            bucket++;
        }
        counts[bucket]++;
        sumMs += lateMs;
    }

    /** The time since the first message was due; 0 if none is, or if a pace may hold it back. */
    static long overdueMs(long nowMs, long headMs, boolean mayBeHeldBack) {
        boolean isTimed = headMs != NearTier.NONE && headMs > NearTier.AT_ONCE_MS;
        return isTimed && !mayBeHeldBack ? Math.max(0, nowMs - headMs) : 0;
    }

    Figures figures() {
        List<Long> upTo = new ArrayList<>();
        long sum = 0;
        for (long count : counts) {
            sum += count;
            upTo.add(sum);
        }
        return new Figures(List.copyOf(upTo), sumMs, early);
    }
}
