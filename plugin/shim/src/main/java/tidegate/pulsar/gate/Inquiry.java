package tidegate.pulsar.gate;

import tidegate.pulsar.position.Overrides;
import tidegate.pulsar.position.PositionSet;
import tidegate.pulsar.position.SoughtPositions;
import tidegate.pulsar.position.TrackedPositions;
import tidegate.pulsar.wire.PositionBitmaps;

/**
 * Tells how positions stand that somebody wants to cancel or move. This broker alone knows: under the tracker's lock the
 * dispatcher has a position, or has not. Guarded by that lock.
 */
final class Inquiry {
    /** The positions as the cursor has them, under one seal. */
    record Look(long generation, PositionSet absent, PositionSet deleted) {}

    /** The positions by state. One that is in no set is no message that waits. */
    record Standing(PositionBitmaps waiting, PositionBitmaps tooLate, PositionBitmaps acknowledged) {}

    private final Seal seal;
    private final TrackedPositions positions;
    private final SoughtPositions sought;
    private final Overrides overrides;

    Inquiry(TrackerParts parts) {
        seal = parts.seal;
        positions = parts.positions;
        sought = parts.sought;
        overrides = parts.overrides;
    }

    /** Looks at the cursor. Needs no lock, as it may take long. */
    static Look look(TrackerContext context, Seal seal, PositionBitmaps asked) {
        long generation = seal.generation();
        PositionSet absent = new PositionSet();
        PositionSet deleted = new PositionSet();
        asked.forEach((ledgerId, entryId) -> {
            if (!context.exists(ledgerId, entryId)) {
                absent.add(ledgerId, entryId);
            } else if (context.isDeleted(ledgerId, entryId)) {
                deleted.add(ledgerId, entryId);
            }
        });
        return new Look(generation, absent, deleted);
    }

    /**
     * True if the look still holds, and tells all. It does not while the dispatcher reads a message whose move was not stored:
     * it may still wait, or go to a consumer.
     */
    boolean holds(Look look, PositionBitmaps asked) {
        if (!seal.stood(look.generation()) || !positions.isDecided()) {
            return false;
        }
        boolean[] isRead = {false};
        asked.forEach((ledgerId, entryId) -> isRead[0] |= sought.isAskedFor(ledgerId, entryId)
                && overrides.isUndone(ledgerId, entryId) && !look.deleted().contains(ledgerId, entryId));
        return !isRead[0];
    }

    /** Sorts the positions by their state. */
    Standing sort(PositionBitmaps asked, Look look) {
        PositionBitmaps waiting = new PositionBitmaps();
        PositionBitmaps tooLate = new PositionBitmaps();
        PositionBitmaps acknowledged = new PositionBitmaps();
        asked.forEach((ledgerId, entryId) -> {
            if (look.absent().contains(ledgerId, entryId)) {
                return;
            }
            if (look.deleted().contains(ledgerId, entryId) || positions.isSettling(ledgerId, entryId)) {
                acknowledged.add(ledgerId, entryId);
            } else if (positions.isHandedOut(ledgerId, entryId) || sought.isAskedFor(ledgerId, entryId)) {
                tooLate.add(ledgerId, entryId);
            } else if (positions.contains(ledgerId, entryId)) {
                waiting.add(ledgerId, entryId);
            }
        });
        return new Standing(waiting.optimized(), tooLate.optimized(), acknowledged.optimized());
    }
}
