package tidegate.pulsar.gate;

import java.time.Clock;
import java.util.concurrent.TimeUnit;
import tidegate.pulsar.position.NearTier;
import tidegate.pulsar.wire.ReleasePace;

/**
 * Says when the next entry of the near tier may leave: not before it is due, and no faster than the subscription's pace.
 *
 * <p>A rate is a bucket with the permits of {@link #BUCKET_NS}, at least one. In any time at most rate × time and one bucket
 * leave. An empty bucket fills before the next entry leaves, so one wake-up of the dispatcher serves many entries.
 *
 * <p>Example: at 1,000 a second 50 leave at once, and 50 more each 50 ms. At 2 a second one leaves each 500 ms.
 *
 * <p>A spread is a rate that is always recomputed: the entries due now, here and with the daemon, divided by the rest of the
 * oldest entry's spread. So a burst leaves evenly until its end; a steady stream is late by half of the spread.
 *
 * <p>A backward step of the clock delays an entry by at most one permit's time. Guarded by the tracker's lock.
 */
final class Pacer {
    /** The interval at which a spread counts due entries and checks for a change. */
    private static final long MEASURE_MS = 200;
    private static final long LOOK_MS = 1000;
    /** The last hundredth of a spread lasts: the rest leaves no faster. */
    private static final int LAST_PART = 100;
    private static final long BUCKET_NS = TimeUnit.MILLISECONDS.toNanos(50);
    private static final long NS_PER_SECOND = TimeUnit.SECONDS.toNanos(1);
    private static final long NS_PER_MS = TimeUnit.MILLISECONDS.toNanos(1);

    private final NearTier near;
    private final Clock clock;
    private ReleasePace pace;
    /** The time for a permit, and the bucket's size. */
    private long permitNs = 1;
    private long permits = 1;
    /** The time of the last taken permit. */
    private long takenNs;
    /** The time of the next permit. */
    private long permitAtNs;
    private boolean flows;
    /** The begin of the spread, and of its last measurement; {@link NearTier#NONE} if one is due now. */
    private long beganMs;
    private long measuredMs;
    /** When a spread first met one of the entries due at once; {@link NearTier#NONE} without one. */
    private long atOnceMs;
    /** Due entries beyond the daemon's credit. */
    private long behind;

    Pacer(NearTier near, Clock clock, ReleasePace pace) {
        this.near = near;
        this.clock = clock;
        set(pace);
    }

    ReleasePace pace() {
        return pace;
    }

    boolean isOn() {
        return pace.kind() != ReleasePace.Kind.NONE;
    }

    boolean isPaused() {
        return pace.isPaused();
    }

    void set(ReleasePace next) {
        pace = next;
        // An empty bucket: setting a pace again and again gains nothing.
        beganMs = clock.millis();
        takenNs = beganMs * NS_PER_MS;
        flows = false;
        measuredMs = NearTier.NONE;
        atOnceMs = NearTier.NONE;
        if (next.kind() == ReleasePace.Kind.RATE) {
            permitEvery(NS_PER_SECOND / next.amount());
        }
    }

    void tellBehind(long entries) {
        behind = entries;
        measuredMs = NearTier.NONE;
    }

    /**
     * The time in ms, or an earlier one, at which the next entry may leave, as of {@code nowMs}; {@link NearTier#NONE} if
     * none is near, or none may.
     */
    long headMs(long nowMs) {
        long headMs = near.headMs();
        if (headMs == NearTier.NONE || !isOn()) {
            return headMs;
        }
        if (pace.isPaused()) {
            return NearTier.NONE;
        }
        refill(headMs, nowMs);
        if (flows) {
            return headMs;
        }
        long fullMs = toMs(permitAtNs + (permits - 1) * permitNs);
        boolean mayChange = pace.kind() == ReleasePace.Kind.SPREAD;
        return Math.max(headMs, mayChange ? Math.min(fullMs, nowMs + LOOK_MS) : fullMs);
    }

    /** Takes a permit if the next entry may leave now. */
    boolean take(long nowMs) {
        if (headMs(nowMs) > nowMs) {
            return false;
        }
        if (isOn()) {
            takenNs = permitAtNs;
            permitAtNs += permitNs;
            flows = permitAtNs <= nowMs * NS_PER_MS;
        }
        return true;
    }

    /** The number of due near entries that wait for the pace. */
    int heldBack() {
        return isOn() ? near.countDueUpTo(clock.millis()) : 0;
    }

    private void refill(long headMs, long nowMs) {
        if (pace.kind() == ReleasePace.Kind.SPREAD) {
            measure(headMs, nowMs);
        }
        long nowNs = nowMs * NS_PER_MS;
        long fullSinceNs = nowNs - (permits - 1) * permitNs;
        permitAtNs = Math.max(fullSinceNs, Math.min(takenNs + permitNs, nowNs + permitNs));
        flows |= permitAtNs == fullSinceNs;
    }

    private void measure(long headMs, long nowMs) {
        if (measuredMs <= nowMs && nowMs - measuredMs < MEASURE_MS) {
            return;
        }
        measuredMs = nowMs;
        long dueForMs = nowMs - Math.max(oldestMs(headMs, nowMs), beganMs);
        long leftMs = Math.max(pace.amount() - Math.max(0, dueForMs), pace.amount() / LAST_PART);
        long due = Math.max(1, near.countDueUpTo(nowMs) + behind);
        permitEvery(Math.max(1, leftMs * NS_PER_MS / due));
    }

    /** The time since which the oldest is due. Entries due at once have no time of their own. */
    private long oldestMs(long headMs, long nowMs) {
        if (headMs > NearTier.AT_ONCE_MS) {
            atOnceMs = NearTier.NONE;
            return headMs;
        }
        atOnceMs = Math.min(atOnceMs, nowMs);
        return Math.min(atOnceMs, near.firstTimeMs());
    }

    private void permitEvery(long everyNs) {
        permitNs = everyNs;
        permits = Math.max(1, BUCKET_NS / everyNs);
    }

    private static long toMs(long ns) {
        return -Math.floorDiv(-ns, NS_PER_MS);
    }

    /** @throws IllegalStateException if a permit takes no time, or the bucket holds none */
    void check() {
        if (permits < 1 || permitNs < 1 || behind < 0) {
            throw new IllegalStateException("a pace of " + pace + " with " + permits + " permits of " + permitNs + " ns");
        }
    }
}
