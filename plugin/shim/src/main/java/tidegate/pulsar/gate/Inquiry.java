package tidegate.pulsar.gate;

import tidegate.pulsar.position.PositionSet;
import tidegate.pulsar.position.PositionStates;
import tidegate.pulsar.position.SoughtPositions;
import tidegate.pulsar.wire.Positions;

/**
 * Tells how positions stand that somebody wants to cancel or move. This broker alone knows: under the tracker's lock the
 * dispatcher has a position, or has not.
 */
final class Inquiry {
    /** The positions as the cursor has them, under one seal. */
    record Look(long generation, PositionSet absent, PositionSet deleted) {}

    /** The positions by state. One that is in no set is no message that waits. */
    record Standing(Positions waiting, Positions tooLate, Positions acknowledged) {}

    private final TrackerHost host;
    private final Seal seal;
    private final PositionStates positions;
    private final SoughtPositions sought;

    Inquiry(TrackerParts parts) {
        host = parts.host;
        seal = parts.seal;
        positions = parts.positions;
        sought = parts.sought;
    }

    /** Looks at the cursor. Needs no lock, as it may take long. */
    Look look(Positions asked) {
        long generation = seal.generation();
        PositionSet absent = new PositionSet();
        PositionSet deleted = new PositionSet();
        asked.forEach((ledgerId, entryId) -> {
            if (!host.exists(ledgerId, entryId)) {
                absent.add(ledgerId, entryId);
            } else if (host.isDeleted(ledgerId, entryId)) {
                deleted.add(ledgerId, entryId);
            }
        });
        return new Look(generation, absent, deleted);
    }

    /** True if the look still holds. Lock held. */
    boolean holds(Look look) {
        return seal.stood(look.generation()) && positions.isDecided();
    }

    /** Lock held. */
    Standing sort(Positions asked, Look look) {
        Positions waiting = new Positions();
        Positions tooLate = new Positions();
        Positions acknowledged = new Positions();
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
