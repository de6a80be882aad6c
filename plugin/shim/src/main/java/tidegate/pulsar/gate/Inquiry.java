package tidegate.pulsar.gate;

import tidegate.pulsar.position.PositionSet;
import tidegate.pulsar.position.TrackedPositions;
import tidegate.pulsar.wire.PositionBitmaps;

/**
 * The states of positions to be cancelled or moved. Only this broker knows them: under the tracker's lock the dispatcher has
 * a position, or has not. Guarded by that lock.
 */
final class Inquiry {
    /** The positions as the cursor has them, under one seal. */
    record Look(long generation, PositionSet absent, PositionSet deleted) {}

    /** The positions by state. One in no set is no waiting message. */
    record Standing(PositionBitmaps waiting, PositionBitmaps tooLate, PositionBitmaps acknowledged) {}

    private final Seal seal;
    private final TrackedPositions positions;

    Inquiry(TrackerParts parts) {
        seal = parts.seal;
        positions = parts.positions;
    }

    /** Looks at the cursor. Needs no lock: it may take long. */
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

    boolean holds(Look look) {
        return seal.stood(look.generation()) && positions.isDecided();
    }

    /**
     * Sorts the positions. A message being read again waits like any other: the tracker keeps a cancelled or moving one from
     * consumers.
     */
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
            } else if (positions.isHandedOut(ledgerId, entryId)) {
                tooLate.add(ledgerId, entryId);
            } else if (positions.contains(ledgerId, entryId)) {
                waiting.add(ledgerId, entryId);
            }
        });
        return new Standing(waiting.optimized(), tooLate.optimized(), acknowledged.optimized());
    }
}
