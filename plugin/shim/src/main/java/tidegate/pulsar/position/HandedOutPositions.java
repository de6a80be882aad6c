package tidegate.pulsar.position;

import java.util.NavigableMap;
import java.util.TreeMap;
import tidegate.pulsar.wire.Position;

/**
 * Positions given to the dispatcher and not known acknowledged, with the progress of each.
 *
 * <p>The dispatcher first reads a position, then gives it to a consumer. A second read means a redelivery, or an
 * acknowledgement under way: then the position is <b>awaited</b>. Any thread may ask for membership; the tracker's lock
 * guards all else.
 */
final class HandedOutPositions {
    /** A tree node, with its position and number. */
    private static final long REDELIVERED_BYTES = 80;

    private final PositionSet members = new PositionSet();
    /** Members given to consumers, since a consumer last left. */
    private final PositionSet given = new PositionSet();
    /** Each member's redelivery count when last given; absent: 0. */
    private final NavigableMap<Position, Integer> redelivered = new TreeMap<>();
    /** Members with an awaited acknowledgement: since the last {@link #nextAwaited}, and from before. */
    private PositionSet awaited = new PositionSet();
    private PositionSet awaitedLonger = new PositionSet();

    PositionSet members() {
        return members;
    }

    boolean contains(long ledgerId, long entryId) {
        return members.contains(ledgerId, entryId);
    }

    /** Adds a position with the dispatcher, not a consumer. */
    void add(long ledgerId, long entryId) {
        forget(ledgerId, entryId);
        members.add(ledgerId, entryId);
    }

    /** Gives a position to a consumer. {@code redeliveryCount}: see {@code TrackerContext.redeliveryCount}. */
    void give(long ledgerId, long entryId, int redeliveryCount) {
        add(ledgerId, entryId);
        given.add(ledgerId, entryId);
        if (redeliveryCount > 0) {
            redelivered.put(new Position(ledgerId, entryId), redeliveryCount);
        }
    }

    /** True if a consumer got the position, and no consumer has gone since. */
    boolean isGiven(long ledgerId, long entryId) {
        return given.contains(ledgerId, entryId);
    }

    /** The redelivery count when the position was last given. */
    int redeliveryCount(long ledgerId, long entryId) {
        return redelivered.isEmpty() ? 0 : redelivered.getOrDefault(new Position(ledgerId, entryId), 0);
    }

    /** Removes a member; false if it was none. */
    boolean remove(long ledgerId, long entryId) {
        forget(ledgerId, entryId);
        return members.remove(ledgerId, entryId);
    }

    private void forget(long ledgerId, long entryId) {
        given.remove(ledgerId, entryId);
        awaited.remove(ledgerId, entryId);
        awaitedLonger.remove(ledgerId, entryId);
        if (!redelivered.isEmpty()) {
            redelivered.remove(new Position(ledgerId, entryId));
        }
    }

    /** A consumer has gone: any position may be delivered again. */
    void forgetGiven() {
        given.clear();
        redelivered.clear();
    }

    // ---- acknowledgements under way -------------------------------------------------------------------------------

    /** Awaits the acknowledgement of a member, most likely under way. */
    void await(long ledgerId, long entryId) {
        if (!awaitedLonger.contains(ledgerId, entryId)) {
            awaited.add(ledgerId, entryId);
        }
    }

    /** The members awaited since before the last call; they are no longer awaited. */
    PositionSet nextAwaited() {
        if (awaited.isEmpty() && awaitedLonger.isEmpty()) {
            return awaited;
        }
        PositionSet over = awaitedLonger;
        awaitedLonger = awaited;
        awaited = new PositionSet();
        return over;
    }

    // ---- the whole ------------------------------------------------------------------------------------------------

    void discardUpTo(long ledgerId, long entryId) {
        members.discardUpTo(ledgerId, entryId);
        given.discardUpTo(ledgerId, entryId);
        awaited.discardUpTo(ledgerId, entryId);
        awaitedLonger.discardUpTo(ledgerId, entryId);
        redelivered.headMap(new Position(ledgerId, entryId), true).clear();
    }

    void clear() {
        members.clear();
        given.clear();
        redelivered.clear();
        awaited.clear();
        awaitedLonger.clear();
    }

    void trim() {
        members.trim();
        given.trim();
    }

    long memoryBytes() {
        return members.memoryBytes() + given.memoryBytes() + awaited.memoryBytes() + awaitedLonger.memoryBytes()
                + redelivered.size() * REDELIVERED_BYTES;
    }

    /** @throws IllegalStateException if an invariant does not hold */
    void check() {
        for (PositionSet some : new PositionSet[] {given, awaited, awaitedLonger}) {
            some.forEach(this::requireMember);
        }
        redelivered.keySet().forEach(position -> requireMember(position.ledgerId(), position.entryId()));
    }

    private void requireMember(long ledgerId, long entryId) {
        if (!contains(ledgerId, entryId)) {
            throw new IllegalStateException(ledgerId + ":" + entryId + " is given or awaited, and not handed out");
        }
    }
}
