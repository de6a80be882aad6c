package tidegate.pulsar;

/**
 * Cancels messages: takes back those that no consumer has, as if they had been acknowledged before a failover.
 *
 * <p>This broker alone decides. Under the tracker's lock a position is either handed out or settling from then on; the
 * dispatcher skips settling positions, and nobody reads them. Invariant: a position answered as cancelled is in the outbox as
 * acknowledged, under a {@link Seal} that is stored, so that it stays acknowledged after a crash of broker, daemon or both. A
 * position answered as undecided is left unchanged.
 */
final class Cancels {
    /** The positions as the cursor has them, under one seal. */
    record Look(long generation, boolean isStored, PositionSet absent, PositionSet deleted) {}

    private final TrackerHost host;
    private final Seal seal;
    private final PositionStates positions;
    private final SoughtPositions sought;
    private final Outbox outbox;
    private final CursorWatch cursor;

    Cancels(TrackerHost host, Seal seal, PositionStates positions, SoughtPositions sought, Outbox outbox, CursorWatch cursor) {
        this.host = host;
        this.seal = seal;
        this.positions = positions;
        this.sought = sought;
        this.outbox = outbox;
        this.cursor = cursor;
    }

    /** Looks at the cursor. Needs no lock, as it may take long. */
    Look look(Frame.Cancel cancel) {
        long generation = seal.generation();
        PositionSet absent = new PositionSet();
        PositionSet deleted = new PositionSet();
        cancel.positions().forEach((ledgerId, entryId) -> {
            if (!host.exists(ledgerId, entryId)) {
                absent.add(ledgerId, entryId);
            } else if (host.isDeleted(ledgerId, entryId)) {
                deleted.add(ledgerId, entryId);
            }
        });
        boolean isStored = cancel.ask() || generation != Seal.NONE && host.isSealStored(generation);
        return new Look(generation, isStored, absent, deleted);
    }

    /** Decides, and also cancels unless the frame only asks. Guarded by the tracker's lock. */
    Frame.Cancelled decide(Frame.Cancel cancel, Look look) {
        cursor.noticeReset();
        if (!look.isStored() || !seal.stood(look.generation()) || !positions.isDecided()) {
            return Frame.Cancelled.notYet();
        }
        Positions cancelled = new Positions();
        Positions tooLate = new Positions();
        Positions acknowledged = new Positions();
        cancel.positions().forEach((ledgerId, entryId) -> {
            if (look.absent().contains(ledgerId, entryId)) {
                return;
            }
            if (look.deleted().contains(ledgerId, entryId) || positions.isSettling(ledgerId, entryId)) {
                acknowledged.add(ledgerId, entryId);
            } else if (positions.isHandedOut(ledgerId, entryId) || sought.isAskedFor(ledgerId, entryId)) {
                tooLate.add(ledgerId, entryId);
            } else if (positions.contains(ledgerId, entryId)) {
                cancelled.add(ledgerId, entryId);
            }
        });
        if (!cancel.ask() && !cancelled.isEmpty()) {
            settle(cancelled);
        }
        return new Frame.Cancelled(false, cancelled.optimized(), tooLate.optimized(), acknowledged.optimized());
    }

    private void settle(Positions cancelled) {
        PositionSet reported = new PositionSet();
        Positions told = new Positions();
        told.addAll(cancelled);
        cancelled.forEach((ledgerId, entryId) -> {
            positions.settle(ledgerId, entryId);
            reported.add(ledgerId, entryId);
        });
        // Lets a later read skip it, once the cursor has it as deleted.
        positions.knowReported(reported);
        outbox.acknowledge(told.optimized());
    }
}
