package tidegate.pulsar.position;

import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.PositionBitmaps;

/**
 * Contained positions without a holder: only another read tells their time. Each is <b>sought</b> until given to the
 * dispatcher, then <b>asked for</b> until the dispatcher or a pass ahead has read it.
 *
 * <p>Invariant, walked by {@link #check}: none is both. Guarded by the tracker's lock.
 */
public final class SoughtPositions {
    private final PositionSet sought = new PositionSet();
    private final PositionSet askedFor = new PositionSet();

    public long size() {
        return sought.size();
    }

    /** Any thread may ask. */
    public boolean contains(long ledgerId, long entryId) {
        return !sought.isEmpty() && sought.contains(ledgerId, entryId);
    }

    /** Any thread may ask. */
    boolean hasAsked() {
        return !askedFor.isEmpty();
    }

    /** Null without one. */
    public Position first() {
        return sought.first((ledgerId, entryId) -> true);
    }

    /** The lowest asked-for position that passes the test; null without one. Any thread may ask. */
    Position firstAsked(PositionPredicate test) {
        return askedFor.first(test);
    }

    void forEachAsked(PositionBitmaps.Visitor visitor) {
        askedFor.forEach(visitor);
    }

    void addTo(PositionSet others) {
        others.addAll(sought);
        others.addAll(askedFor);
    }

    /** Seeks these positions. Asked-for ones are read anyhow. */
    public void seek(PositionSet lost) {
        sought.addAll(lost);
        if (!askedFor.isEmpty()) {
            sought.removeAll(askedFor);
        }
    }

    /** Gives the dispatcher at most {@code max} sought positions to read, in position order. */
    public void askFor(int max, PositionBitmaps.Visitor visitor) {
        PositionSet asked = new PositionSet();
        sought.forFirst(max, asked::add);
        asked.forEach((ledgerId, entryId) -> {
            sought.remove(ledgerId, entryId);
            askedFor.add(ledgerId, entryId);
            visitor.visit(ledgerId, entryId);
        });
    }

    /** Seeks the asked-for positions again: the dispatcher has forgotten them. */
    void takeBack() {
        sought.addAll(askedFor);
        askedFor.clear();
    }

    /** Notes a holder; true if the position was sought or asked for. */
    public boolean find(long ledgerId, long entryId) {
        boolean was = drop(ledgerId, entryId);
        return !askedFor.isEmpty() && askedFor.remove(ledgerId, entryId) || was;
    }

    /** Drops a position that need not be read; true if it was sought. */
    boolean drop(long ledgerId, long entryId) {
        return !sought.isEmpty() && sought.remove(ledgerId, entryId);
    }

    /** Drops the positions that the daemon holds: they need not be read. */
    void dropAll(PositionSet held) {
        if (!sought.isEmpty()) {
            sought.removeAll(held);
        }
    }

    void discardUpTo(Position markDelete) {
        sought.discardUpTo(markDelete.ledgerId(), markDelete.entryId());
        askedFor.discardUpTo(markDelete.ledgerId(), markDelete.entryId());
    }

    void clear() {
        sought.clear();
        askedFor.clear();
    }

    void trim() {
        sought.trim();
        askedFor.trim();
    }

    long memoryBytes() {
        return sought.memoryBytes() + askedFor.memoryBytes();
    }

    /** @throws IllegalStateException if an invariant does not hold */
    public void check() {
        sought.forEach((ledgerId, entryId) -> {
            if (askedFor.contains(ledgerId, entryId)) {
                throw new IllegalStateException("sought and asked for: " + ledgerId + ":" + entryId);
            }
        });
    }
}
