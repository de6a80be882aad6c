package tidegate.pulsar.gate;

import java.time.Clock;
import java.util.concurrent.TimeUnit;
import tidegate.pulsar.position.NearTier;
import tidegate.pulsar.wire.ReleasePace;

/**
 * Tells when the next entry of the near tier may leave: not before it is due, and not faster than the subscription's pace.
 *
 * <p>A rate is a bucket of permits that holds a {@link #BUCKET_NS} of them, one at least. In any time at most rate × time and one
 * bucket leave. An empty bucket fills before anything leaves again, so that one wake-up of the dispatcher is for many entries.
 *
 * <p>Example: at 1,000 a second 50 leave at once, and 50 more each 50 ms. At 2 a second one leaves each 500 ms.
 *
 * <p>A clock that is set back stops nothing for longer than one permit takes. Guarded by the tracker's lock.
 */
final class Pacer {
    private static final long BUCKET_NS = TimeUnit.MILLISECONDS.toNanos(50);
    private static final long NS_PER_SECOND = TimeUnit.SECONDS.toNanos(1);
    private static final long NS_PER_MS = TimeUnit.MILLISECONDS.toNanos(1);

    private final NearTier near;
    private final Clock clock;
    private ReleasePace pace;
    /** The time of a permit, and how many the bucket holds. */
    private long permitNs;
    private long permits;
    /** When the first permit of the bucket came. */
    private long permitAtNs;
    /** True while what is in the bucket leaves. */
    private boolean flows;

    Pacer(NearTier near, Clock clock, ReleasePace pace) {
        this.near = near;
        this.clock = clock;
        set(pace);
    }

    ReleasePace pace() {
        return pace;
    }

    /** True if due entries may have to wait. */
    boolean isOn() {
        return pace.kind() != ReleasePace.Kind.NONE;
    }

    boolean isPaused() {
        return pace.isPaused();
    }

    void set(ReleasePace next) {
        pace = next;
        if (next.kind() == ReleasePace.Kind.RATE) {
            permitNs = NS_PER_SECOND / next.amount();
            permits = Math.max(1, BUCKET_NS / permitNs);
            // A bucket that is empty: whoever sets a pace again and again gains nothing by it.
            permitAtNs = nowNs() + permitNs;
            flows = false;
        }
    }

    /** When the next entry may leave, in ms; {@link NearTier#NONE} if none is near, or none may. */
    long headMs() {
        long headMs = near.headMs();
        if (headMs == NearTier.NONE || pace.isPaused()) {
            return NearTier.NONE;
        }
        if (pace.kind() != ReleasePace.Kind.RATE) {
            return headMs;
        }
        refill();
        return flows ? headMs : Math.max(headMs, toMs(fullNs()));
    }

    /** Takes a permit if the next entry may leave now. */
    boolean take(long nowMs) {
        if (headMs() > nowMs) {
            return false;
        }
        if (pace.kind() == ReleasePace.Kind.RATE) {
            permitAtNs += permitNs;
            flows = permitAtNs <= nowNs();
        }
        return true;
    }

    /** How many near entries are due and held back. */
    int heldBack() {
        return isOn() ? near.countDueUpTo(clock.millis()) : 0;
    }

    private void refill() {
        long nowNs = nowNs();
        long fullSinceNs = nowNs - (permits - 1) * permitNs;
        permitAtNs = Math.max(fullSinceNs, Math.min(permitAtNs, nowNs + permitNs));
        flows |= permitAtNs == fullSinceNs;
    }

    /** When the bucket is full. */
    private long fullNs() {
        return permitAtNs + (permits - 1) * permitNs;
    }

    private long nowNs() {
        return clock.millis() * NS_PER_MS;
    }

    private static long toMs(long ns) {
        return -Math.floorDiv(-ns, NS_PER_MS);
    }

    /** @throws IllegalStateException if more permits have come than the bucket holds */
    void check() {
        if (pace.kind() == ReleasePace.Kind.RATE && (permits < 1 || permitNs < 1)) {
            throw new IllegalStateException("a pace of " + pace + " with " + permits + " permits of " + permitNs + " ns");
        }
    }
}
