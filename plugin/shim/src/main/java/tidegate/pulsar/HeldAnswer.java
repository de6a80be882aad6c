package tidegate.pulsar;

/**
 * The daemon's answer to OPEN: what it holds, and what it knows acknowledged under the seal that OPEN told.
 *
 * <p>It comes in parts, is corrected by what the daemon has not heard yet, then acted on once, and is gone. Invariant, walked by
 * {@link DaemonStream#check}: it is empty unless the stream is opening. While it comes in it is the link's thread's alone; all
 * else is guarded by the tracker's lock.
 */
final class HeldAnswer {
    private final Outbox outbox;
    private final PositionStates positions;
    private final NearTier near;
    /** The seal that OPEN told. */
    private long generation = Seal.NONE;
    /** What OPEN told to be in flight. */
    private PositionSet inFlightTold = new PositionSet();
    private PositionSet held = new PositionSet();
    private PositionSet acknowledged = new PositionSet();
    private boolean hadOne;

    HeldAnswer(Outbox outbox, PositionStates positions, NearTier near) {
        this.outbox = outbox;
        this.positions = positions;
        this.near = near;
    }

    /** OPEN is told, under that seal and with that in flight. */
    void expect(long seal, PositionSet inFlight) {
        generation = seal;
        inFlightTold = inFlight;
    }

    /** A part of it has come. Needs no lock. */
    void collect(Frame.Held part) {
        held.addAll(part.held());
        acknowledged.addAll(part.acknowledged());
    }

    /** Corrects it by what the daemon has not heard yet. */
    void correct() {
        outbox.applyPendingTo(held, acknowledged);
    }

    /** Leaves of it only what is above the mark-delete position. */
    void discardUpTo(TrackerHost.Position markDelete) {
        held.discardUpTo(markDelete.ledgerId(), markDelete.entryId());
        acknowledged.discardUpTo(markDelete.ledgerId(), markDelete.entryId());
    }

    /** What the daemon holds. */
    PositionSet held() {
        return held;
    }

    /** What the daemon knows acknowledged. */
    PositionSet acknowledged() {
        return acknowledged;
    }

    /** What the daemon knows acknowledged and the cursor does not have as deleted. May take long, so it needs no lock. */
    PositionSet undoneIn(TrackerHost host) {
        PositionSet undone = new PositionSet();
        acknowledged.forEach((ledgerId, entryId) -> {
            if (!host.isDeleted(ledgerId, entryId)) {
                undone.add(ledgerId, entryId);
            }
        });
        return undone;
    }

    /** Whether that seal is the one under which the daemon knows what it knows. */
    boolean isOf(long seal) {
        return generation == seal && generation != Seal.NONE;
    }

    /** Contained positions that nobody will hand out; none before the first answer, which decides about what was there. */
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
     * What the broker need not gate any more: the daemon holds it, and was not told that it is in flight. Not what is told it
     * once more as near; all that an outage leaves is that, until the next one.
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

    /** It has been acted on. */
    void done() {
        hadOne = true;
        drop();
    }

    /** The stream is gone: whatever has come of it says nothing. */
    void drop() {
        inFlightTold = new PositionSet();
        held = new PositionSet();
        acknowledged = new PositionSet();
    }

    boolean isEmpty() {
        return held.isEmpty() && acknowledged.isEmpty();
    }
}
