package tidegate.pulsar.gate;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.position.PositionView;
import tidegate.pulsar.position.TrackedPositions;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.PositionBitmaps;

/**
 * Follows the tracker's cursor: acknowledgements, progress of mark-delete, and resets.
 *
 * <p>An acknowledgement is true under one {@link Seal}: the watch finds and reports it under that seal, and checks it again
 * when the seal is gone. Invariant, tested by {@link #check}: nothing is contained up to the mark-delete position seen last.
 * Guarded by the tracker's lock.
 */
final class CursorWatch {
    private static final Logger LOG = LoggerFactory.getLogger(CursorWatch.class);

    private final TrackerContext context;
    private final Seal seal;
    private final TrackedPositions positions;
    private final Outbox outbox;
    private final DaemonStream stream;
    private final SettlingDeletes deletes;
    private Position markDelete;

    CursorWatch(TrackerContext context, Seal seal, TrackedPositions positions, Outbox outbox, DaemonStream stream,
                SettlingDeletes deletes) {
        this.context = context;
        this.seal = seal;
        this.positions = positions;
        this.outbox = outbox;
        this.stream = stream;
        this.deletes = deletes;
        markDelete = context.markDelete();
    }

    // ---- resets ---------------------------------------------------------------------------------------------------

    /** Checks for a reset of the cursor, before any decision that relies on known acknowledgements. */
    void noticeReset() {
        if (!seal.isIntact() || seal.isWanted()) {
            onSealGone();
        }
    }

    /**
     * Handles a missing seal: a reset removed it, or a skip or a cleared backlog, after which settling positions still
     * settle.
     */
    private void onSealGone() {
        // First: every later look is then true of the new seal.
        boolean holds = seal.replace();
        outbox.dropAcknowledgements();
        if (holds) {
            LOG.info("[{}] The cursor was skipped: the daemon hears of its acknowledgements again", context.name());
            PositionBitmaps settling = positions.doubtSeen();
            if (!settling.isEmpty()) {
                outbox.acknowledge(settling);
            }
        } else {
            LOG.info("[{}] The cursor was reset or skipped: known acknowledgements are checked again", context.name());
            positions.doubt();
        }
        tellSeal();
    }

    /** The daemon must learn the new seal before anything else. */
    private void tellSeal() {
        deletes.abandon();
        stream.reopen();
        follow(context.markDelete());
    }

    /** Checks for a reset that left the seal, if that ever happens: the highest acknowledgement would be gone. */
    void noticeLostReport() {
        long[] last = positions.lastReported();
        if (last != null && !positions.isSettling(last[0], last[1]) && !context.isDeleted(last[0], last[1])) {
            onReset();
        }
    }

    /** Handles a reset of the cursor, whatever its seal: checks every known acknowledgement before anything relies on it. */
    void onReset() {
        LOG.info("[{}] The cursor was reset: known acknowledgements are checked again", context.name());
        seal.renew();
        outbox.dropAcknowledgements();
        positions.doubt();
        tellSeal();
    }

    // ---- acknowledgements -----------------------------------------------------------------------------------------

    /** Positions acknowledged, perhaps unseen. Needs no lock: it may take long. */
    static PositionBitmaps findAcknowledged(TrackerContext context, PositionView positions) {
        PositionBitmaps found = new PositionBitmaps();
        positions.forEachUnseen((ledgerId, entryId) -> {
            if (context.isDeleted(ledgerId, entryId)) {
                found.add(ledgerId, entryId);
            }
        });
        return found;
    }

    /** Reports the found positions, unless the cursor has lost the seal under which they were found. */
    void report(PositionBitmaps found, long then) {
        seal.watch();
        noticeReset();
        if (!seal.stood(then)) {
            return;
        }
        positions.endDoubt();
        if (!found.isEmpty()) {
            acknowledge(found);
        }
    }

    /**
     * Reports the findings of {@link DeletedRanges}, without positions reported meanwhile or deleted by this tracker itself.
     * False if the cursor has lost the seal under which they were found.
     */
    boolean reportCancelled(PositionBitmaps found, long then) {
        noticeReset();
        if (!seal.stood(then)) {
            return false;
        }
        PositionBitmaps cancelled = new PositionBitmaps();
        found.forEach((ledgerId, entryId) -> {
            // A settling one is reported, too.
            if (!positions.isReported(ledgerId, entryId) && !hasPassed(ledgerId, entryId)) {
                cancelled.add(ledgerId, entryId);
            }
        });
        if (!cancelled.isEmpty()) {
            acknowledge(cancelled);
        }
        return true;
    }

    /** Notes positions deleted in the cursor. The outbox owns {@code found} from now on. */
    void acknowledge(PositionBitmaps found) {
        found.forEach(positions::acknowledge);
        outbox.acknowledge(found.optimized());
    }

    // ---- mark-delete ----------------------------------------------------------------------------------------------

    /** Follows the cursor's mark-delete position, which may have moved either way. */
    void onMarkDelete(Position position) {
        if (position.equals(markDelete)) {
            return;
        }
        // Both follow the position, too.
        if (position.compareTo(markDelete) < 0) {
            onReset();
        } else if (!seal.isIntact()) {
            onSealGone();
        } else {
            follow(position);
        }
    }

    /** True if the last seen mark-delete position is there or beyond; it may have gone back since. */
    boolean hasPassed(long ledgerId, long entryId) {
        return ledgerId < markDelete.ledgerId() || ledgerId == markDelete.ledgerId() && entryId <= markDelete.entryId();
    }

    /**
     * Reports the passed positions, too: the cursor may end before it stores its position, a minute later. Not without the
     * seal: a reset may then have taken that position back.
     */
    private void follow(Position position) {
        markDelete = position;
        if (!seal.isIntact()) {
            positions.discardUpTo(position);
            return;
        }
        PositionBitmaps passed = positions.passUpTo(position);
        if (!passed.isEmpty()) {
            outbox.acknowledge(passed.optimized());
        }
    }

    /** @throws IllegalStateException if an invariant does not hold */
    void check() {
        Position lowest = positions.lowest();
        if (lowest != null && lowest.compareTo(markDelete) <= 0) {
            throw new IllegalStateException(lowest + " is contained below mark-delete " + markDelete);
        }
    }
}
