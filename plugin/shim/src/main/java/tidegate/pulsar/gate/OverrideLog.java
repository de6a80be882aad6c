package tidegate.pulsar.gate;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.time.Clock;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletionException;
import java.util.function.Consumer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.position.Overrides;
import tidegate.pulsar.position.TrackedPositions;
import tidegate.pulsar.timing.Wait;
import tidegate.pulsar.wire.PositionBitmaps;
import tidegate.pulsar.wire.Records;

/**
 * Stores a subscription's {@link Overrides}, and reads those of former owners before any message leaves.
 *
 * <p>They are in one {@link OverrideLedger ledger}. {@link OverrideRecovery Reading} it fences the former owner; the first
 * change after that writes a new one. A change is stored when the ledger that the pointer names has it. If an append fails,
 * or the pointer's fate is unknown, so is the change's: its positions move until a new ledger counts. If a ledger fails that
 * no pointer has ever named, the change is surely not stored.
 *
 * <p>One write is under way at a time; changes meanwhile share the next one. Takes the tracker's lock itself.
 */
final class OverrideLog {
    private static final Logger LOG = LoggerFactory.getLogger(OverrideLog.class);
    private static final long FIRST_PAUSE_MS = 100;
    private static final long MAX_PAUSE_MS = 10_000;
    private static final long TIDY_MS = 1000;
    private static final long SAY_AGAIN_MS = 60_000;
    /** Most leaving overrides taken by one write. */
    static final int LEFT_MAX = 50_000;
    /** As in {@link Claim}: no other writer explains so many refusals in a row. */
    private static final int MAX_CONFLICTS = 4;

    private enum Phase { UNREAD, READING, READY }

    /** The fate of a change. */
    enum Stored {
        YES, NO,
        /** Unknown so far: its positions still move. */
        PERHAPS
    }

    private record Change(Records records, Consumer<Stored> done) {}

    private final Object lock;
    private final TrackerContext context;
    private final OverrideHome home;
    private final Clock clock;
    @GuardedBy("lock")
    private final Claim claim;
    @GuardedBy("lock")
    private final TrackedPositions positions;
    @GuardedBy("lock")
    private final Overrides overrides;
    /** Takes stored records, with the lock held. */
    private Consumer<Records> onStored = records -> { };
    /** Called without the lock once the stored overrides are read. */
    private Runnable onReady = () -> { };

    private volatile Phase phase;
    private final OverrideLedger ledger;
    private final OverrideRecovery recovery;
    @GuardedBy("lock")
    private boolean writing;
    private volatile boolean uncertain;
    @GuardedBy("lock")
    private boolean ended;
    /** True if overrides may have to leave. */
    @GuardedBy("lock")
    private boolean tidies;
    @GuardedBy("lock")
    private List<Change> queue = new ArrayList<>();
    @GuardedBy("lock")
    private int failures;
    @GuardedBy("lock")
    private int conflicts;
    @GuardedBy("lock")
    private final Wait pause = new Wait();
    @GuardedBy("lock")
    private final Wait sinceTidy = new Wait();
    /** True if the last try to read the stored overrides failed. */
    private volatile boolean unreadable;
    @GuardedBy("lock")
    private final Wait sinceSaid = new Wait();

    OverrideLog(Object lock, TrackerContext context, Clock clock, Claim claim, TrackedPositions positions,
            Overrides overrides) {
        this.lock = lock;
        this.context = context;
        home = context.overrides();
        ledger = new OverrideLedger(home);
        recovery = new OverrideRecovery(context, home);
        this.clock = clock;
        this.claim = claim;
        this.positions = positions;
        this.overrides = overrides;
        phase = home.pointer().isEmpty() ? Phase.READY : Phase.UNREAD;
    }

    void connect(Consumer<Records> stored, Runnable ready) {
        onStored = stored;
        onReady = ready;
    }

    // ---- reading --------------------------------------------------------------------------------------------------

    /** True once the stored overrides are read: no message may leave before. Takes no lock. */
    boolean isReady() {
        return phase == Phase.READY;
    }

    /** Reads the stored overrides if due. After the claim: a former owner can write the pointer no more. */
    void read() {
        String text;
        synchronized (lock) {
            if (phase != Phase.UNREAD || ended || !claim.isOwned() || !pause.isOver(clock.millis(), pauseMs())) {
                return;
            }
            phase = Phase.READING;
            text = home.pointer();
        }
        recovery.read(text).whenComplete((found, error) -> onRead(text, found, error));
    }

    @GuardedBy("lock")
    private long pauseMs() {
        return failures == 0 ? 0 : Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS << Math.min(failures - 1, 10));
    }

    private void onRead(String text, OverrideRecovery.Found found, Throwable error) {
        Throwable failure = cause(error);
        boolean isLost = failure instanceof OverrideHome.NoLedgerException;
        synchronized (lock) {
            if (failure != null && !isLost) {
                failures++;
                pause.begin(clock.millis());
                phase = Phase.UNREAD;
                sayUnreadable(failure, clock.millis());
                return;
            }
            unreadable = false;
            if (!home.pointer().equals(text)) {
                // Another, ending tracker of the same cursor has written it meanwhile.
                phase = Phase.UNREAD;
                return;
            }
            if (isLost) {
                LOG.error("[{}] The times of moved messages are lost, so their own times count again: {}", context.name(),
                        failure.getMessage());
            }
            failures = 0;
            ledger.restore(text);
            OverrideRecovery.Found known = isLost ? OverrideRecovery.Found.nothing() : found;
            overrides.restore(known.live(), known.acknowledged());
            phase = Phase.READY;
        }
        onReady.run();
    }

    /** Logs the failure: absent bookies come back, a ledger lost for good waits for a human's decision. */
    @GuardedBy("lock")
    private void sayUnreadable(Throwable failure, long nowMs) {
        if (!unreadable) {
            LOG.warn("[{}] The times of moved messages cannot be read yet, so its delayed messages wait: {}", context.name(),
                    failure.getMessage());
        } else if (sinceSaid.isOver(nowMs, SAY_AGAIN_MS)) {
            long ledgerId = failure instanceof OverrideRecovery.UnreadableException one ? one.ledgerId() : -1;
            LOG.error("[{}] All its delayed messages wait for the times of moved ones, which cannot be read from ledger {}: {}. Bring"
                    + " its bookies back. Only if it is lost for good, give up the new times: bin/bookkeeper shell deleteledger"
                    + " -ledgerid {} -force", context.name(), ledgerId, failure.getMessage(), ledgerId);
        } else {
            return;
        }
        unreadable = true;
        sinceSaid.begin(nowMs);
    }

    /** True while the stored overrides cannot be read. Takes no lock. */
    boolean isUnreadable() {
        return unreadable;
    }

    // ---- writing --------------------------------------------------------------------------------------------------

    /** True if a change may come now: not right after a failure, because its messages are read again first. */
    boolean takes() {
        synchronized (lock) {
            return phase == Phase.READY && !uncertain && !ended && pause.isOver(clock.millis(), pauseMs())
                    && home.isAvailable();
        }
    }

    /** Stores the records of moving messages; {@code done} is called without the lock. Call {@link #go} after this. */
    void store(Records records, Consumer<Stored> done) {
        synchronized (lock) {
            queue.add(new Change(records, done));
        }
    }

    /** Makes the ledger forget acknowledged messages once a second, and repeats failed writes. */
    void look(long nowMs) {
        read();
        synchronized (lock) {
            if (phase == Phase.READY && sinceTidy.isOver(nowMs, TIDY_MS)) {
                sinceTidy.begin(nowMs);
                tidies = true;
                overrides.leaveUpTo(context.markDelete());
            }
        }
        go();
    }

    /** True if {@link #look} must come soon. Takes no lock, and may be wrong for a moment. */
    boolean isBusy() {
        return phase != Phase.READY || uncertain;
    }

    void go() {
        Write write = null;
        List<Change> given = List.of();
        synchronized (lock) {
            if (ended) {
                given = queue;
                queue = new ArrayList<>();
            } else if (!writing && phase == Phase.READY) {
                write = next();
                writing = write != null;
            }
        }
        given.forEach(change -> change.done().accept(Stored.NO));
        if (write != null) {
            write.begin();
        }
    }

    /** Null without a due write. */
    @GuardedBy("lock")
    private Write next() {
        long nowMs = clock.millis();
        boolean isOver = pause.isOver(nowMs, pauseMs());
        boolean again = uncertain && isOver;
        if (uncertain && !again) {
            return null;
        }
        boolean tidiesNow = tidies && isOver && home.isAvailable();
        PositionBitmaps left = tidiesNow ? overrides.takeLeft(nowMs, context.persistedMarkDelete(), LEFT_MAX)
                : new PositionBitmaps();
        boolean sweeps = tidiesNow && ledger.hasLeftBehind();
        if (!again && queue.isEmpty() && left.isEmpty() && !(tidiesNow && overrides.hasReturned()) && !sweeps) {
            tidies = false;
            return null;
        }
        // A returned message may be among the changes.
        overrides.takeReturned().forEach(left::add);
        List<Change> changes = queue;
        queue = new ArrayList<>();
        Records records = new Records();
        changes.forEach(change -> addAll(change.records(), records));
        if (sweeps || ledger.isToRewrite(overrides.stored())) {
            return new Rewrite(changes, again ? overrides.allMoving() : records);
        }
        if (records.isEmpty() && overrides.isEmpty()) {
            return new Rewrite(changes, records);
        }
        ledger.count(records);
        return new Append(changes, records, left);
    }

    private static void addAll(Records some, Records all) {
        for (int i = 0; i < some.size(); i++) {
            all.add(some.ledgerId(i), some.entryId(i), some.deliverAtMs(i));
        }
    }

    private abstract class Write {
        final List<Change> changes;
        /** Live once this write is stored. */
        final Records records;

        Write(List<Change> changes, Records records) {
            this.changes = changes;
            this.records = records;
        }

        abstract void begin();

        @GuardedBy("OverrideLog.this.lock")
        void stored() {
            failures = 0;
            conflicts = 0;
            uncertain = false;
            overrides.left();
            onStored.accept(records);
        }

        /** Handles a write with an unknown fate. */
        @GuardedBy("OverrideLog.this.lock")
        void inDoubt(String what, Throwable error) {
            LOG.warn("[{}] {}, so {} moved messages wait until their times are written anew: {}", context.name(), what,
                    records.size(), cause(error).getMessage());
            ledger.giveUp();
            uncertain = true;
            fail();
        }

        @GuardedBy("OverrideLog.this.lock")
        private void fail() {
            overrides.untake();
            failures++;
            pause.begin(clock.millis());
        }

        /** Handles a write that is surely not stored. */
        @GuardedBy("OverrideLog.this.lock")
        void undone() {
            fail();
            if (!uncertain) {
                positions.undoMove(records);
            }
        }

        /** Ends the write, and begins the next; gives up changes behind one in doubt. */
        void end(Stored fate) {
            List<Change> given = List.of();
            synchronized (lock) {
                writing = false;
                if (uncertain || phase != Phase.READY) {
                    given = queue;
                    queue = new ArrayList<>();
                    given.forEach(change -> positions.undoMove(change.records()));
                }
            }
            changes.forEach(change -> change.done().accept(fate));
            given.forEach(change -> change.done().accept(Stored.NO));
            go();
            if (fate != Stored.YES) {
                context.readMore();
            }
        }
    }

    private final class Append extends Write {
        private final PositionBitmaps left;

        Append(List<Change> changes, Records records, PositionBitmaps left) {
            super(changes, records);
            this.left = left;
        }

        @Override
        void begin() {
            ledger.append(records, left).whenComplete((done, error) -> {
                synchronized (lock) {
                    if (error == null) {
                        stored();
                    } else {
                        inDoubt("Storing failed", error);
                    }
                }
                end(error == null ? Stored.YES : Stored.PERHAPS);
            });
        }
    }

    private final class Rewrite extends Write {
        private final OverrideLedger.Rewriting rewriting = ledger.rewrite(overrides.all());

        Rewrite(List<Change> changes, Records records) {
            super(changes, records);
        }

        @Override
        void begin() {
            rewriting.begin(this::isOver).whenComplete((outcome, error) -> {
                List<Long> over = List.of();
                Stored fate;
                boolean isStale;
                synchronized (lock) {
                    if (error != null) {
                        inDoubt("Storing the pointer failed", error);
                        rewriting.doubt();
                        isStale = cause(error) instanceof OverrideHome.ConflictException && ++conflicts >= MAX_CONFLICTS;
                        fate = Stored.PERHAPS;
                    } else if (outcome == OverrideLedger.Outcome.DONE) {
                        over = rewriting.done();
                        stored();
                        isStale = false;
                        // An ending tracker may have a successor, which has read the ledger before.
                        fate = ended ? Stored.PERHAPS : Stored.YES;
                    } else {
                        fate = outcome == OverrideLedger.Outcome.OVER || uncertain ? Stored.PERHAPS : Stored.NO;
                        isStale = onUndone(outcome);
                    }
                }
                if (error == null && outcome != OverrideLedger.Outcome.DONE) {
                    rewriting.discard();
                }
                over.forEach(home::delete);
                if (isStale) {
                    context.reopenTopic();
                }
                end(fate);
            });
        }

        private boolean isOver() {
            synchronized (lock) {
                return ended;
            }
        }

        /** Handles an unchanged pointer; true if this broker does not know the cursor's version. */
        @GuardedBy("OverrideLog.this.lock")
        private boolean onUndone(OverrideLedger.Outcome outcome) {
            if (outcome == OverrideLedger.Outcome.OVER) {
                return false;
            }
            undone();
            if (outcome == OverrideLedger.Outcome.FAILED) {
                LOG.warn("[{}] No new ledger for the times of moved messages: {}", context.name(),
                        cause(rewriting.failure()).getMessage());
                return false;
            }
            if (outcome == OverrideLedger.Outcome.REFUSED) {
                return false;
            }
            phase = Phase.UNREAD;
            return ++conflicts >= MAX_CONFLICTS;
        }
    }

    // ---- the end --------------------------------------------------------------------------------------------------

    /** Stops all writes. */
    void writeNoMore() {
        synchronized (lock) {
            ended = true;
        }
    }

    /** As {@link #writeNoMore}, and answers the waiting changes. */
    void end() {
        writeNoMore();
        go();
    }

    private static Throwable cause(Throwable error) {
        return error instanceof CompletionException && error.getCause() != null ? error.getCause() : error;
    }
}
