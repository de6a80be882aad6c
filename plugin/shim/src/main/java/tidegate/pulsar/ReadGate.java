package tidegate.pulsar;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Whether a tracker's dispatcher may read: not while the daemon is about to say what it holds, and not while too much of the
 * broker waits for the daemon.
 *
 * <p>Invariant, walked by {@link #check}: what this tracker has put on the broker's budget is what waits here. Guarded by the
 * tracker's lock, but for {@link #isPaused} and {@link #isAwaiting}.
 */
final class ReadGate {
    private static final Logger LOG = LoggerFactory.getLogger(ReadGate.class);
    private static final long ANSWER_WAIT_MS = 1000;
    /** For the answer of a daemon that has an index log to read first: that is sooner done than reading the topic. */
    private static final long RESTORE_WAIT_MS = 5000;

    private final TrackerHost host;
    private final PendingBudget budget;
    private final Wait sinceCreated = new Wait();
    private final long answerWaitMs;
    private int budgeted;
    private volatile boolean paused;
    /** A read was put off: the daemon's answer is awaited, or what is being read ahead. */
    private volatile boolean awaiting;

    ReadGate(TrackerHost host, PendingBudget budget, long nowMs) {
        this.host = host;
        this.budget = budget;
        answerWaitMs = host.log().pointer().isEmpty() ? ANSWER_WAIT_MS : RESTORE_WAIT_MS;
        sinceCreated.begin(nowMs);
    }

    /** Whether the tracker has been there for so long. */
    boolean isOlderThan(long waitMs, long nowMs) {
        return sinceCreated.isOver(nowMs, waitMs);
    }

    /**
     * Whether the daemon, which is being asked what it holds, will soon answer. Until then every read may be of what it holds, so
     * there is none; but nobody waits for long.
     */
    private boolean isAnswerNear(boolean asking, long nowMs) {
        return asking && !sinceCreated.isOver(nowMs, answerWaitMs);
    }

    /** Whether to put a read off until the daemon has answered, or a pass ahead has got on. Dispatcher's lock held. */
    boolean awaits(boolean asking, boolean readsAhead, long nowMs) {
        if ((isAnswerNear(asking, nowMs) || readsAhead) && host.redeliveries() == 0) {
            awaiting = true;
            return true;
        }
        return false;
    }

    /** Whether a read that was put off may take place now. */
    boolean mayGoOn(boolean asking, boolean readsAhead, long nowMs) {
        return awaiting && !isAnswerNear(asking, nowMs) && !readsAhead && goOn();
    }

    /** Whether a read was put off; it is not any more. */
    boolean goOn() {
        boolean was = awaiting;
        awaiting = false;
        return was;
    }

    boolean isAwaiting() {
        return awaiting;
    }

    /** Whether the broker may put more on its budget. */
    boolean hasRoom() {
        return !budget.isExceeded();
    }

    /** Whether too much waits; {@code hasDue} tells whether there is something to deliver all the same. Lock of the dispatcher held. */
    boolean pauses(boolean hasDue) {
        boolean pause = budget.isExceeded() && budgeted > 0 && !hasDue && host.redeliveries() == 0;
        if (pause != paused) {
            paused = pause;
            if (pause) {
                LOG.warn("[{}] Reading pauses: {} entries of this broker wait for the Tidegate daemon, the bound"
                        + " (tidegateMaxPendingEntries) is reached", host.name(), budget.entries());
            } else {
                LOG.info("[{}] Reading goes on: {} entries of this broker wait for the Tidegate daemon",
                        host.name(), budget.entries());
            }
        }
        return pause;
    }

    /** Whether a paused dispatcher would not pause now: as {@link #pauses}, but for what is due. */
    boolean mayResume() {
        return paused && (!budget.isExceeded() || budgeted == 0);
    }

    boolean isPaused() {
        return paused;
    }

    /** So many entries of this tracker wait for the daemon. */
    void account(int pending) {
        budget.add(pending - budgeted);
        budgeted = pending;
    }

    /** @throws IllegalStateException if an invariant does not hold */
    void check() {
        if (budgeted < 0 || budgeted > budget.entries()) {
            throw new IllegalStateException(budgeted + " entries wait, of " + budget.entries() + " of the broker");
        }
    }
}
