package tidegate.pulsar.gate;

import tidegate.pulsar.timing.Wait;

/**
 * Says when more messages wait than the quota allows, and when enough have left: at most once a minute, because a count may
 * swing around the quota.
 */
final class QuotaWatch {
    static final long AGAIN_MS = 60_000;

    enum Change { NONE, OVER, BACK }

    private final Wait sinceOver = new Wait();
    private boolean isOver;

    /** The change since the last look; by the caller's lock. */
    Change look(DelayPolicy policy, long waiting, long nowMs) {
        if (isOver && policy.hasRoom(waiting)) {
            isOver = false;
            return Change.BACK;
        }
        if (!isOver && policy.isOver(waiting) && sinceOver.isOver(nowMs, AGAIN_MS)) {
            isOver = true;
            sinceOver.begin(nowMs);
            return Change.OVER;
        }
        return Change.NONE;
    }
}
