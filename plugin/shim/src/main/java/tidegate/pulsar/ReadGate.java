package tidegate.pulsar;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Whether a tracker's dispatcher may read: not while the daemon is about to say what it holds, not where a pass ahead is about to
 * get, and not while too much of the broker waits for the daemon.
 *
 * <p>Invariants, walked by {@link #check}: what this tracker has put on the broker's budget is part of what waits there, and
 * nothing once it was given back. Guarded by the tracker's lock, but for {@link #isPaused} and {@link #isAwaiting}.
 */
final class ReadGate {
    private static final Logger LOG = LoggerFactory.getLogger(ReadGate.class);
    private static final long ANSWER_WAIT_MS = 1000;
    /** For the answer of a daemon that has an index log to read first: that is sooner done than reading the topic. */
    private static final long RESTORE_WAIT_MS = 5000;

    private final TrackerHost host;
    private final PendingBudget budget;
    private final Claim claim;
    private final PositionStates positions;
    private final SoughtPositions sought;
    private final Outbox outbox;
    private final DaemonStream stream;
    private final AheadGate ahead;
    private final Wait sinceCreated = new Wait();
    private final long answerWaitMs;
    private int budgeted;
    private boolean over;
    private volatile boolean paused;
    /** A read was put off: the daemon's answer is awaited, or what is being read ahead. */
    private volatile boolean awaiting;

    ReadGate(TrackerHost host, PendingBudget budget, Claim claim, PositionStates positions, SoughtPositions sought, Outbox outbox,
             DaemonStream stream, AheadGate ahead, long nowMs) {
        this.host = host;
        this.budget = budget;
        this.claim = claim;
        this.positions = positions;
        this.sought = sought;
        this.outbox = outbox;
        this.stream = stream;
        this.ahead = ahead;
        answerWaitMs = host.log().pointer().isEmpty() ? ANSWER_WAIT_MS : RESTORE_WAIT_MS;
        sinceCreated.begin(nowMs);
    }

    // ---- what is awaited ------------------------------------------------------------------------------------------

    /** Whether the tracker has been there for so long. */
    boolean isOlderThan(long waitMs, long nowMs) {
        return sinceCreated.isOver(nowMs, waitMs);
    }

    /**
     * Whether the daemon is being asked what it holds, or will be as soon as the subscription is claimed, and will soon answer.
     * Until then every read may be of what it holds, so there is none; but nobody waits for long.
     */
    private boolean isAnswerNear(long nowMs) {
        boolean asking = !positions.isDecided() && (stream.isOpening() || !claim.isOwned());
        return asking && !sinceCreated.isOver(nowMs, answerWaitMs);
    }

    /**
     * Whether to put a read off until the daemon has answered, or a pass ahead has got on; {@code hasDue} tells whether there is
     * something to deliver meanwhile. Dispatcher's lock held.
     */
    boolean awaits(boolean hasDue, long nowMs) {
        if ((isAnswerNear(nowMs) || ahead.isAwaited(nowMs) && !hasDue) && host.redeliveries() == 0) {
            awaiting = true;
            return true;
        }
        return false;
    }

    /** Whether a read that was put off may take place now. */
    boolean mayGoOn(long nowMs) {
        return awaiting && !isAnswerNear(nowMs) && !ahead.isAwaited(nowMs) && goOn();
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

    /** Whether the dispatcher is to read what nobody holds any more: unless a pass ahead gets on with it, or too much waits. */
    boolean mayAsk(long nowMs) {
        return sought.size() > 0 && positions.isDecided() && hasRoom() && !ahead.isAwaited(nowMs);
    }

    // ---- the broker's budget --------------------------------------------------------------------------------------

    /** Whether the broker may put more on its budget. */
    boolean hasRoom() {
        return !budget.isExceeded();
    }

    /** Whether too much waits, and there is nothing to deliver all the same. Dispatcher's lock held. */
    boolean pauses(boolean hasDue) {
        account();
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

    /** Puts on the budget what waits for the daemon, or for its answer. */
    void account() {
        put(over ? 0 : outbox.pendingEntries() + positions.undecided());
    }

    /**
     * The tracker is forgotten, or another one tells what it has left. A closed dispatcher, or a daemon's last word, may still
     * come to it: nothing of that waits, and nobody would take it off the budget again.
     */
    void giveBack() {
        over = true;
        put(0);
    }

    private void put(int pending) {
        budget.add(pending - budgeted);
        budgeted = pending;
    }

    /** @throws IllegalStateException if an invariant does not hold */
    void check() {
        if (budgeted < 0 || budgeted > budget.entries() || over && budgeted > 0) {
            throw new IllegalStateException(budgeted + " entries wait, of " + budget.entries() + " of the broker");
        }
    }
}
