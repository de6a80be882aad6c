package tidegate.pulsar;

import java.time.Clock;

/**
 * When the dispatcher is woken: at the time of the next entry that this broker hands out.
 *
 * <p>A wake-up that comes too early does no harm, so another is asked for only if it is to come sooner. Guarded by the tracker's
 * lock.
 */
final class Alarm {
    private final TrackerHost host;
    private final Clock clock;
    private final NearTier near;
    /** What the host was asked for, until it has come; {@link NearTier#NONE} if nothing. */
    private long wakeMs = NearTier.NONE;
    private boolean stopped;

    Alarm(TrackerHost host, Clock clock, NearTier near) {
        this.host = host;
        this.clock = clock;
        this.near = near;
    }

    /** Has the dispatcher woken when the next entry is due, unless it is due already. */
    void arm() {
        long headMs = near.headMs();
        if (stopped || headMs == NearTier.NONE) {
            return;
        }
        long nowMs = clock.millis();
        if (headMs > nowMs && (headMs < wakeMs || wakeMs <= nowMs)) {
            wakeMs = headMs;
            host.wakeAt(headMs);
        }
    }

    /** As {@link #arm}, after an entry of that time has come: most are no reason to. */
    void armFor(long deliverAtMs, long nowMs) {
        if (deliverAtMs < wakeMs || wakeMs <= nowMs) {
            arm();
        }
    }

    /** Whether an entry is due; if not, the alarm is set for the next. */
    boolean isDue(long nowMs) {
        boolean due = near.headMs() <= nowMs;
        if (!due) {
            arm();
        }
        return due;
    }

    /** The wake-up has come. */
    void rang() {
        wakeMs = NearTier.NONE;
    }

    /** Nobody is to be woken any more. The caller cancels what was asked for, without the lock. */
    void stop() {
        stopped = true;
    }

    /** Whether nobody is woken any more. */
    boolean isStopped() {
        return stopped;
    }
}
