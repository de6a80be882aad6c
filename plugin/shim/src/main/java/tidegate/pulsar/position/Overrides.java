package tidegate.pulsar.position;

import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.Positions;
import tidegate.pulsar.wire.Records;

/**
 * The overrides of one subscription: positions, and the times that hold for them instead of their messages' own.
 *
 * <p>An override is <b>moving</b> from the decision until it is stored, and <b>live</b> then, until its message is acknowledged.
 * From then on it is <b>leaving</b>, until the stored ones are without it, too: a message that a crash brings back before that
 * time must not come before it, while one that a reset brings back has its own time again. Guarded by the tracker's lock.
 */
public final class Overrides {
    /** A subscription has at most so many. */
    public static final int MAX = 1_000_000;

    private final MovedTimes moving = new MovedTimes();
    private final MovedTimes live = new MovedTimes();
    private final MovedTimes leaving = new MovedTimes();
    /** Positions that did not move after all, until they are read again. */
    private final PositionSet undone = new PositionSet();
    /** Positions that a reset brought back: their stored overrides hold no more. */
    private final PositionSet returned = new PositionSet();

    // ---- asking ---------------------------------------------------------------------------------------------------

    /** The time that holds for a message: its own, unless a live override says otherwise. */
    public long timeOf(long ledgerId, long entryId, long ownMs) {
        long timeMs = live.get(ledgerId, entryId);
        return timeMs == MovedTimes.NONE ? ownMs : timeMs;
    }

    /** The time of a live override, or {@link MovedTimes#NONE}. */
    public long get(long ledgerId, long entryId) {
        return live.get(ledgerId, entryId);
    }

    public boolean isMoving(long ledgerId, long entryId) {
        return moving.get(ledgerId, entryId) != MovedTimes.NONE;
    }

    /** True if it is to be due then already. */
    public boolean isAt(long ledgerId, long entryId, long timeMs) {
        return live.get(ledgerId, entryId) == timeMs && !isMoving(ledgerId, entryId);
    }

    /** The number of live ones. */
    public long size() {
        return live.size();
    }

    /** True if so many more might be too many. */
    public boolean isFullFor(int more) {
        return live.size() + moving.size() + more > MAX;
    }

    /** True if nothing needs to be stored. */
    public boolean isEmpty() {
        return live.isEmpty() && moving.isEmpty() && leaving.isEmpty();
    }

    public boolean isLeaving(long ledgerId, long entryId) {
        return leaving.get(ledgerId, entryId) != MovedTimes.NONE;
    }

    public boolean hasLeaving() {
        return !leaving.isEmpty();
    }

    public void forEach(MovedTimes.Visitor visitor) {
        live.forEach(visitor);
    }

    /** Everything that is to be stored. */
    public Records all() {
        Records all = new Records(Math.toIntExact(live.size() + moving.size() + leaving.size()));
        MovedTimes.Visitor add = all::add;
        // The last of a position counts.
        leaving.forEach(add);
        live.forEach(add);
        moving.forEach(add);
        return all;
    }

    void addMovingTo(PositionSet others) {
        moving.forEach((ledgerId, entryId, timeMs) -> others.add(ledgerId, entryId));
    }

    /** The moving ones. */
    public Records allMoving() {
        Records all = new Records();
        moving.forEach(all::add);
        return all;
    }

    // ---- coming and going -----------------------------------------------------------------------------------------

    /** The stored ones were read, with those of acknowledged messages: a crash may bring these back once more. */
    public void restore(MovedTimes stored, Positions acknowledged) {
        live.clear();
        leaving.clear();
        returned.clear();
        stored.forEach(live::put);
        acknowledged.forEach(this::leave);
    }

    void move(long ledgerId, long entryId, long timeMs) {
        moving.put(ledgerId, entryId, timeMs);
    }

    /** It is stored: true if it is live now, false if it left, or moves on. */
    boolean settle(long ledgerId, long entryId, long timeMs) {
        if (moving.get(ledgerId, entryId) != timeMs) {
            return false;
        }
        moving.remove(ledgerId, entryId);
        leaving.remove(ledgerId, entryId);
        live.put(ledgerId, entryId, timeMs);
        return true;
    }

    /** It is surely not stored: true if it does not move any more. */
    boolean undo(long ledgerId, long entryId, long timeMs) {
        boolean was = moving.get(ledgerId, entryId) == timeMs && moving.remove(ledgerId, entryId) != MovedTimes.NONE;
        if (was) {
            undone.add(ledgerId, entryId);
        }
        return was;
    }

    /** True if it was to move and did not: the daemon may have pushed it before that, and would not push it again. */
    public boolean takeUndone(long ledgerId, long entryId) {
        return !undone.isEmpty() && undone.remove(ledgerId, entryId);
    }

    /** Its message is acknowledged. */
    void leave(long ledgerId, long entryId) {
        long liveMs = live.remove(ledgerId, entryId);
        long movingMs = moving.remove(ledgerId, entryId);
        if (movingMs != MovedTimes.NONE || liveMs != MovedTimes.NONE) {
            // The later one, as either may be stored: a crash must not bring it back before that.
            leaving.put(ledgerId, entryId, Math.max(movingMs, liveMs));
        }
    }

    /** Its message is not acknowledged after all. */
    void stay(long ledgerId, long entryId) {
        long timeMs = leaving.remove(ledgerId, entryId);
        if (timeMs != MovedTimes.NONE) {
            live.put(ledgerId, entryId, timeMs);
        }
    }

    /** A reset has brought its message back: its own time counts, at the next owner, too. */
    public void comeBack(long ledgerId, long entryId) {
        if (leaving.remove(ledgerId, entryId) != MovedTimes.NONE) {
            returned.add(ledgerId, entryId);
        }
    }

    /** Forgets those that came back, and returns them. They are stored before any that move then. */
    public Positions takeReturned() {
        Positions taken = new Positions();
        returned.forEach(taken::add);
        returned.clear();
        return taken;
    }

    /** Everything up to there is acknowledged. */
    public void leaveUpTo(Position markDelete) {
        live.takeUpTo(markDelete.ledgerId(), markDelete.entryId(), leaving::put);
        undone.discardUpTo(markDelete.ledgerId(), markDelete.entryId());
        leaveMovingUpTo(markDelete);
    }

    void leaveMovingUpTo(Position markDelete) {
        if (!moving.isEmpty()) {
            moving.takeUpTo(markDelete.ledgerId(), markDelete.entryId(), leaving::put);
        }
    }

    /**
     * Forgets leaving ones, and returns them: those with a time that has come, those that no crash brings back, up to the
     * persisted mark-delete position, and those that came back.
     */
    public Positions takeLeft(long nowMs, Position persisted) {
        Positions left = takeReturned();
        leaving.forEach((ledgerId, entryId, timeMs) -> {
            if (timeMs <= nowMs || new Position(ledgerId, entryId).compareTo(persisted) <= 0) {
                left.add(ledgerId, entryId);
            }
        });
        left.forEach(leaving::remove);
        return left;
    }

    long memoryBytes() {
        return moving.memoryBytes() + live.memoryBytes() + leaving.memoryBytes() + undone.memoryBytes()
                + returned.memoryBytes();
    }

    /** @throws IllegalStateException if an invariant does not hold */
    public void check() {
        moving.check();
        live.check();
        leaving.check();
    }
}
