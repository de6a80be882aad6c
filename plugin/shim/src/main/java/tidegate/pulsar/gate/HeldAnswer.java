package tidegate.pulsar.gate;

import tidegate.pulsar.position.NearTier;
import tidegate.pulsar.position.PositionSet;
import tidegate.pulsar.position.TrackedPositions;
import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.Position;

/**
 * The daemon's answer to OPEN: the positions that it holds, and those that it knows acknowledged under OPEN's seal. It comes
 * in parts, is corrected by news still unknown to the daemon, is acted on once, then dropped.
 *
 * <p>Invariant, walked by {@link DaemonStream#check}: it is empty unless the stream is opening. While it arrives, it belongs
 * to the link's thread; the tracker's lock guards all else.
 */
final class HeldAnswer {
    private final Outbox outbox;
    private final TrackedPositions positions;
    private final NearTier near;
    /** The positions told in flight by OPEN. */
    private PositionSet inFlightTold = new PositionSet();
    private PositionSet held = new PositionSet();
    private PositionSet acknowledged = new PositionSet();
    private boolean hadOne;

    HeldAnswer(Outbox outbox, TrackedPositions positions, NearTier near) {
        this.outbox = outbox;
        this.positions = positions;
        this.near = near;
    }

    void expect(PositionSet inFlight) {
        inFlightTold = inFlight;
    }

    /** Needs no lock. */
    void collect(Frame.Held part) {
        held.addAll(part.held());
        acknowledged.addAll(part.acknowledged());
    }

    /** Corrects the answer by news still unknown to the daemon. */
    void correct() {
        outbox.applyPendingTo(held, acknowledged);
    }

    void discardUpTo(Position markDelete) {
        held.discardUpTo(markDelete.ledgerId(), markDelete.entryId());
        acknowledged.discardUpTo(markDelete.ledgerId(), markDelete.entryId());
    }

    PositionSet held() {
        return held;
    }

    PositionSet acknowledged() {
        return acknowledged;
    }

    /** Positions acknowledged for the daemon, and not deleted in the cursor. Needs no lock: it may take long. */
    PositionSet undoneIn(TrackerContext context) {
        PositionSet undone = new PositionSet();
        acknowledged.forEach((ledgerId, entryId) -> {
            if (!context.isDeleted(ledgerId, entryId)) {
                undone.add(ledgerId, entryId);
            }
        });
        return undone;
    }

    /** Contained positions that nobody will hand out; none before the first answer, which decides about the earlier ones. */
    PositionSet notHeld() {
        if (!hadOne) {
            return new PositionSet();
        }
        PositionSet others = new PositionSet();
        others.addAll(held);
        outbox.forEachPendingAdd((ledgerId, entryId, deliverAtMs) -> others.add(ledgerId, entryId));
        return positions.lostBut(others);
    }

    /**
     * Positions that the broker need not gate any more: the daemon holds them, and OPEN did not tell them in flight. Without
     * those about to be told again as near.
     */
    PositionSet leftToDaemon() {
        PositionSet left = new PositionSet();
        near.members().forEach((ledgerId, entryId) -> {
            if (held.contains(ledgerId, entryId) && !inFlightTold.contains(ledgerId, entryId)) {
                left.add(ledgerId, entryId);
            }
        });
        outbox.forEachPendingAdd((ledgerId, entryId, deliverAtMs) -> left.remove(ledgerId, entryId));
        return left;
    }

    void done() {
        hadOne = true;
        drop();
    }

    /** Drops the parts that came: the stream is gone. */
    void drop() {
        inFlightTold = new PositionSet();
        held = new PositionSet();
        acknowledged = new PositionSet();
    }

    boolean isEmpty() {
        return held.isEmpty() && acknowledged.isEmpty();
    }
}
