package tidegate.pulsar;

import java.util.function.BooleanSupplier;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedger;
import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.PositionFactory;
import org.apache.bookkeeper.mledger.impl.ManagedCursorImpl;

/**
 * Where the dispatcher's cursor reads on, and how it gets past a backlog that need not be read.
 *
 * <p>Pulsar asks of one position after the other whether it is to be skipped, a hundred in a task of its own: of ten million
 * held ones, with code that a new owner has not compiled yet, for a second. Here a ledger is a walk over bitmaps.
 *
 * <p>Only what lies in one row from the read position on is passed: held, or acknowledged. What is lost of it later is read again
 * as if Pulsar had skipped it ({@link SoughtPositions}).
 */
final class ReadPosition {
    /** As many as Pulsar skips at once are not worth a seek. */
    private static final long WORTH = 100;
    /** Acknowledged positions between the held ones are looked at one by one, with the dispatcher's lock held. */
    private static final int ACKNOWLEDGED_MAX = 10_000;

    private final ManagedCursor cursor;
    private final BooleanSupplier reading;

    /** {@code reading} tells whether a read of the cursor is on its way, which would set its position. */
    ReadPosition(ManagedCursor cursor, BooleanSupplier reading) {
        this.cursor = cursor;
        this.reading = reading;
    }

    static ReadPosition of(ManagedCursor cursor) {
        return new ReadPosition(cursor, () -> isReading(cursor));
    }

    private static boolean isReading(ManagedCursor cursor) {
        return !(cursor instanceof ManagedCursorImpl known) || known.getPendingReadOpsCount() > 0 || known.hasPendingReadRequest();
    }

    /**
     * Passes what is held. The dispatcher's lock is held and a consumer connected: so nothing else sets the position, a reset of
     * the cursor neither.
     */
    void pass(PositionSet held) {
        Position from = cursor.getReadPosition();
        if (!isHeld(held, from) || reading.getAsBoolean()) {
            return;
        }
        ManagedLedger ledger = cursor.getManagedLedger();
        Position at = from;
        long passed = 0;
        int acknowledged = 0;
        while (true) {
            Position last;
            if (isHeld(held, at)) {
                long end = held.firstAbsent(at.getLedgerId(), at.getEntryId());
                passed += end - at.getEntryId();
                last = PositionFactory.create(at.getLedgerId(), end - 1);
            } else if (acknowledged++ < ACKNOWLEDGED_MAX && cursor.isMessageDeleted(at)) {
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
        if (passed >= WORTH) {
            cursor.seek(at);
        }
    }

    private static boolean isHeld(PositionSet held, Position position) {
        return position.getEntryId() >= 0 && held.contains(position.getLedgerId(), position.getEntryId());
    }
}
