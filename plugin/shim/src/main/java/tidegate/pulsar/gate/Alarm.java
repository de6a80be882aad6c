package tidegate.pulsar.gate;

import tidegate.pulsar.position.NearTier;

/**
 * The alarm that wakes the dispatcher: when this broker's next entry is due and may leave, and while the dispatcher passes
 * over due entries ({@link StuckDetector}).
 *
 * <p>It reads no clock. A caller gives the reading by which it found nothing due, or an earlier one: with a later one, an
 * entry that comes due in between would neither leave nor be awaited, and would block everything behind it.
 *
 * <p>An early wake-up is harmless, so only an earlier time needs another request. Guarded by the tracker's lock.
 */
final class Alarm {
    /** A timer overdue by this much is lost. */
    private static final long LOST_MS = 500;

    private final TrackerContext context;
    private final Pacer pacer;
    private final StuckDetector stuckDetector;
    /** The time of the next entry, until its wake-up; {@link NearTier#NONE} if none is awaited. */
    private long wakeMs = NearTier.NONE;
    /** The time of the requested wake-up, until it comes; {@link NearTier#NONE} without a request. */
    private long timerMs = NearTier.NONE;
    private boolean stopped;

    Alarm(TrackerContext context, Pacer pacer, StuckDetector stuckDetector) {
        this.context = context;
        this.pacer = pacer;
        this.stuckDetector = stuckDetector;
    }

    /** Wakes the dispatcher when the next entry is due, and checks when it may overlook due ones. */
    void arm(long nowMs) {
        long headMs = pacer.headMs(nowMs);
        if (stopped || headMs == NearTier.NONE && stuckDetector.lookMs() == NearTier.NONE) {
            return;
        }
        if (headMs > nowMs && headMs != NearTier.NONE && (headMs < wakeMs || wakeMs <= nowMs)) {
            wakeMs = headMs;
        }
        long nextMs = Math.min(wakeMs > nowMs ? wakeMs : NearTier.NONE, stuckDetector.lookMs());
        // A due timer rings as soon as its thread has the lock: a later request would replace it.
        if (nextMs < timerMs || nextMs != NearTier.NONE && timerMs <= nowMs - LOST_MS) {
            timerMs = nextMs;
            context.wakeAt(nextMs);
        }
    }

    /** As {@link #arm}, after the arrival of an entry due at that time: few such entries change the alarm. */
    void armFor(long deliverAtMs, long nowMs) {
        if (deliverAtMs < wakeMs || wakeMs <= nowMs) {
            arm(nowMs);
        }
    }

    /** True if an entry is due; otherwise sets the alarm for the next. */
    boolean isDue(long nowMs) {
        boolean due = pacer.headMs(nowMs) <= nowMs;
        if (!due) {
            arm(nowMs);
        }
        return due;
    }

    /** Notes that the timer has fired, perhaps too early; true if the dispatcher must wake. */
    boolean ring(long nowMs) {
        timerMs = NearTier.NONE;
        boolean wakes = wakeMs <= nowMs && pacer.headMs(nowMs) <= nowMs;
        if (wakeMs <= nowMs) {
            wakeMs = NearTier.NONE;
        }
        if (wakes) {
            stuckDetector.expectRound(nowMs);
        }
        if (stuckDetector.isLookOver(nowMs)) {
            wakes |= stuckDetector.look(nowMs);
        }
        arm(nowMs);
        return wakes && !stopped;
    }

    /** Stops all wake-ups. The caller cancels the pending request, without the lock. */
    void stop() {
        stopped = true;
    }

    boolean isStopped() {
        return stopped;
    }
}
