package tidegate.pulsar.gate;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.position.PositionView;
import tidegate.pulsar.position.TrackedPositions;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.PositionBitmaps;

/**
 * Learns from the tracker's cursor: acknowledgements, progress of mark-delete, and resets.
 *
 * <p>An acknowledgement is true under one {@link Seal}: the watch finds and reports it under that seal, and checks it again
 * when the seal is gone. Invariant, walked by {@link #check}: nothing is contained up to the mark-delete position seen last.
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

    /** Looks for the effects of a reset of the cursor, before any decision that relies on known acknowledgements. */
    void noticeReset() {
        if (!seal.isIntact() || seal.isWanted()) {
            onSealGone();
        }
    }

    /** A reset has taken the seal, or a skip or a cleared backlog, after which settling ones go on settling. */
    private void onSealGone() {
        // First, so that every look from now on is true of the new seal.
        boolean holds = seal.replace();
        outbox.dropAcknowledgements();
        if (holds) {
            LOG.info("[{}] The cursor was skipped: the daemon hears of its acknowledgements again", context.name());
            PositionBitmaps settling = positions.doubtSeen();
            if (!settling.isEmpty()) {
                outbox.acknowledge(settling);
            }
        } else {
            LOG.info("[{}] The cursor was reset or skipped: what was known acknowledged is looked at again", context.name());
            positions.doubt();
        }
        tellSeal();
    }

    /** The daemon hears of the new seal before anything else. */
    private void tellSeal() {
        deletes.abandon();
        stream.reopen();
        follow(context.markDelete());
    }

    /** In case a reset ever leaves the seal: it takes all acknowledgements back, so the highest one shows it. */
    void noticeLostReport() {
        long[] last = positions.lastReported();
        if (last != null && !positions.isSettling(last[0], last[1]) && !context.isDeleted(last[0], last[1])) {
            onReset();
        }
    }

    /** The cursor was reset, whatever its seal says: every known acknowledgement is checked before anything relies on it. */
    void onReset() {
        LOG.info("[{}] The cursor was reset: what was known acknowledged is looked at again", context.name());
        seal.renew();
        outbox.dropAcknowledgements();
        positions.doubt();
        tellSeal();
    }

    // ---- acknowledgements -----------------------------------------------------------------------------------------

    /** Positions that may have been acknowledged and are. Needs no lock, as it may take long. */
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
     * Reports the findings of {@link DeletedRanges}, without positions that were told meanwhile or that this tracker itself
     * deletes. False if the cursor has lost the seal under which they were found.
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

    /** The cursor has these as deleted. The outbox owns the positions from now on. */
    void acknowledge(PositionBitmaps found) {
        found.forEach(positions::acknowledge);
        outbox.acknowledge(found.optimized());
    }

    // ---- mark-delete ----------------------------------------------------------------------------------------------

    /** The cursor's mark-delete position, which may have moved either way. */
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

    /** True if the mark-delete position seen last is there, or further on; it may have gone back since. */
    boolean hasPassed(long ledgerId, long entryId) {
        return ledgerId < markDelete.ledgerId() || ledgerId == markDelete.ledgerId() && entryId <= markDelete.entryId();
    }

    /**
     * Reports the positions passed, too: the cursor may store its position a minute later, and end before. Unless the seal has
     * gone: then the position may be one that a reset has taken back.
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
