package tidegate.pulsar.gate;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.time.Clock;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import tidegate.pulsar.position.NearTier;
import tidegate.pulsar.position.PositionSet;
import tidegate.pulsar.position.SoughtPositions;
import tidegate.pulsar.position.TrackedPositions;
import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.Frame.Envelope;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.PositionBitmaps;
import tidegate.pulsar.wire.ProtocolException;
import tidegate.pulsar.wire.Records;

/**
 * The handler of a tracker's stream: makes the tracker's frames and acts on the daemon's, one method for each.
 *
 * <p>Rule: skip only positions that the index surely holds. The dispatcher skips the positions in HELD, and reads again any
 * that it skipped before and HELD lacks. An acknowledgement from the daemon counts only under OPEN's seal. Called by the
 * link's thread, without any lock; takes the tracker's lock, but not while asking the cursor about many positions.
 */
public final class StreamHandler {
    private final Object lock;
    private final TrackerContext context;
    private final Clock clock;
    private final Seal seal;
    @GuardedBy("lock")
    private final Claim claim;
    @GuardedBy("lock")
    private final TrackedPositions positions;
    @GuardedBy("lock")
    private final SoughtPositions sought;
    @GuardedBy("lock")
    private final NearTier near;
    @GuardedBy("lock")
    private final Outbox outbox;
    @GuardedBy("lock")
    private final DaemonStream stream;
    private final SettlingDeletes deletes;
    @GuardedBy("lock")
    private final CursorWatch cursor;
    @GuardedBy("lock")
    private final ReadAheadGate readAhead;
    @GuardedBy("lock")
    private final ReadGate gate;
    @GuardedBy("lock")
    private final Pacer pacer;
    @GuardedBy("lock")
    private final Alarm alarm;
    @GuardedBy("lock")
    private final Intake intake;
    private final LostPositions lost;
    private final Lifecycle lifecycle;
    private final OverrideLog overrideLog;
    @GuardedBy("lock")
    private final Inquiry inquiry;
    @GuardedBy("lock")
    private final Cancellations cancellations;
    @GuardedBy("lock")
    private final Moves moves;

    StreamHandler(TrackerParts parts, Intake intake, LostPositions lost, Lifecycle lifecycle) {
        lock = parts.lock;
        context = parts.context;
        clock = parts.clock;
        seal = parts.seal;
        claim = parts.claim;
        positions = parts.positions;
        sought = parts.sought;
        near = parts.near;
        outbox = parts.outbox;
        stream = parts.stream;
        deletes = parts.deletes;
        cursor = parts.cursor;
        readAhead = parts.readAhead;
        gate = parts.gate;
        pacer = parts.pacer;
        alarm = parts.alarm;
        this.intake = intake;
        this.lost = lost;
        this.lifecycle = lifecycle;
        overrideLog = parts.overrideLog;
        inquiry = new Inquiry(parts);
        cancellations = new Cancellations(parts, inquiry);
        Moves moving = new Moves(parts, inquiry);
        moves = moving;
        // It takes them with the lock held.
        overrideLog.connect(moving::stored, this::onOverridesRead);
    }

    // ---- frames to the daemon ---------------------------------------------------------------------------------------

    /** The OPEN that (re)starts the stream, or null while it must stay closed. {@code version}: the daemon's. */
    public Frame.Open open(int version) {
        synchronized (lock) {
            long nowMs = clock.millis();
            boolean nothingToTell = lifecycle.isFinished() && outbox.isEmpty();
            boolean lacks = !overrideLog.isReady() || !gate.isRuled(nowMs);
            if (!stream.mayOpen(nowMs) || nothingToTell || !claim.isOwned() || lacks && !lifecycle.isFinished()) {
                return null;
            }
            return stream.open(claim, seal.tell(), lifecycle.isFinished(), version, nowMs);
        }
    }

    public boolean isOpen() {
        synchronized (lock) {
            return stream.isOpen();
        }
    }

    /** The frames to send now, numbered; empty unless the stream is open. */
    public List<Envelope> takeFrames(int streamId) {
        synchronized (lock) {
            return stream.takeFrames(streamId, lifecycle.isFinished());
        }
    }

    // ---- the answer to OPEN ---------------------------------------------------------------------------------------

    public void onHeld(Frame.Held held) {
        HeldAnswer answer;
        synchronized (lock) {
            if (stream.isOpen() && !lifecycle.isFinished()) {
                onHeldSince(held.held());
            }
            if (!stream.isOpening()) {
                return;
            }
            answer = stream.answer();
        }
        answer.collect(held);
        if (held.last()) {
            onAnswered(answer);
        }
    }

    /**
     * Takes entries that the daemon got from elsewhere since its answer to OPEN, as from a rebuild, so they need not be
     * read. News unknown to the daemon still counts; the cursor decides about acknowledged positions.
     */
    @GuardedBy("lock")
    private void onHeldSince(PositionBitmaps held) {
        PositionSet since = new PositionSet();
        since.addAll(held);
        outbox.applyPendingTo(since, new PositionSet());
        Position markDelete = context.markDelete();
        since.discardUpTo(markDelete.ledgerId(), markDelete.entryId());
        positions.enterUnacknowledged(since);
    }

    private void onAnswered(HeldAnswer answer) {
        synchronized (lock) {
            answer.correct();
        }
        PositionSet undone = answer.undoneIn(context);
        PositionSet notHeld;
        synchronized (lock) {
            // Once more: the watch and the dispatcher went on meanwhile.
            answer.correct();
            Position markDelete = context.markDelete();
            answer.discardUpTo(markDelete);
            cursor.onMarkDelete(markDelete);
            believe(answer, undone);
            notHeld = answer.notHeld();
            moves.removeOverridden(notHeld);
            sought.seek(notHeld);
            positions.enterAll(answer.held());
            positions.leaveToDaemon(answer.leftToDaemon());
            // The mark-delete position may have passed them meanwhile, or a pending frame say otherwise.
            positions.settleAll(undone, answer.acknowledged());
            positions.knowReported(answer.acknowledged());
            stream.opened();
            intake.decide(answer.held());
            moves.tellAll();
            alarm.arm(clock.millis());
            readAhead.open();
            stream.answerDone();
        }
        context.framesWaiting();
        lost.readAgain(notHeld);
        context.readMore();
        deletes.go();
    }

    /**
     * Decides which of the daemon's acknowledgements still hold. The cursor lacks {@code undone}: a crash made it forget
     * them, or, if this tracker has seen one deleted, a reset took it back.
     */
    @GuardedBy("lock")
    private void believe(HeldAnswer answer, PositionSet undone) {
        if (positions.wasSeenDeleted(undone)) {
            cursor.onReset();
        } else {
            cursor.noticeReset();
        }
        if (!seal.holdsAnswer()) {
            answer.acknowledged().clear();
            undone.clear();
        } else if (seal.isOutdated()) {
            // The daemon forgets them at the present seal.
            PositionBitmaps known = answer.acknowledged().toPositions();
            if (!known.isEmpty()) {
                outbox.acknowledge(known);
            }
            stream.reopen();
        }
        seal.heard();
    }

    // ---- later frames -----------------------------------------------------------------------------------------------

    public void onDue(Frame.Due due) {
        Records records = due.records();
        long then = seal.generation();
        boolean[] deleted = new boolean[records.size()];
        for (int i = 0; i < deleted.length; i++) {
            deleted[i] = context.isDeleted(records.ledgerId(i), records.entryId(i));
        }
        boolean isDue;
        boolean signal;
        synchronized (lock) {
            if (!stream.isOpen() || lifecycle.isFinished()) {
                return;
            }
            // If unsure, the entry is handed out when due, and Pulsar omits deleted ones.
            boolean sure = seal.stood(then);
            PositionBitmaps acknowledged = new PositionBitmaps();
            for (int i = 0; i < deleted.length; i++) {
                if (deleted[i] && sure) {
                    near.freeCredit();
                    acknowledged.add(records.ledgerId(i), records.entryId(i));
                } else {
                    moves.push(records.ledgerId(i), records.entryId(i), records.deliverAtMs(i));
                }
            }
            if (!acknowledged.isEmpty()) {
                cursor.acknowledge(acknowledged);
            }
            isDue = alarm.isDue(clock.millis());
            signal = stream.noteAny();
        }
        act(isDue, signal);
    }

    /** Acts on decisions made under the lock, without it. */
    private void act(boolean isDue, boolean signal) {
        if (isDue) {
            context.readMore();
        }
        if (signal) {
            context.framesWaiting();
        }
    }

    public void onDurable(long seq) {
        CompletableFuture<Void> cleared;
        boolean resume;
        synchronized (lock) {
            if (!stream.durable(seq)) {
                return;
            }
            gate.account();
            resume = gate.mayResume();
            cleared = stream.takeClearingUpTo(seq);
        }
        cleared.complete(null);
        lifecycle.noticeClosed();
        if (resume) {
            context.readMore();
        }
    }

    public void onUnheld(Frame.Unheld unheld) {
        lost.onUnheld(unheld.positions());
    }

    /**
     * Cancels messages, or reports their state. ACK has the cancelled ones, too. The answer comes on any thread, once the
     * cursor's record agrees.
     */
    public CompletableFuture<Frame.Cancelled> onCancel(Frame.Cancel cancel) {
        Inquiry.Look look = Inquiry.look(context, seal, cancel.positions());
        Frame.Cancelled decided;
        boolean signal;
        synchronized (lock) {
            if (!stream.takesMore() || lifecycle.isEnding()) {
                return CompletableFuture.completedFuture(Frame.Cancelled.notYet());
            }
            decided = cancellations.decide(cancel, look);
            alarm.arm(clock.millis());
            signal = stream.noteAny();
        }
        if (signal) {
            context.framesWaiting();
        }
        List<Position> toStore = Cancellations.toStore(context, cancel, decided);
        if (toStore.isEmpty()) {
            return CompletableFuture.completedFuture(decided);
        }
        CompletableFuture<Frame.Cancelled> answer = new CompletableFuture<>();
        context.deleteAndStore(toStore, look.generation(), stored -> answer.complete(Cancellations.answer(decided, stored)));
        return answer;
    }

    /**
     * Moves messages to other times, or reports their state. MOVE has the new times, too. The answer comes on any thread,
     * once they are stored.
     */
    public CompletableFuture<Frame.Rescheduled> onReschedule(Frame.Reschedule reschedule) {
        Inquiry.Look look = Inquiry.look(context, seal, Moves.asked(reschedule));
        CompletableFuture<Frame.Rescheduled> answer = new CompletableFuture<>();
        synchronized (lock) {
            if (!stream.takesMore() || lifecycle.isEnding()) {
                return CompletableFuture.completedFuture(Frame.Rescheduled.notYet());
            }
            Moves.Decision decision = moves.decide(reschedule, look);
            if (decision.records().isEmpty()) {
                return CompletableFuture.completedFuture(decision.answer());
            }
            overrideLog.store(decision.records(), stored -> {
                onMoved();
                answer.complete(Moves.answer(decision.answer(), stored));
            });
        }
        overrideLog.go();
        return answer;
    }

    private void onMoved() {
        boolean isDue;
        boolean signal;
        synchronized (lock) {
            isDue = alarm.isDue(clock.millis());
            signal = stream.noteAny();
        }
        act(isDue, signal);
    }

    /** Continues once former owners' overrides are known: the daemon may be asked, and messages may leave. */
    private void onOverridesRead() {
        synchronized (lock) {
            if (stream.isOpen()) {
                moves.tellAll();
                stream.note();
            }
        }
        context.framesWaiting();
        context.readMore();
    }

    /** Looks into stored messages of any state. The answer comes on any thread. */
    public CompletableFuture<Frame.Peeked> onPeek(Frame.Peek peek) {
        CompletableFuture<Frame.Peeked> answer = new CompletableFuture<>();
        context.peek(peek, answer::complete);
        return answer;
    }

    /** Answers a request of the daemon about the subscription's index log. */
    public CompletableFuture<Frame.LogAnswer> onLogRequest(Frame.LogRequest request) {
        return context.log().answer(request);
    }

    // ---- the stream's end -----------------------------------------------------------------------------------------

    /** Handles a stream given up by the daemon (disk full, stale epoch, …) like a lost connection. */
    public void onStreamError(int code, String message) {
        synchronized (lock) {
            stream.refused(code, message, clock.millis());
            if (code == ProtocolException.STALE_EPOCH) {
                claim.lost();
            }
        }
        onDisconnected();
    }

    /** Handles a stream closed by the daemon, on request. */
    public void onClosed() {
        synchronized (lock) {
            stream.closed(lifecycle.isFinished());
        }
        lifecycle.noticeClosed();
    }

    /** Handles a lost connection: this broker gates all known entries that are not durable until the daemon returns. */
    public void onDisconnected() {
        CompletableFuture<Void> cleared;
        synchronized (lock) {
            stream.lost();
            pacer.tellBehind(0);
            if (positions.isDecided()) {
                intake.gateUndurable();
            }
            cleared = stream.takeClearing();
        }
        cleared.complete(null);
        lifecycle.noticeClosed();
        context.readMore();
    }
}
