package tidegate.pulsar;

import java.util.function.BooleanSupplier;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedger;
import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.PositionFactory;
import tidegate.pulsar.position.PositionSet;

/**
 * Moves the read position of the dispatcher's cursor past a backlog that need not be read, by a walk over bitmaps: Pulsar
 * asks about each position, for ten million held ones a second long.
 *
 * <p>It passes only an unbroken row of held or acknowledged positions from the read position on. A position of the row that
 * is lost later is read again ({@code SoughtPositions}). The last held position stays for Pulsar, which needs a read that
 * ends at once, to rewind if its consumers have changed.
 */
final class ReadPosition {
    /** A row that Pulsar skips in one step is not worth a seek. */
    private static final long WORTH = 100;
    /** Acknowledged positions between held ones are checked singly under the dispatcher's lock. */
    private static final int ACKNOWLEDGED_MAX = 10_000;

    private final ManagedCursor cursor;
    private final BooleanSupplier reading;
    /** True if a read at the end of a terminated topic has failed. */
    private boolean hasFailedAtEnd;

    /** {@code reading}: true, under the dispatcher's lock, if a read that sets the position is under way. */
    ReadPosition(ManagedCursor cursor, BooleanSupplier reading) {
        this.cursor = cursor;
        this.reading = reading;
    }

    /**
     * Passes held positions. Needs the dispatcher's lock and a connected consumer, so that nothing else, not even a reset,
     * sets the position back. Skipping and clearing the backlog may move it forward meanwhile.
     */
    void pass(PositionSet held) {
        if (reading.getAsBoolean()) {
            return;
        }
        Position from = cursor.getReadPosition();
        if (!isHeld(held, from)) {
            return;
        }
        ManagedLedger ledger = cursor.getManagedLedger();
        Position at = from;
        Position lastHeld = from;
        long walked = 0;
        long worth = 0;
        int acknowledged = 0;
        while (true) {
            Position last;
            if (isHeld(held, at)) {
                long end = held.firstAbsent(at.getLedgerId(), at.getEntryId());
                walked += end - at.getEntryId();
                worth = walked;
                last = PositionFactory.create(at.getLedgerId(), end - 1);
                lastHeld = last;
            } else if (acknowledged++ < ACKNOWLEDGED_MAX && cursor.isMessageDeleted(at)) {
                walked++;
                last = at;
            } else {
                break;
            }
            Position next = ledger.getNextValidPosition(last);
            if (next.compareTo(last) <= 0) {
                break;
            }
            at = next;
        }
        if (worth > WORTH) {
            cursor.seek(lastHeld);
        }
    }

    /**
     * Passes replayed positions if the next read would begin there. Pulsar passes them during the replay, one by one, with a
     * warning each. Needs the dispatcher's lock.
     */
    void passReplayed(PositionSet replayed) {
        if (reading.getAsBoolean()) {
            return;
        }
        Position at = cursor.getReadPosition();
        ManagedLedger ledger = cursor.getManagedLedger();
        boolean passes = false;
        while (isHeld(replayed, at)) {
            long end = replayed.firstAbsent(at.getLedgerId(), at.getEntryId());
            Position last = PositionFactory.create(at.getLedgerId(), end - 1);
            Position next = ledger.getNextValidPosition(last);
            if (next.compareTo(last) <= 0) {
                break;
            }
            at = next;
            passes = true;
        }
        if (passes) {
            cursor.seek(at);
        }
    }

    /**
     * As {@code TrackerContext.isAtTerminatedEnd}. Needs the dispatcher's lock. Pulsar leaves the failed read at the end
     * waiting, and each later one fails because of it, with an error in the log and a retry 15 to 60 s later.
     */
    boolean isAtTerminatedEnd(boolean replaced) {
        if (!cursor.getManagedLedger().isTerminated() || reading.getAsBoolean()) {
            return false;
        }
        hasFailedAtEnd |= cursor.cancelPendingReadRequest();
        if (replaced || cursor.hasMoreEntries()) {
            hasFailedAtEnd = false;
        }
        return hasFailedAtEnd;
    }

    private static boolean isHeld(PositionSet held, Position position) {
        return position.getEntryId() >= 0 && held.contains(position.getLedgerId(), position.getEntryId());
    }
}
