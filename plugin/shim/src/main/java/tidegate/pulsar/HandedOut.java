package tidegate.pulsar;

import java.util.NavigableMap;
import java.util.TreeMap;

/**
 * What the dispatcher was given, and is not known acknowledged; and how far each has got.
 *
 * <p>First it is with the dispatcher, which reads it and gives it to a consumer. Read once more, it is either delivered again, or
 * just being acknowledged, and then <b>awaited</b>. Any thread may ask what is a member; all else is guarded by the tracker's lock.
 */
final class HandedOut {
    /** A node of the tree, its position and its number. */
    private static final long REDELIVERED_BYTES = 80;

    private final PositionSet members = new PositionSet();
    /** Members that went on to consumers of whom none has gone since. */
    private final PositionSet given = new PositionSet();
    /** How often a consumer had given them back when they were given last; those that are not here never. */
    private final NavigableMap<TrackerHost.Position, Integer> redelivered = new TreeMap<>();
    /** Members whose acknowledgement is awaited: since the last {@link #nextAwaited}, and since before. */
    private PositionSet awaited = new PositionSet();
    private PositionSet awaitedLonger = new PositionSet();

    PositionSet members() {
        return members;
    }

    boolean contains(long ledgerId, long entryId) {
        return members.contains(ledgerId, entryId);
    }

    /** The dispatcher has it, and no consumer. */
    void add(long ledgerId, long entryId) {
        forget(ledgerId, entryId);
        members.add(ledgerId, entryId);
    }

    /** A consumer gets it. {@code redeliveryCount}: see {@link TrackerHost#redeliveryCount}. */
    void give(long ledgerId, long entryId, int redeliveryCount) {
        add(ledgerId, entryId);
        given.add(ledgerId, entryId);
        if (redeliveryCount > 0) {
            redelivered.put(new TrackerHost.Position(ledgerId, entryId), redeliveryCount);
        }
    }

    /** Whether a consumer got it, and none has gone since. */
    boolean isGiven(long ledgerId, long entryId) {
        return given.contains(ledgerId, entryId);
    }

    /** How often a consumer had given it back when it was given last. */
    int redeliveryCount(long ledgerId, long entryId) {
        return redelivered.isEmpty() ? 0 : redelivered.getOrDefault(new TrackerHost.Position(ledgerId, entryId), 0);
    }

    /** False if it was none. */
    boolean remove(long ledgerId, long entryId) {
        forget(ledgerId, entryId);
        return members.remove(ledgerId, entryId);
    }

    private void forget(long ledgerId, long entryId) {
        given.remove(ledgerId, entryId);
        awaited.remove(ledgerId, entryId);
        awaitedLonger.remove(ledgerId, entryId);
        if (!redelivered.isEmpty()) {
            redelivered.remove(new TrackerHost.Position(ledgerId, entryId));
        }
    }

    /** A consumer has gone: what any of them was given may be delivered again. */
    void forgetGiven() {
        given.clear();
        redelivered.clear();
    }

    // ---- what is being acknowledged -------------------------------------------------------------------------------

    /** A member is most likely being acknowledged. */
    void await(long ledgerId, long entryId) {
        if (!awaitedLonger.contains(ledgerId, entryId)) {
            awaited.add(ledgerId, entryId);
        }
    }

    /** What has been awaited since before the last call; it is no longer. */
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
        redelivered.headMap(new TrackerHost.Position(ledgerId, entryId), true).clear();
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
