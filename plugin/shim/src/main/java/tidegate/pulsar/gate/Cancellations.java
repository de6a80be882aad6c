package tidegate.pulsar.gate;

import java.util.ArrayList;
import java.util.List;
import tidegate.pulsar.position.PositionSet;
import tidegate.pulsar.position.TrackedPositions;
import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.PositionBitmaps;
import tidegate.pulsar.wire.Standing;

/**
 * Cancels messages: takes back those that no consumer has, as if acknowledged before a failover.
 *
 * <p>This broker alone decides: under the tracker's lock a position is either handed out, or settling, and so skipped, from
 * then on. After a crash with the daemon away, the next owner decides by the cursor's record, so the answer waits until the
 * record has {@link #toStore}. Guarded by the tracker's lock.
 */
final class Cancellations {
    private final TrackedPositions positions;
    private final Outbox outbox;
    private final CursorWatch cursor;
    private final Inquiry inquiry;

    Cancellations(TrackerParts parts, Inquiry inquiry) {
        positions = parts.positions;
        outbox = parts.outbox;
        cursor = parts.cursor;
        this.inquiry = inquiry;
    }

    /** Decides; cancels unless the frame only asks. */
    Frame.Cancelled decide(Frame.Cancel cancel, Inquiry.Look look) {
        cursor.noticeReset();
        boolean mayKeep = cancel.ask() || look.generation() != Seal.NONE;
        if (!mayKeep || !inquiry.holds(look)) {
            return Frame.Cancelled.notYet();
        }
        Inquiry.Standing standing = inquiry.sort(cancel.positions(), look);
        if (!cancel.ask() && !standing.waiting().isEmpty()) {
            settle(standing.waiting());
        }
        return new Frame.Cancelled(Standing.SETTLED, standing.waiting(), standing.tooLate(), standing.acknowledged());
    }

    /** The positions that the cursor's record must have before the answer counts. */
    static List<Position> toStore(TrackerContext context, Frame.Cancel cancel, Frame.Cancelled answer) {
        List<Position> all = new ArrayList<>();
        if (!cancel.ask()) {
            Position persisted = context.persistedMarkDelete();
            PositionBitmaps.Visitor visitor = (ledgerId, entryId) -> {
                Position position = new Position(ledgerId, entryId);
                if (position.compareTo(persisted) > 0) {
                    all.add(position);
                }
            };
            answer.cancelled().forEach(visitor);
            answer.acknowledged().forEach(visitor);
        }
        return all;
    }

    /** The answer to a decision, after the attempt to store the cursor. */
    static Frame.Cancelled answer(Frame.Cancelled decided, TrackerContext.Stored stored) {
        Standing standing = switch (stored) {
            case YES -> Standing.SETTLED;
            case NOT_NOW -> Standing.UNSTORED;
            case NO_ROOM -> Standing.NO_ROOM;
        };
        return new Frame.Cancelled(standing, decided.cancelled(), decided.tooLate(), decided.acknowledged());
    }

    private void settle(PositionBitmaps cancelled) {
        PositionSet reported = new PositionSet();
        PositionBitmaps told = new PositionBitmaps();
        told.addAll(cancelled);
        cancelled.forEach((ledgerId, entryId) -> {
            positions.settle(ledgerId, entryId);
            reported.add(ledgerId, entryId);
        });
        // A later read can skip it, once the cursor has it as deleted.
        positions.knowReported(reported);
        outbox.acknowledge(told.optimized());
    }
}
