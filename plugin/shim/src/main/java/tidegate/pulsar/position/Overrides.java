package tidegate.pulsar.position;

import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.PositionBitmaps;
import tidegate.pulsar.wire.Records;

/**
 * The overrides of one subscription: positions, and the times that hold for them instead of their messages' own.
 *
 * <p>An override is <b>moving</b> from the decision until it is stored, and <b>live</b> then, until its message is acknowledged.
 * From then on it is <b>leaving</b>, until the stored ones are without it, too: a message that a crash brings back before that
 * time must not come before it, while one that a reset brings back has its own time again. It is <b>taken</b> while the stored
 * ones are written without it. Guarded by the tracker's lock.
 */
public final class Overrides {
    /** A subscription has at most so many, leaving ones included. */
    public static final int MAX = 1_000_000;
    /** Stands among the taken ones for the time of one that a reset brought back. */
    private static final long RETURNED = -2;

    private final MovedTimes moving = new MovedTimes();
    private MovedTimes live = new MovedTimes();
    private MovedTimes leaving = new MovedTimes();
    private final MovedTimes taken = new MovedTimes();
    /** No leaving one may be taken before this time, or before another mark-delete position is persisted than {@link #passed}. */
    private long nextLeftMs = Long.MAX_VALUE;
    private Position passed = new Position(-1, -1);
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

    /** The number of those that are stored, as far as is known. */
    public long stored() {
        return live.size() + leaving.size() + taken.size();
    }

    /** True if so many more might be too many. */
    public boolean isFullFor(int more) {
        return stored() + moving.size() + more > MAX;
    }

    /** True if nothing needs to be stored but what is taken. */
    public boolean isEmpty() {
        return live.isEmpty() && moving.isEmpty() && leaving.isEmpty();
    }

    /** True if its message was acknowledged when this was last known, and the stored ones may have it. */
    public boolean isLeaving(long ledgerId, long entryId) {
        return leaving.get(ledgerId, entryId) != MovedTimes.NONE || taken.get(ledgerId, entryId) >= 0;
    }

    /** True if some that a reset brought back are to be taken. */
    public boolean hasReturned() {
        return !returned.isEmpty();
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

    /**
     * The stored ones were read: those of acknowledged messages, which a crash may bring back once more, and the others. Leaving
     * ones, and those that came back, stay known as such. Owns both from now on; walks over neither, as there may be a million.
     */
    public void restore(MovedTimes stored, MovedTimes acknowledged) {
        MovedTimes gone = leaving;
        live = stored;
        leaving = acknowledged;
        gone.forEach((ledgerId, entryId, formerMs) -> {
            long timeMs = live.remove(ledgerId, entryId);
            if (timeMs != MovedTimes.NONE) {
                leaving.put(ledgerId, entryId, timeMs);
            }
        });
        returned.forEach(live::remove);
        nextLeftMs = Long.MIN_VALUE;
    }

    void move(long ledgerId, long entryId, long timeMs) {
        moving.put(ledgerId, entryId, timeMs);
    }

    /** It is stored: true if its message waits for that time now, false if it left, or moves on. */
    boolean settle(long ledgerId, long entryId, long timeMs) {
        long movingMs = moving.get(ledgerId, entryId);
        boolean movesOn = movingMs != timeMs;
        if (movingMs == MovedTimes.NONE || movesOn && hasReturned(ledgerId, entryId)) {
            return false;
        }
        if (!movesOn) {
            moving.remove(ledgerId, entryId);
        }
        leaving.remove(ledgerId, entryId);
        // One that moves on has this time again if it does not move after all.
        live.put(ledgerId, entryId, timeMs);
        return !movesOn;
    }

    private boolean hasReturned(long ledgerId, long entryId) {
        return returned.contains(ledgerId, entryId) || taken.get(ledgerId, entryId) == RETURNED;
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
            putLeaving(ledgerId, entryId, Math.max(movingMs, liveMs));
        }
    }

    private void putLeaving(long ledgerId, long entryId, long timeMs) {
        leaving.put(ledgerId, entryId, timeMs);
        boolean isPassed = ledgerId < passed.ledgerId() || ledgerId == passed.ledgerId() && entryId <= passed.entryId();
        nextLeftMs = isPassed ? Long.MIN_VALUE : Math.min(nextLeftMs, timeMs);
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
        } else if (taken.get(ledgerId, entryId) != MovedTimes.NONE) {
            taken.put(ledgerId, entryId, RETURNED);
        }
    }

    /** Takes those that came back. They are stored before any that move then. */
    public PositionBitmaps takeReturned() {
        PositionBitmaps all = new PositionBitmaps();
        returned.forEach((ledgerId, entryId) -> {
            all.add(ledgerId, entryId);
            taken.put(ledgerId, entryId, RETURNED);
        });
        returned.clear();
        return all;
    }

    /** Everything up to there is acknowledged. */
    public void leaveUpTo(Position markDelete) {
        live.takeUpTo(markDelete.ledgerId(), markDelete.entryId(), this::putLeaving);
        undone.discardUpTo(markDelete.ledgerId(), markDelete.entryId());
        leaveMovingUpTo(markDelete);
    }

    void leaveMovingUpTo(Position markDelete) {
        if (!moving.isEmpty()) {
            moving.takeUpTo(markDelete.ledgerId(), markDelete.entryId(), this::putLeaving);
        }
    }

    /**
     * Takes leaving ones, {@code max} at most: those with a time that has come, and those that no crash brings back, up to the
     * persisted mark-delete position. Looks at all of them only if there may be one.
     */
    public PositionBitmaps takeLeft(long nowMs, Position persisted, int max) {
        PositionBitmaps left = new PositionBitmaps();
        if (nowMs < nextLeftMs && persisted.equals(passed)) {
            return left;
        }
        long[] nextMs = {Long.MAX_VALUE};
        boolean all = leaving.take(max, (ledgerId, entryId, timeMs) -> {
            boolean isPassed = ledgerId < persisted.ledgerId() || ledgerId == persisted.ledgerId() && entryId <= persisted.entryId();
            if (timeMs > nowMs && !isPassed) {
                nextMs[0] = Math.min(nextMs[0], timeMs);
                return false;
            }
            return true;
        }, (ledgerId, entryId, timeMs) -> {
            left.add(ledgerId, entryId);
            taken.put(ledgerId, entryId, timeMs);
        });
        passed = persisted;
        nextLeftMs = all ? nextMs[0] : Long.MIN_VALUE;
        return left;
    }

    /** The stored ones are without those taken. */
    public void left() {
        taken.clear();
    }

    /** The stored ones may have those taken: they are to be taken again. */
    public void untake() {
        taken.forEach((ledgerId, entryId, timeMs) -> {
            if (timeMs == RETURNED) {
                returned.add(ledgerId, entryId);
            } else if (leaving.get(ledgerId, entryId) == MovedTimes.NONE) {
                putLeaving(ledgerId, entryId, timeMs);
            }
        });
        taken.clear();
    }

    long memoryBytes() {
        return moving.memoryBytes() + live.memoryBytes() + leaving.memoryBytes() + taken.memoryBytes() + undone.memoryBytes()
                + returned.memoryBytes();
    }

    /** @throws IllegalStateException if an invariant does not hold */
    public void check() {
        moving.check();
        live.check();
        leaving.check();
        taken.check();
    }
}
