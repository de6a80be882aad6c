package tidegate.pulsar;

import java.time.Clock;

/**
 * When the dispatcher is woken: at the time of the next entry that this broker hands out, and while what is due is
 * {@link Overlooked}.
 *
 * <p>A wake-up that comes too early does no harm, so another is asked for only if it is to come sooner. Guarded by the tracker's
 * lock.
 */
final class Alarm {
    private final TrackerHost host;
    private final Clock clock;
    private final NearTier near;
    private final Overlooked overlooked;
    /** When the next entry is due, until the dispatcher was woken for it; {@link NearTier#NONE} if none is awaited. */
    private long wakeMs = NearTier.NONE;
    /** What the host was asked for, until it has come; {@link NearTier#NONE} if nothing. */
    private long timerMs = NearTier.NONE;
    private boolean stopped;

    Alarm(TrackerHost host, Clock clock, NearTier near, Overlooked overlooked) {
        this.host = host;
        this.clock = clock;
        this.near = near;
        this.overlooked = overlooked;
    }

    /** Has the dispatcher woken when the next entry is due, and looked at when it may overlook what is due already. */
    void arm() {
        long headMs = near.headMs();
        if (stopped || headMs == NearTier.NONE && overlooked.lookMs() == NearTier.NONE) {
            return;
        }
        long nowMs = clock.millis();
        if (headMs > nowMs && headMs != NearTier.NONE && (headMs < wakeMs || wakeMs <= nowMs)) {
            wakeMs = headMs;
        }
        long nextMs = Math.min(wakeMs > nowMs ? wakeMs : NearTier.NONE, overlooked.lookMs());
        if (nextMs != NearTier.NONE && (nextMs < timerMs || timerMs <= nowMs)) {
            timerMs = nextMs;
            host.wakeAt(nextMs);
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

    /** The timer has come, perhaps too early. Whether to wake the dispatcher. */
    boolean ring(long nowMs) {
        timerMs = NearTier.NONE;
        boolean wakes = wakeMs <= nowMs && near.headMs() <= nowMs;
        if (wakeMs <= nowMs) {
            wakeMs = NearTier.NONE;
        }
        if (overlooked.isLookOver(nowMs)) {
            wakes |= overlooked.look(nowMs);
        }
        arm();
        return wakes && !stopped;
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
