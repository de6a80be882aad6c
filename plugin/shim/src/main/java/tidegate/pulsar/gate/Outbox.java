package tidegate.pulsar.gate;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.Iterator;
import java.util.List;
import tidegate.pulsar.position.PositionSet;
import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.Frame.Envelope;
import tidegate.pulsar.wire.FrameCodec;
import tidegate.pulsar.wire.PositionBitmaps;
import tidegate.pulsar.wire.Records;

/**
 * One subscription's changes that are not durable with the daemon yet, sent or not, in order.
 *
 * <p>A change leaves only at the daemon's DURABLE for it. After a lost connection unconfirmed changes are sent again,
 * renumbered from 1; each is idempotent. Adds go to two open batches (near and far), as moves do, which close last when
 * frames go out. An add may thus follow a later ACK or MARK_DELETE, without effect, because the daemon ignores adds of
 * acknowledged positions; it never overtakes an earlier change.
 *
 * <p>To keep a long outage cheap, an ACK joins the last unsent ACK, and a MARK_DELETE, which only goes forward, replaces the
 * last unsent one, across adds. But no change passes one that takes back another: UNACK, CLEAR or CLOSE.
 *
 * <p>Example: add a, ack x, add b, ack y, mark-delete 5, mark-delete 9, unack x, ack z are sent as ACK {x y}, MARK_DELETE 9,
 * ADD {a b}, UNACK x, ACK z.
 *
 * <p>Invariants, tested by {@link #check}: sent changes are numbered upwards, and the counted entries are those that wait.
 * Guarded by the tracker's lock.
 */
public final class Outbox {
    private static final class Change {
        Frame frame;
        long seq;

        Change(Frame frame) {
            this.frame = frame;
        }

        int entries() {
            return frame instanceof Frame.Add add ? add.records().size() : 0;
        }
    }

    @FunctionalInterface
    public interface EntryVisitor {
        void visit(long ledgerId, long entryId, long deliverAtMs);
    }

    private Records far = new Records();
    private Records near = new Records();
    private Records moved = new Records(0);
    private Records movedNear = new Records(0);
    private final PositionSet inMoves = new PositionSet();
    private final Deque<Change> unsent = new ArrayDeque<>();
    private final Deque<Change> sent = new ArrayDeque<>();
    private long nextSeq = 1;
    private int closedEntries;

    boolean isEmpty() {
        return !hasUnsent() && sent.isEmpty();
    }

    boolean hasUnsent() {
        return openBatches() > 0 || !unsent.isEmpty();
    }

    private int openBatches() {
        return (far.isEmpty() ? 0 : 1) + (near.isEmpty() ? 0 : 1) + (moved.isEmpty() ? 0 : 1) + (movedNear.isEmpty() ? 0 : 1);
    }

    boolean hasUnsentAck() {
        return unsent.stream().anyMatch(change -> change.frame instanceof Frame.Ack ack && !ack.positions().isEmpty());
    }

    /** Entries not durable with the daemon. */
    int pendingEntries() {
        return closedEntries + far.size() + near.size();
    }

    void addFar(long ledgerId, long entryId, long deliverAtMs) {
        far.add(ledgerId, entryId, deliverAtMs);
        if (far.size() == FrameCodec.MAX_RECORDS) {
            far = closeBatch(far, false);
        }
    }

    void addNear(long ledgerId, long entryId, long deliverAtMs) {
        near.add(ledgerId, entryId, deliverAtMs);
        if (near.size() == FrameCodec.MAX_RECORDS) {
            near = closeBatch(near, true);
        }
    }

    /**
     * Moves a message to another time; {@code here}: this broker hands it out. The last word about a position counts, so it
     * must not overtake an earlier one in another batch, of moves or of adds.
     */
    void move(boolean here, long ledgerId, long entryId, long deliverAtMs) {
        if (inMoves.contains(ledgerId, entryId)) {
            closeAdds();
        }
        inMoves.add(ledgerId, entryId);
        Records batch = here ? movedNear : moved;
        batch.add(ledgerId, entryId, deliverAtMs);
        if (batch.size() == FrameCodec.MAX_RECORDS) {
            closeAdds();
        }
    }

    void acknowledge(PositionBitmaps positions) {
        Frame.Ack last = lastAck();
        if (last != null && last.positions().sizeBytes() + positions.sizeBytes() < FrameCodec.MAX_SET_BYTES) {
            last.positions().addAll(positions);
            return;
        }
        for (PositionBitmaps part : positions.cut(FrameCodec.MAX_SET_BYTES)) {
            unsent.add(new Change(new Frame.Ack(part)));
        }
    }

    private Frame.Ack lastAck() {
        for (Iterator<Change> i = unsent.descendingIterator(); i.hasNext(); ) {
            Change change = i.next();
            if (change.frame instanceof Frame.Ack ack) {
                return ack;
            }
            if (change.frame instanceof Frame.Unack || endsMerging(change)) {
                return null;
            }
        }
        return null;
    }

    private static boolean endsMerging(Change change) {
        return change.frame instanceof Frame.Clear || change.frame instanceof Frame.Close;
    }

    void unacknowledge(PositionBitmaps positions) {
        // An add must stay before the UNACK of a later acknowledgement.
        closeAdds();
        for (PositionBitmaps part : positions.cut(FrameCodec.MAX_SET_BYTES)) {
            unsent.add(new Change(new Frame.Unack(part)));
        }
    }

    void markDelete(long ledgerId, long entryId) {
        for (Change change : unsent) {
            if (change.frame instanceof Frame.Ack ack) {
                ack.positions().discardUpTo(ledgerId, entryId);
            }
        }
        removeLastMarkDelete();
        unsent.add(new Change(new Frame.MarkDelete(ledgerId, entryId)));
    }

    /** For a later mark-delete position, which covers the last unsent one. */
    private void removeLastMarkDelete() {
        for (Iterator<Change> i = unsent.descendingIterator(); i.hasNext(); ) {
            Change change = i.next();
            if (change.frame instanceof Frame.MarkDelete) {
                i.remove();
                return;
            }
            if (endsMerging(change)) {
                return;
            }
        }
    }

    /** Forgets the acknowledgements: they were true under a lost seal of the cursor. */
    void dropAcknowledgements() {
        sent.removeIf(change -> change.frame instanceof Frame.Ack);
        unsent.removeIf(change -> change.frame instanceof Frame.Ack);
    }

    /**
     * Prepares for a stream opened anew. OPEN has the mark-delete position, so older ones go; all moves follow its answer. A
     * finished tracker's CLOSE comes last. An add is near only while its position is in flight: a reset may have removed it.
     */
    void opened(PositionSet inFlight, boolean finished) {
        closeAdds();
        List<Change> changes = new ArrayList<>(unsent);
        unsent.clear();
        for (Change change : changes) {
            if (change.frame instanceof Frame.Add add && add.near()) {
                split(add.records(), inFlight);
            } else if (change.frame instanceof Frame.Ack ack) {
                // Joins the last: otherwise each vain connection would leave an ACK behind.
                acknowledge(ack.positions());
            } else if (!(change.frame instanceof Frame.MarkDelete || change.frame instanceof Frame.Close
                    || change.frame instanceof Frame.Move)) {
                unsent.add(change);
            }
        }
        if (finished) {
            unsent.add(new Change(new Frame.Close()));
        }
    }

    private void split(Records records, PositionSet inFlight) {
        Records here = new Records();
        Records gone = new Records();
        forEach(records, (ledgerId, entryId, deliverAtMs) ->
                (inFlight.contains(ledgerId, entryId) ? here : gone).add(ledgerId, entryId, deliverAtMs));
        if (!gone.isEmpty()) {
            unsent.add(new Change(new Frame.Add(false, gone)));
        }
        if (!here.isEmpty()) {
            unsent.add(new Change(new Frame.Add(true, here)));
        }
    }

    /** Forgets everything unsent, pointless after CLEAR, except the mark-delete position. */
    void clear() {
        far.clear();
        near.clear();
        moved.clear();
        movedNear.clear();
        inMoves.clear();
        unsent.removeIf(change -> !(change.frame instanceof Frame.MarkDelete));
        closedEntries = sent.stream().mapToInt(Change::entries).sum();
        unsent.add(new Change(new Frame.Clear()));
    }

    void close() {
        closeAdds();
        unsent.add(new Change(new Frame.Close()));
    }

    /** Everything not yet sent on this connection, numbered. */
    List<Envelope> takeUnsent(int stream) {
        closeAdds();
        List<Envelope> frames = new ArrayList<>(unsent.size());
        for (Change change; (change = unsent.poll()) != null; ) {
            change.seq = nextSeq++;
            sent.add(change);
            frames.add(new Envelope(stream, change.seq, change.frame));
        }
        return frames;
    }

    /** A CLOSE that goes out before the unsent changes, which wait for the stream's next opening. */
    List<Envelope> takeClose(int stream) {
        Change change = new Change(new Frame.Close());
        change.seq = nextSeq++;
        sent.add(change);
        List<Envelope> frames = new ArrayList<>();
        frames.add(new Envelope(stream, change.seq, change.frame));
        return frames;
    }

    /** The last change's seq, or the one it gets if the open batches are closed and sent now. */
    long lastSeq() {
        return nextSeq - 1 + unsent.size() + openBatches();
    }

    /** Removes everything up to {@code seq}: the daemon has it on disk. */
    void durable(long seq) {
        while (!sent.isEmpty() && sent.peek().seq <= seq) {
            closedEntries -= sent.poll().entries();
        }
    }

    /** Starts over after a lost connection: changes sent and not durable go out again, from seq 1. */
    void restart() {
        nextSeq = 1;
        while (!sent.isEmpty()) {
            unsent.addFirst(sent.pollLast());
        }
    }

    /** Marks every pending add as near, and visits the new ones and every pending move. For the time without a daemon. */
    void gateHere(EntryVisitor visitor) {
        closeAdds();
        gateHere(sent, visitor);
        gateHere(unsent, visitor);
    }

    private static void gateHere(Iterable<Change> changes, EntryVisitor visitor) {
        for (Change change : changes) {
            if (change.frame instanceof Frame.Add add && !add.near()) {
                forEach(add.records(), visitor);
                change.frame = new Frame.Add(true, add.records());
            } else if (change.frame instanceof Frame.Move move) {
                forEach(move.records(), visitor);
            }
        }
    }

    /**
     * Takes over another tracker's remaining changes of the same subscription; they come first. Its near tier is gone, so
     * its adds are ordinary now; the stored overrides have its moves. Drops changes that take others back: another owner may
     * have reported its acknowledgements since, and the cursor will refuse a refused deletion again.
     */
    void adopt(Outbox other) {
        other.closeAdds();
        other.restart();
        for (Iterator<Change> i = other.unsent.descendingIterator(); i.hasNext(); ) {
            Change change = i.next();
            if (change.frame instanceof Frame.Add add) {
                change.frame = new Frame.Add(false, add.records());
            }
            if (!(change.frame instanceof Frame.Unack || change.frame instanceof Frame.Move || endsMerging(change))) {
                unsent.addFirst(change);
                closedEntries += change.entries();
            }
        }
        other.unsent.clear();
        other.closedEntries = 0;
    }

    void forEachPendingAdd(EntryVisitor visitor) {
        for (Change change : pending()) {
            if (change.frame instanceof Frame.Add add) {
                forEach(add.records(), visitor);
            }
        }
        forEach(far, visitor);
        forEach(near, visitor);
    }

    /** Corrects the daemon's held positions by the changes still unknown to it. */
    void applyPendingTo(PositionSet held, PositionSet acknowledged) {
        for (Change change : pending()) {
            if (change.frame instanceof Frame.Ack ack) {
                held.removeAll(ack.positions());
                acknowledged.addAll(ack.positions());
            } else if (change.frame instanceof Frame.Unack unack) {
                acknowledged.removeAll(unack.positions());
            } else if (change.frame instanceof Frame.MarkDelete mark) {
                held.discardUpTo(mark.ledgerId(), mark.entryId());
                acknowledged.discardUpTo(mark.ledgerId(), mark.entryId());
            } else if (change.frame instanceof Frame.Clear) {
                held.clear();
                acknowledged.clear();
            }
        }
    }

    long memoryBytes() {
        long bytes = far.memoryBytes() + near.memoryBytes() + moved.memoryBytes() + movedNear.memoryBytes();
        for (Change change : pending()) {
            if (change.frame instanceof Frame.Add add) {
                bytes += add.records().memoryBytes();
            } else if (change.frame instanceof Frame.Move move) {
                bytes += move.records().memoryBytes();
            } else if (change.frame instanceof Frame.Ack ack) {
                bytes += ack.positions().sizeBytes();
            } else if (change.frame instanceof Frame.Unack unack) {
                bytes += unack.positions().sizeBytes();
            }
        }
        return bytes;
    }

    private List<Change> pending() {
        List<Change> all = new ArrayList<>(sent);
        all.addAll(unsent);
        return all;
    }

    /** @throws IllegalStateException if an invariant does not hold */
    void check() {
        long last = 0;
        int entries = 0;
        for (Change change : sent) {
            if (change.seq <= last || change.seq >= nextSeq) {
                throw new IllegalStateException("seq " + change.seq + " was sent after " + last + ", and " + nextSeq + " is next");
            }
            last = change.seq;
        }
        for (Change change : pending()) {
            entries += change.entries();
        }
        if (entries != closedEntries) {
            throw new IllegalStateException(entries + " entries wait, " + closedEntries + " are counted");
        }
    }

    private static void forEach(Records records, EntryVisitor visitor) {
        for (int i = 0; i < records.size(); i++) {
            visitor.visit(records.ledgerId(i), records.entryId(i), records.deliverAtMs(i));
        }
    }

    private void closeAdds() {
        far = closeBatch(far, false);
        near = closeBatch(near, true);
        closeMoves();
    }

    private void closeMoves() {
        inMoves.clear();
        if (!moved.isEmpty()) {
            unsent.add(new Change(new Frame.Move(false, moved)));
            moved = new Records(0);
        }
        if (!movedNear.isEmpty()) {
            unsent.add(new Change(new Frame.Move(true, movedNear)));
            movedNear = new Records(0);
        }
    }

    private Records closeBatch(Records records, boolean isNear) {
        if (records.isEmpty()) {
            return records;
        }
        unsent.add(new Change(new Frame.Add(isNear, records)));
        closedEntries += records.size();
        return new Records();
    }
}
