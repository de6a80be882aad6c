package tidegate.pulsar.position;

import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.PositionBitmaps;
import tidegate.pulsar.wire.Records;

/**
 * The overrides of one subscription: positions, and the times that hold instead of their messages' own.
 *
 * <p>An override is <b>moving</b> from the decision until it is stored, then <b>live</b> until its message is acknowledged,
 * then <b>leaving</b> until the stored overrides lack it, too: a crash may bring the message back, and it must not come
 * before its time. After a reset, though, the message's own time counts. An override is <b>taken</b> while the stored ones
 * are being written without it. Guarded by the tracker's lock.
 *
 * <p>Example: RESCHEDULE moves a message from 10 to 20. Moving: nobody hands it out. Stored: live, due at 20. Handed out and
 * acknowledged: leaving. At 20, or once the persisted mark-delete position has passed it, {@link #takeLeft} takes it; the
 * next write stores the rest.
 */
public final class Overrides {
    /** The most overrides of a subscription, leaving ones included. */
    public static final int MAX = 1_000_000;
    /** Marks a taken override of a message that a reset brought back. */
    private static final long RETURNED = -2;

    private final MovedTimes moving = new MovedTimes();
    private MovedTimes live = new MovedTimes();
    private MovedTimes leaving = new MovedTimes();
    private final MovedTimes taken = new MovedTimes();
    /** None leaves before this time, or before the persisted mark-delete position changes from {@link #passed}. */
    private long nextLeftMs = Long.MAX_VALUE;
    private Position passed = new Position(-1, -1);
    /** Positions that did not move after all, until read again. */
    private final PositionSet undone = new PositionSet();
    /** Positions that a reset brought back: their stored overrides no longer hold. */
    private final PositionSet returned = new PositionSet();

    // ---- asking ---------------------------------------------------------------------------------------------------

    /** The time that holds for a message: a live override's, else its own. */
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

    /** True if that time holds already, and the message does not move. */
    public boolean isAt(long ledgerId, long entryId, long timeMs) {
        return live.get(ledgerId, entryId) == timeMs && !isMoving(ledgerId, entryId);
    }

    /** The number of live overrides. */
    public long size() {
        return live.size();
    }

    /** The number of stored overrides, as far as known. */
    public long stored() {
        return live.size() + leaving.size() + taken.size();
    }

    /** True if so many more might be too many. */
    public boolean isFullFor(int more) {
        return stored() + moving.size() + more > MAX;
    }

    /** True if only taken overrides need storing. */
    public boolean isEmpty() {
        return live.isEmpty() && moving.isEmpty() && leaving.isEmpty();
    }

    /** True if the message was last known acknowledged, and the stored overrides may have the position. */
    public boolean isLeaving(long ledgerId, long entryId) {
        return leaving.get(ledgerId, entryId) != MovedTimes.NONE || taken.get(ledgerId, entryId) >= 0;
    }

    public boolean hasReturned() {
        return !returned.isEmpty();
    }

    public void forEach(MovedTimes.Visitor visitor) {
        live.forEach(visitor);
    }

    public Records all() {
        Records all = new Records(Math.toIntExact(live.size() + moving.size() + leaving.size()));
        MovedTimes.Visitor add = all::add;
        // The last record of a position counts.
        leaving.forEach(add);
        live.forEach(add);
        moving.forEach(add);
        return all;
    }

    void addMovingTo(PositionSet others) {
        moving.forEach((ledgerId, entryId, timeMs) -> others.add(ledgerId, entryId));
    }

    public Records allMoving() {
        Records all = new Records();
        moving.forEach(all::add);
        return all;
    }

    // ---- coming and going -----------------------------------------------------------------------------------------

    /**
     * Takes the overrides read from the store: of acknowledged messages, which a crash may bring back once more, and the
     * others. Leaving and returned overrides stay so. Owns both arguments from now on, without walking over them.
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

    /** Notes that an override is stored: true if its message now waits for that time, false if it left or moves on. */
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
        // A later move that fails restores this time.
        live.put(ledgerId, entryId, timeMs);
        return !movesOn;
    }

    private boolean hasReturned(long ledgerId, long entryId) {
        return returned.contains(ledgerId, entryId) || taken.get(ledgerId, entryId) == RETURNED;
    }

    /** Notes that an override is surely not stored: true if its message no longer moves. */
    boolean undo(long ledgerId, long entryId, long timeMs) {
        boolean was = moving.get(ledgerId, entryId) == timeMs && moving.remove(ledgerId, entryId) != MovedTimes.NONE;
        if (was) {
            undone.add(ledgerId, entryId);
        }
        return was;
    }

    /** True if a move of the message failed: the daemon would not push it again. */
    public boolean takeUndone(long ledgerId, long entryId) {
        return !undone.isEmpty() && undone.remove(ledgerId, entryId);
    }

    /** Removes those that did not move and were not read since. */
    void removeUndoneFrom(PositionSet others) {
        if (!undone.isEmpty()) {
            others.removeAll(undone);
        }
    }

    void leave(long ledgerId, long entryId) {
        long liveMs = live.remove(ledgerId, entryId);
        long movingMs = moving.remove(ledgerId, entryId);
        if (movingMs != MovedTimes.NONE || liveMs != MovedTimes.NONE) {
            // The later time: either may be stored, and a crash must not bring the message back before.
            putLeaving(ledgerId, entryId, Math.max(movingMs, liveMs));
        }
    }

    private void putLeaving(long ledgerId, long entryId, long timeMs) {
        leaving.put(ledgerId, entryId, timeMs);
        boolean isPassed = ledgerId < passed.ledgerId() || ledgerId == passed.ledgerId() && entryId <= passed.entryId();
        nextLeftMs = isPassed ? Long.MIN_VALUE : Math.min(nextLeftMs, timeMs);
    }

    void stay(long ledgerId, long entryId) {
        long timeMs = leaving.remove(ledgerId, entryId);
        if (timeMs != MovedTimes.NONE) {
            live.put(ledgerId, entryId, timeMs);
        }
    }

    /** Notes that a reset has brought the message back: its own time counts, at the next owner, too. */
    public void comeBack(long ledgerId, long entryId) {
        if (leaving.remove(ledgerId, entryId) != MovedTimes.NONE) {
            returned.add(ledgerId, entryId);
        } else if (taken.get(ledgerId, entryId) != MovedTimes.NONE) {
            taken.put(ledgerId, entryId, RETURNED);
        }
    }

    /** Takes the returned positions. They are stored before any later move. */
    public PositionBitmaps takeReturned() {
        PositionBitmaps all = new PositionBitmaps();
        returned.forEach((ledgerId, entryId) -> {
            all.add(ledgerId, entryId);
            taken.put(ledgerId, entryId, RETURNED);
        });
        returned.clear();
        return all;
    }

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
     * Takes at most {@code max} leaving overrides: those whose time has come, and those that no crash brings back, up to the
     * persisted mark-delete position. Walks over all only if there may be one.
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

    /** Notes that the stored overrides lack the taken ones. */
    public void left() {
        taken.clear();
    }

    /** Notes that the stored overrides may still have the taken ones, which must be taken again. */
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
