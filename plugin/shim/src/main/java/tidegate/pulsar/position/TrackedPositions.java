package tidegate.pulsar.position;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.ArrayList;
import java.util.List;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.PositionBitmaps;
import tidegate.pulsar.wire.Records;

/**
 * The positions that a tracker has met, by state.
 *
 * <p>Each position is in at most one of these states; only a settling one is reported, too:
 * <ul>
 * <li><b>undecided</b>: read and tracked before the daemon's HELD, which decides it;
 * <li><b>held</b>: the daemon will push it (DUE) when nearly due;
 * <li><b>near</b>: this broker hands it out once the clock has passed its deliver_at ({@link NearTier});
 * <li><b>handed out</b>: given to the dispatcher, perhaps to a consumer; not yet known acknowledged
 * ({@link HandedOutPositions});
 * <li><b>sought</b> or <b>asked for</b>: without a holder; read again, then tracked anew ({@link SoughtPositions});
 * <li><b>moving</b>: its new time is not stored yet; nobody reads it or hands it out ({@link Overrides});
 * <li><b>settling</b>: acknowledged before a failover that the cursor forgot; being deleted in the cursor again;
 * <li><b>reported</b>: acknowledged, known so to the daemon, and above the persisted mark-delete position;
 * <li><b>doubtful</b>: reported before a possible reset of the cursor, until the next watch.
 * </ul> {@link #contains} is true in all but the last two: the dispatcher skips exactly these.
 *
 * <p>Example: the dispatcher reads a message due tomorrow: contained, and an ADD to the daemon. HELD or DURABLE: held. Two
 * seconds before its time, DUE: near. At its time: handed out. The watch sees it deleted in the cursor: reported. The
 * persisted mark-delete position passes it: forgotten.
 *
 * <p>Invariants, tested by {@link #check}: a near, handed out or settling position is contained, and only one of the three;
 * a sought or asked-for one is contained, and neither handed out nor settling; a moving one is contained, and none of these;
 * none stays undecided after the decision. Any thread may use the {@link PositionView}; the tracker's lock guards all else.
 */
public final class TrackedPositions implements PositionView {
    private static final VarHandle ENTERED;

    static {
        try {
            ENTERED = MethodHandles.lookup().findVarHandle(TrackedPositions.class, "entered", long.class);
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    private final PositionSet contained = new PositionSet();
    /** Grows whenever a position becomes contained. */
    private long entered;
    private final HandedOutPositions handedOut = new HandedOutPositions();
    private final PositionSet settling = new PositionSet();
    private final PositionSet reported = new PositionSet();
    private final PositionSet doubtful = new PositionSet();
    private final NearTier near;
    private final SoughtPositions sought;
    private final Overrides overrides;
    private Records undecided = new Records();
    /** True if entries are decided at once: HELD has come, or the wait for it is over. */
    private volatile boolean decided;

    public TrackedPositions(NearTier near, SoughtPositions sought, Overrides overrides) {
        this.near = near;
        this.sought = sought;
        this.overrides = overrides;
    }

    // ---- questions ------------------------------------------------------------------------------------------------

    @Override
    public boolean contains(long ledgerId, long entryId) {
        return contained.contains(ledgerId, entryId);
    }

    @Override
    public PositionSet containedPositions() {
        return contained;
    }

    @Override
    public PositionSet handedOutPositions() {
        return handedOut.members();
    }

    public boolean isDecided() {
        return decided;
    }

    public boolean isHandedOut(long ledgerId, long entryId) {
        return handedOut.contains(ledgerId, entryId);
    }

    /** True if a consumer got the position, and no consumer has gone since. */
    public boolean isGiven(long ledgerId, long entryId) {
        return handedOut.isGiven(ledgerId, entryId);
    }

    public int redeliveryCount(long ledgerId, long entryId) {
        return handedOut.redeliveryCount(ledgerId, entryId);
    }

    /** True if the dispatcher skips it only because the daemon will hand it out. */
    public boolean isLeftToDaemon(long ledgerId, long entryId) {
        return contained.contains(ledgerId, entryId) && !isHere(ledgerId, entryId) && !settling.contains(ledgerId, entryId)
                && !overrides.isMoving(ledgerId, entryId);
    }

    /** Those of {@code asked} that are {@link #isLeftToDaemon left to the daemon}. */
    public PositionSet leftToDaemon(PositionBitmaps asked) {
        PositionSet left = new PositionSet();
        asked.forEach((ledgerId, entryId) -> {
            if (isLeftToDaemon(ledgerId, entryId)) {
                left.add(ledgerId, entryId);
            }
        });
        return left;
    }

    @Override
    public boolean isNear(long ledgerId, long entryId) {
        return near.contains(ledgerId, entryId);
    }

    /** True if this broker gates the position, or has handed it out. */
    public boolean isHere(long ledgerId, long entryId) {
        return near.contains(ledgerId, entryId) || handedOut.contains(ledgerId, entryId);
    }

    public boolean isSettling(long ledgerId, long entryId) {
        return settling.contains(ledgerId, entryId);
    }

    public boolean isReported(long ledgerId, long entryId) {
        return !reported.isEmpty() && reported.contains(ledgerId, entryId);
    }

    /** True if any of these was seen deleted: reported and not settling. */
    public boolean wasSeenDeleted(PositionSet any) {
        boolean[] seen = {false};
        any.forEach((ledgerId, entryId) -> seen[0] |= isReported(ledgerId, entryId) && !isSettling(ledgerId, entryId));
        return seen[0];
    }

    public boolean isDoubtful(long ledgerId, long entryId) {
        return !doubtful.isEmpty() && doubtful.contains(ledgerId, entryId);
    }

    @Override
    public boolean hasUnseen() {
        return !handedOut.members().isEmpty() || !reported.isEmpty() || !doubtful.isEmpty() || !settling.isEmpty()
                || sought.hasAsked() || !decided;
    }

    @Override
    public long delayed() {
        return Math.max(0, contained.size() - handedOut.members().size() - settling.size());
    }

    /** The last {@code max} waiting positions, here or with the daemon, before that one. */
    public PositionSet waitingBefore(Position before, int max) {
        PositionSet waiting = new PositionSet();
        contained.forWhileBefore(before.ledgerId(), before.entryId(), (ledgerId, entryId) -> {
            if (!handedOut.contains(ledgerId, entryId) && !settling.contains(ledgerId, entryId)
                    && !overrides.isMoving(ledgerId, entryId)) {
                waiting.add(ledgerId, entryId);
            }
            return waiting.size() < max;
        });
        return waiting;
    }

    public Position lowest() {
        List<Position> first = new ArrayList<>(1);
        contained.forFirst(1, (ledgerId, entryId) -> first.add(new Position(ledgerId, entryId)));
        return first.isEmpty() ? null : first.get(0);
    }

    @Override
    public long contained() {
        return contained.size();
    }

    public long handedOut() {
        return handedOut.members().size();
    }

    public long settling() {
        return settling.size();
    }

    public int undecided() {
        return undecided.size();
    }

    @Override
    public void forEachUnseen(PositionBitmaps.Visitor visitor) {
        handedOut.members().forEach(visitor);
        sought.forEachAsked(visitor);
        doubtful.forEach(visitor);
    }

    @Override
    public Position lowestUnseen(PositionPredicate test) {
        Position handed = handedOut.members().first(test);
        Position asked = sought.firstAsked(test);
        return asked == null || handed != null && handed.compareTo(asked) < 0 ? handed : asked;
    }

    public void forFirstSettling(int max, PositionBitmaps.Visitor visitor) {
        settling.forFirst(max, visitor);
    }

    /** The highest reported position, as ledger and entry; null without one. */
    public long[] lastReported() {
        return reported.last();
    }

    public PositionSet allContained() {
        PositionSet all = new PositionSet();
        all.addAll(contained);
        return all;
    }

    /** The positions that the broker hands out up to that time, or has handed out. */
    public PositionSet inFlight(long untilMs) {
        PositionSet all = near.dueUpTo(untilMs);
        all.addAll(handedOut.members());
        return all;
    }

    /** Contained positions neither in {@code others} nor here. Changes {@code others}. */
    public PositionSet lostBut(PositionSet others) {
        others.addAll(near.members());
        others.addAll(handedOut.members());
        others.addAll(settling);
        overrides.addMovingTo(others);
        sought.addTo(others);
        for (int i = 0; i < undecided.size(); i++) {
            others.add(undecided.ledgerId(i), undecided.entryId(i));
        }
        PositionSet lost = allContained();
        lost.removeAll(others);
        return lost;
    }

    @Override
    public long entered() {
        return (long) ENTERED.getOpaque(this);
    }

    @Override
    public void forEachContainedIn(long ledgerId, long[] words, PositionBitmaps.Visitor visitor) {
        contained.forEachIn(ledgerId, words, visitor);
    }

    @Override
    public void clearKnownIn(long ledgerId, long[] words) {
        contained.clearIn(ledgerId, words);
        reported.clearIn(ledgerId, words);
    }

    // ---- arrivals and departures ----------------------------------------------------------------------------------

    /** Makes a position contained; false if it was. */
    public boolean enter(long ledgerId, long entryId) {
        noteEntered();
        return contained.add(ledgerId, entryId);
    }

    private void noteEntered() {
        ENTERED.setOpaque(this, entered + 1);
    }

    public void enterAll(PositionSet held) {
        noteEntered();
        contained.addAll(held);
        sought.dropAll(held);
    }

    /**
     * Enters all held positions not known acknowledged. Held ones that did not move are still read again: this broker has
     * ignored any push of them. Changes {@code held}.
     */
    public void enterUnacknowledged(PositionSet held) {
        held.removeAll(reported);
        held.removeAll(doubtful);
        overrides.removeUndoneFrom(held);
        enterAll(held);
    }

    public void leave(long ledgerId, long entryId) {
        contained.remove(ledgerId, entryId);
    }

    public void leaveSought(PositionSet deleted) {
        deleted.forEach((ledgerId, entryId) -> {
            if (sought.drop(ledgerId, entryId)) {
                contained.remove(ledgerId, entryId);
            }
        });
    }

    /** Notes a contained entry that cannot be decided yet. */
    public void postpone(long ledgerId, long entryId, long deliverAtMs) {
        undecided.add(ledgerId, entryId, deliverAtMs);
    }

    /** Decides everything at once from now on; returns the undecided entries. */
    public Records decide() {
        decided = true;
        Records entries = undecided;
        undecided = new Records();
        return entries;
    }

    public void gate(long ledgerId, long entryId, long deliverAtMs) {
        near.add(ledgerId, entryId, deliverAtMs, false);
    }

    /**
     * Takes an entry pushed by the daemon. Its credit is free at once if the broker has the entry, or knows it acknowledged.
     */
    public void push(long ledgerId, long entryId, long deliverAtMs) {
        if (handedOut.contains(ledgerId, entryId) || settling.contains(ledgerId, entryId)
                || overrides.isMoving(ledgerId, entryId) || !near.add(ledgerId, entryId, deliverAtMs, true)) {
            near.freeCredit();
        } else {
            enter(ledgerId, entryId);
            sought.drop(ledgerId, entryId);
        }
    }

    public void popHead(PositionBitmaps.Visitor visitor) {
        long ledgerId = near.headLedgerId();
        long entryId = near.headEntryId();
        handOut(ledgerId, entryId);
        visitor.visit(ledgerId, entryId);
    }

    void handOut(long ledgerId, long entryId) {
        near.remove(ledgerId, entryId);
        sought.find(ledgerId, entryId);
        handedOut.add(ledgerId, entryId);
    }

    /** Notes that a consumer gets the position. {@code redeliveryCount}: see {@link TrackerContext#redeliveryCount}. */
    public void give(long ledgerId, long entryId, int redeliveryCount) {
        near.remove(ledgerId, entryId);
        sought.find(ledgerId, entryId);
        handedOut.give(ledgerId, entryId, redeliveryCount);
    }

    /** Notes that a consumer has gone: any position given to a consumer may be delivered again. */
    public void forgetGiven() {
        handedOut.forgetGiven();
    }

    /** Awaits the acknowledgement of a handed out position; without one, {@link #takeBackAwaited} makes it due again. */
    public void await(long ledgerId, long entryId) {
        handedOut.await(ledgerId, entryId);
    }

    /** Makes the positions awaited since before the last call due again; true if there are any. */
    public boolean takeBackAwaited() {
        PositionSet over = handedOut.nextAwaited();
        over.forEach((ledgerId, entryId) -> takeBack(ledgerId, entryId, NearTier.AT_ONCE_MS));
        return !over.isEmpty();
    }

    /** Makes a handed out position near again; false if it was not handed out. */
    public boolean takeBack(long ledgerId, long entryId, long deliverAtMs) {
        return handedOut.remove(ledgerId, entryId) && near.add(ledgerId, entryId, deliverAtMs, false);
    }

    /**
     * Takes back everything forgotten by the dispatcher: asked-for positions are sought again, handed out ones near and due
     * by any clock, until a later read brings the true time.
     */
    public void takeAllBack() {
        sought.takeBack();
        handedOut.members().forEach((ledgerId, entryId) -> near.add(ledgerId, entryId, NearTier.AT_ONCE_MS, false));
        handedOut.clear();
    }

    /** Gates an entry that the daemon may lack, unless the broker has handed it out or finished with it. */
    public void gateAgain(long ledgerId, long entryId, long deliverAtMs) {
        if (contained.contains(ledgerId, entryId) && !handedOut.contains(ledgerId, entryId)
                && !settling.contains(ledgerId, entryId) && !overrides.isMoving(ledgerId, entryId)) {
            near.add(ledgerId, entryId, deliverAtMs, false);
        }
    }

    // ---- moves ----------------------------------------------------------------------------------------------------

    /** Begins moves: the dispatcher skips these messages until their move ends, or they are acknowledged. */
    public void move(Records records) {
        for (int i = 0; i < records.size(); i++) {
            near.remove(records.ledgerId(i), records.entryId(i));
            sought.find(records.ledgerId(i), records.entryId(i));
            overrides.move(records.ledgerId(i), records.entryId(i), records.deliverAtMs(i));
        }
        // An entry's former time would let it out too early.
        near.dropStale();
    }

    /** Notes that a move is stored: true if the message must be handed out at the new time. */
    public boolean settleMove(long ledgerId, long entryId, long deliverAtMs) {
        return overrides.settle(ledgerId, entryId, deliverAtMs);
    }

    /** Notes that these moves are surely not stored: the messages are read again, for their times. */
    public PositionSet undoMove(Records records) {
        PositionSet undone = new PositionSet();
        for (int i = 0; i < records.size(); i++) {
            if (overrides.undo(records.ledgerId(i), records.entryId(i), records.deliverAtMs(i))
                    && contained.contains(records.ledgerId(i), records.entryId(i))) {
                undone.add(records.ledgerId(i), records.entryId(i));
            }
        }
        sought.seek(undone);
        return undone;
    }

    public void leaveToDaemon(PositionSet held) {
        held.forEach(near::remove);
    }

    // ---- acknowledgements -----------------------------------------------------------------------------------------

    /** Notes a position deleted in the cursor, as the daemon learns. */
    public void acknowledge(long ledgerId, long entryId) {
        near.remove(ledgerId, entryId);
        sought.find(ledgerId, entryId);
        handedOut.remove(ledgerId, entryId);
        settling.remove(ledgerId, entryId);
        contained.remove(ledgerId, entryId);
        overrides.leave(ledgerId, entryId);
        reported.add(ledgerId, entryId);
    }

    /** Notes that everything up to there is deleted in the cursor; returns the contained positions that leave. */
    public PositionBitmaps passUpTo(Position markDelete) {
        PositionBitmaps passed = contained.upTo(markDelete.ledgerId(), markDelete.entryId());
        passed.forEach(overrides::leave);
        discardUpTo(markDelete);
        reported.addAll(passed);
        return passed;
    }

    /** Notes that the daemon knows these acknowledged. */
    public void knowReported(PositionSet acknowledged) {
        reported.addAll(acknowledged);
    }

    /** Settles a position acknowledged before a failover and unknown to the cursor, until deleted there again. */
    public void settle(long ledgerId, long entryId) {
        near.remove(ledgerId, entryId);
        sought.find(ledgerId, entryId);
        handedOut.remove(ledgerId, entryId);
        contained.add(ledgerId, entryId);
        overrides.leave(ledgerId, entryId);
        settling.add(ledgerId, entryId);
    }

    /** Settles the positions of {@code undone} that are {@code acknowledged}, too. */
    public void settleAll(PositionSet undone, PositionSet acknowledged) {
        undone.forEach((ledgerId, entryId) -> {
            if (acknowledged.contains(ledgerId, entryId)) {
                settle(ledgerId, entryId);
            }
        });
    }

    /** Notes that a settling position is deleted in the cursor. */
    public void settled(long ledgerId, long entryId) {
        if (settling.remove(ledgerId, entryId)) {
            contained.remove(ledgerId, entryId);
        }
    }

    /** Notes that a settling position is not acknowledged after all: sought, as the dispatcher may have passed it. */
    public void unreport(long ledgerId, long entryId) {
        reported.remove(ledgerId, entryId);
        if (settling.remove(ledgerId, entryId)) {
            overrides.stay(ledgerId, entryId);
            PositionSet one = new PositionSet();
            one.add(ledgerId, entryId);
            sought.seek(one);
        }
    }

    /**
     * Doubts every known acknowledgement until the next look. Settling positions become sought: they are not deleted, and
     * not every loss of the seal makes the dispatcher rewind.
     */
    public void doubt() {
        doubtful.addAll(reported);
        reported.clear();
        sought.seek(settling);
        settling.forEach(overrides::stay);
        settling.clear();
    }

    /** Doubts all but the settling positions, which the cursor lacks so far; returns these, for the daemon. */
    public PositionBitmaps doubtSeen() {
        doubtful.addAll(reported);
        doubtful.removeAll(settling);
        reported.clear();
        reported.addAll(settling);
        return settling.toPositions();
    }

    /** Ends the doubt after a look at all doubtful positions: those not acknowledged will be read again. */
    public void endDoubt() {
        doubtful.clear();
    }

    public void discardUpTo(Position markDelete) {
        contained.discardUpTo(markDelete.ledgerId(), markDelete.entryId());
        handedOut.discardUpTo(markDelete.ledgerId(), markDelete.entryId());
        settling.discardUpTo(markDelete.ledgerId(), markDelete.entryId());
        sought.discardUpTo(markDelete);
        near.discardUpTo(markDelete.ledgerId(), markDelete.entryId());
        overrides.leaveMovingUpTo(markDelete);
    }

    /** Notes that the deletion of everything up to there survives a crash. */
    public void discardReportedUpTo(Position persisted) {
        reported.discardUpTo(persisted.ledgerId(), persisted.entryId());
    }

    // ---- the whole ------------------------------------------------------------------------------------------------

    /** Forgets everything but the overrides, which stay with the subscription; a moving message stays hidden. */
    public void clear() {
        contained.clear();
        overrides.addMovingTo(contained);
        handedOut.clear();
        settling.forEach(overrides::stay);
        settling.clear();
        reported.clear();
        doubtful.clear();
        sought.clear();
        near.clear();
        undecided.clear();
    }

    public void stop() {
        undecided.clear();
        near.clear();
    }

    public void trim() {
        contained.trim();
        handedOut.trim();
        settling.trim();
        reported.trim();
        doubtful.trim();
        sought.trim();
        near.trim();
    }

    public long memoryBytes() {
        return contained.memoryBytes() + handedOut.memoryBytes() + settling.memoryBytes() + reported.memoryBytes()
                + doubtful.memoryBytes() + sought.memoryBytes() + near.memoryBytes() + overrides.memoryBytes()
                + undecided.memoryBytes();
    }

    /** @throws IllegalStateException if an invariant does not hold */
    public void check() {
        near.members().forEach((ledgerId, entryId) -> {
            require(contained.contains(ledgerId, entryId), "near and not contained", ledgerId, entryId);
            require(!handedOut.contains(ledgerId, entryId), "near and handed out", ledgerId, entryId);
            require(!settling.contains(ledgerId, entryId), "near and settling", ledgerId, entryId);
        });
        handedOut.check();
        handedOut.members().forEach((ledgerId, entryId) -> {
            require(contained.contains(ledgerId, entryId), "handed out and not contained", ledgerId, entryId);
            require(!settling.contains(ledgerId, entryId), "handed out and settling", ledgerId, entryId);
        });
        PositionSet toRead = new PositionSet();
        sought.addTo(toRead);
        toRead.forEach((ledgerId, entryId) -> {
            require(contained.contains(ledgerId, entryId), "sought and not contained", ledgerId, entryId);
            require(!handedOut.contains(ledgerId, entryId), "sought and handed out", ledgerId, entryId);
            require(!settling.contains(ledgerId, entryId), "sought and settling", ledgerId, entryId);
        });
        Records moving = overrides.allMoving();
        for (int i = 0; i < moving.size(); i++) {
            long ledgerId = moving.ledgerId(i);
            long entryId = moving.entryId(i);
            require(contained.contains(ledgerId, entryId), "moving and not contained", ledgerId, entryId);
            require(!isHere(ledgerId, entryId) && !settling.contains(ledgerId, entryId) && !toRead.contains(ledgerId, entryId),
                    "moving, and somebody has it", ledgerId, entryId);
        }
        settling.forEach((ledgerId, entryId) ->
                require(contained.contains(ledgerId, entryId), "settling and not contained", ledgerId, entryId));
        require(!decided || undecided.isEmpty(), "undecided though everything is decided", -1, -1);
    }

    private static void require(boolean holds, String broken, long ledgerId, long entryId) {
        if (!holds) {
            throw new IllegalStateException(broken + ": " + ledgerId + ":" + entryId);
        }
    }
}
