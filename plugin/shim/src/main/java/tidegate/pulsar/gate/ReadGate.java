package tidegate.pulsar.gate;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.position.SoughtPositions;
import tidegate.pulsar.position.TrackedPositions;
import tidegate.pulsar.timing.Wait;

/**
 * Decides when a tracker's dispatcher may read: not while the daemon is about to answer OPEN, not where a pass ahead will
 * soon be, and not while too many of the broker's entries wait for the daemon.
 *
 * <p>Invariants, walked by {@link #check}: this tracker's share of the broker's budget is part of the total, and nothing once
 * returned. Guarded by the tracker's lock, except {@link #isPaused} and {@link #isAwaiting}.
 */
final class ReadGate {
    private static final Logger LOG = LoggerFactory.getLogger(ReadGate.class);
    private static final long ANSWER_WAIT_MS = 1000;
    /** For a daemon that must first read an index log, which takes less time than reading the topic. */
    private static final long RESTORE_WAIT_MS = 5000;
    /** For the rules of topic and namespace, which a claim's way to the same metadata store usually outlasts. */
    private static final long RULES_WAIT_MS = 5000;

    private final TrackerContext context;
    private final PendingBudget budget;
    private final Claim claim;
    private final OverrideLog overrides;
    private final TrackedPositions positions;
    private final SoughtPositions sought;
    private final Outbox outbox;
    private final DaemonStream stream;
    private final ReadAheadGate readAhead;
    private final Wait sinceCreated = new Wait();
    private final long answerWaitMs;
    private int budgeted;
    private boolean over;
    private volatile boolean paused;
    /** True after postponing a read: it awaits the daemon's answer or a pass ahead. */
    private volatile boolean awaiting;

    ReadGate(TrackerContext context, PendingBudget budget, Claim claim, OverrideLog overrides, TrackedPositions positions,
             SoughtPositions sought, Outbox outbox, DaemonStream stream, ReadAheadGate readAhead, long nowMs) {
        this.context = context;
        this.budget = budget;
        this.claim = claim;
        this.overrides = overrides;
        this.positions = positions;
        this.sought = sought;
        this.outbox = outbox;
        this.stream = stream;
        this.readAhead = readAhead;
        answerWaitMs = context.log().pointer().isEmpty() ? ANSWER_WAIT_MS : RESTORE_WAIT_MS;
        sinceCreated.begin(nowMs);
    }

    // ---- waits ------------------------------------------------------------------------------------------------------

    boolean isOlderThan(long waitMs, long nowMs) {
        return sinceCreated.isOver(nowMs, waitMs);
    }

    /** True if the rules of topic and namespace are known, or their wait is over: messages then have their own times. */
    boolean isRuled(long nowMs) {
        return context.knowsPolicy() || sinceCreated.isOver(nowMs, RULES_WAIT_MS);
    }

    /**
     * True if the daemon's answer is near: requested, or as soon as the subscription is claimed. Until then every read may be
     * of held entries, so it waits, but not for long.
     */
    private boolean isAnswerNear(long nowMs) {
        boolean asking = !positions.isDecided() && (stream.isOpening() || !claim.isOwned() || !overrides.isReady()
                || !isRuled(nowMs));
        return asking && !sinceCreated.isOver(nowMs, answerWaitMs);
    }

    /**
     * True if a read must wait for the daemon's answer, or for a pass ahead; {@code hasDue}: entries can be delivered
     * meanwhile. Dispatcher's lock held.
     */
    boolean awaits(boolean hasDue, long nowMs) {
        if ((isAnswerNear(nowMs) || readAhead.isAwaited(nowMs) && !hasDue) && context.redeliveries() == 0) {
            awaiting = true;
            return true;
        }
        return false;
    }

    boolean mayGoOn(long nowMs) {
        return awaiting && !isAnswerNear(nowMs) && !readAhead.isAwaited(nowMs) && goOn();
    }

    /** Ends the postponement of a read; true if one was postponed. */
    boolean goOn() {
        boolean was = awaiting;
        awaiting = false;
        return was;
    }

    boolean isAwaiting() {
        return awaiting;
    }

    /** True if the dispatcher may read the entries without a holder: no pass ahead progresses, and not too much waits. */
    boolean mayAsk(long nowMs) {
        return sought.size() > 0 && positions.isDecided() && hasRoom() && !readAhead.isAwaited(nowMs);
    }

    // ---- the broker's budget --------------------------------------------------------------------------------------

    boolean hasRoom() {
        return !budget.isExceeded();
    }

    /** True if too much waits, and nothing can be delivered all the same. Dispatcher's lock held. */
    boolean pauses(boolean hasDue) {
        account();
        boolean pause = isFull() && !hasDue && context.redeliveries() == 0;
        if (pause != paused) {
            paused = pause;
            if (pause && isStuck()) {
                LOG.warn("[{}] Reading pauses: {} of its entries wait for the times of moved messages, which cannot be read",
                        context.name(), budgeted);
            } else if (pause) {
                LOG.warn("[{}] Reading pauses: {} entries of this broker wait for the Tidegate daemon, the bound"
                        + " (tidegateMaxPendingEntries) is reached", context.name(), budget.entries());
            } else {
                LOG.info("[{}] Reading goes on: {} entries of this broker wait for the Tidegate daemon",
                        context.name(), budget.entries());
            }
        }
        return pause;
    }

    private boolean isFull() {
        return budget.isExceeded() && budgeted > 0 || isStuck();
    }

    /** True if its entries wait for an answer that may never come, in the other subscriptions' room. */
    private boolean isStuck() {
        return overrides.isUnreadable() && budget.isShareExceeded(budgeted);
    }

    /** True if a paused dispatcher would not pause now: as {@link #pauses}, but for due entries. */
    boolean mayResume() {
        return paused && !isFull();
    }

    boolean isPaused() {
        return paused;
    }

    /** Puts the entries that wait for the daemon, or for its answer, on the budget. */
    void account() {
        put(over ? 0 : outbox.pendingEntries() + positions.undecided());
    }

    /**
     * Takes the tracker off the budget: it is forgotten, or another one tells the rest of its changes. Later calls put
     * nothing there, because nothing would take it off again.
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
