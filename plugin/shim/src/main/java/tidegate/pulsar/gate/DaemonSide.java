package tidegate.pulsar.gate;

import java.time.Clock;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import tidegate.pulsar.position.NearTier;
import tidegate.pulsar.position.PositionSet;
import tidegate.pulsar.position.PositionStates;
import tidegate.pulsar.position.SoughtPositions;
import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.Frame.Envelope;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.Positions;
import tidegate.pulsar.wire.ProtocolException;
import tidegate.pulsar.wire.Records;

/**
 * What a tracker tells the daemon and does about what the daemon says, a method a frame.
 *
 * <p>Rule kept here: skip only what the index surely holds. What HELD names is skipped; what it does not name, though it was
 * skipped before, is read again; and what is known acknowledged is believed under the seal that it was told under, no other.
 * Called by the link's thread, without any lock; it takes the tracker's, but not while it asks the cursor about many positions.
 */
public final class DaemonSide {
    private final Object lock;
    private final TrackerHost host;
    private final Clock clock;
    private final Seal seal;
    private final Claim claim;
    private final PositionStates positions;
    private final SoughtPositions sought;
    private final NearTier near;
    private final Outbox outbox;
    private final DaemonStream stream;
    private final SettlingDeletes deletes;
    private final CursorWatch cursor;
    private final AheadGate ahead;
    private final ReadGate gate;
    private final Alarm alarm;
    private final Intake intake;
    private final LostPositions lost;
    private final Ending ending;

    DaemonSide(TrackerParts parts, Intake intake, LostPositions lost, Ending ending) {
        lock = parts.lock;
        host = parts.host;
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
        ahead = parts.ahead;
        gate = parts.gate;
        alarm = parts.alarm;
        this.intake = intake;
        this.lost = lost;
        this.ending = ending;
    }

    // ---- telling --------------------------------------------------------------------------------------------------

    /** The OPEN that (re)starts the stream, or null if it must not be opened now. */
    public Frame.Open open() {
        synchronized (lock) {
            long nowMs = clock.millis();
            boolean nothingToTell = ending.isFinished() && outbox.isEmpty();
            if (!stream.mayOpen(nowMs) || nothingToTell || !claim.isOwned()) {
                return null;
            }
            return stream.open(claim, seal.generation(), ending.isFinished(), nowMs);
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
            return stream.takeFrames(streamId, ending.isFinished());
        }
    }

    // ---- the answer to OPEN ---------------------------------------------------------------------------------------

    public void onHeld(Frame.Held held) {
        synchronized (lock) {
            if (stream.isOpen() && !ending.isFinished()) {
                onHeldSince(held.held());
            }
            if (!stream.isOpening()) {
                return;
            }
        }
        stream.answer().collect(held);
        if (held.last()) {
            onAnswered(stream.answer());
        }
    }

    /**
     * The daemon has got entries from elsewhere since it has answered OPEN, as from a rebuild: they need not be read. What it
     * had not heard when it said so counts, and what was acknowledged is left to the cursor. Lock held.
     */
    private void onHeldSince(Positions held) {
        PositionSet since = new PositionSet();
        since.addAll(held);
        outbox.applyPendingTo(since, new PositionSet());
        Position markDelete = host.markDelete();
        since.discardUpTo(markDelete.ledgerId(), markDelete.entryId());
        positions.enterUnacknowledged(since);
    }

    private void onAnswered(HeldAnswer answer) {
        synchronized (lock) {
            answer.correct();
        }
        PositionSet undone = answer.undoneIn(host);
        PositionSet notHeld;
        synchronized (lock) {
            // Once more: the watch and the dispatcher went on meanwhile.
            answer.correct();
            Position markDelete = host.markDelete();
            answer.discardUpTo(markDelete);
            cursor.onMarkDelete(markDelete);
            believe(answer, undone);
            notHeld = answer.notHeld();
            sought.seek(notHeld);
            positions.enterAll(answer.held());
            positions.leaveToDaemon(answer.leftToDaemon());
            undone.forEach((ledgerId, entryId) -> {
                // Unless the mark-delete position has passed it meanwhile, or a pending frame says otherwise.
                if (answer.acknowledged().contains(ledgerId, entryId)) {
                    positions.settle(ledgerId, entryId);
                }
            });
            positions.knowReported(answer.acknowledged());
            stream.opened();
            intake.decide(answer.held());
            ahead.open();
            stream.answerDone();
        }
        host.framesWaiting();
        lost.readAgain(notHeld);
        host.readMore();
        deletes.go();
    }

    /**
     * Decides whether what the daemon knows acknowledged is still so. {@code undone} is what of it the cursor does not have as
     * deleted: a crash made it forget that, unless this tracker has seen it deleted, which only a reset takes back.
     */
    private void believe(HeldAnswer answer, PositionSet undone) {
        boolean[] seenDeleted = {false};
        undone.forEach((ledgerId, entryId) ->
                seenDeleted[0] |= positions.isReported(ledgerId, entryId) && !positions.isSettling(ledgerId, entryId));
        if (seenDeleted[0]) {
            cursor.onReset();
        } else {
            cursor.noticeReset();
        }
        if (!answer.isOf(seal.generation())) {
            answer.acknowledged().clear();
            undone.clear();
        }
    }

    // ---- what comes later -----------------------------------------------------------------------------------------

    public void onDue(Frame.Due due) {
        Records records = due.records();
        long then = seal.generation();
        boolean[] deleted = new boolean[records.size()];
        for (int i = 0; i < deleted.length; i++) {
            deleted[i] = host.isDeleted(records.ledgerId(i), records.entryId(i));
        }
        boolean isDue;
        boolean signal;
        synchronized (lock) {
            if (!stream.isOpen() || ending.isFinished()) {
                return;
            }
            // Else it is handed out when due, and Pulsar leaves out what is deleted.
            boolean sure = seal.stood(then);
            Positions acknowledged = new Positions();
            for (int i = 0; i < deleted.length; i++) {
                if (deleted[i] && sure) {
                    near.freeCredit();
                    acknowledged.add(records.ledgerId(i), records.entryId(i));
                } else {
                    positions.push(records.ledgerId(i), records.entryId(i), records.deliverAtMs(i));
                }
            }
            if (!acknowledged.isEmpty()) {
                cursor.acknowledge(acknowledged);
            }
            isDue = alarm.isDue(clock.millis());
            signal = stream.noteAny();
        }
        if (isDue) {
            host.readMore();
        }
        if (signal) {
            host.framesWaiting();
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
        ending.noticeClosed();
        if (resume) {
            host.readMore();
        }
    }

    public void onUnheld(Frame.Unheld unheld) {
        lost.onUnheld(unheld.positions());
    }

    /** What the daemon asks about the subscription's index log. */
    public CompletableFuture<Frame.LogAnswer> onLogRequest(Frame.LogRequest request) {
        return host.log().answer(request);
    }

    // ---- the stream's end -----------------------------------------------------------------------------------------

    /** The daemon gave the stream up (disk full, stale epoch, …): like a lost connection, for this stream alone. */
    public void onStreamError(int code, String message) {
        synchronized (lock) {
            stream.refused(code, message, clock.millis());
            if (code == ProtocolException.STALE_EPOCH) {
                claim.lost();
            }
        }
        onDisconnected();
    }

    /** The daemon has closed the stream, as it was asked to. */
    public void onClosed() {
        synchronized (lock) {
            stream.closed(ending.isFinished());
        }
        ending.noticeClosed();
    }

    /** The connection is gone. What is known and not durable is gated here until the daemon is back. */
    public void onDisconnected() {
        CompletableFuture<Void> cleared;
        synchronized (lock) {
            stream.lost();
            if (positions.isDecided()) {
                outbox.gateHere(positions::gateAgain);
                alarm.arm();
            }
            cleared = stream.takeClearing();
        }
        cleared.complete(null);
        ending.noticeClosed();
        host.readMore();
    }
}
