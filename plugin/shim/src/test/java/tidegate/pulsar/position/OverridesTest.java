package tidegate.pulsar.position;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.PositionBitmaps;

class OverridesTest {
    private static final Position NOTHING = new Position(-1, -1);
    private static final int ALL = Integer.MAX_VALUE;

    private final Overrides overrides = new Overrides();

    private void store(long entryId, long timeMs) {
        overrides.move(1, entryId, timeMs);
        assertTrue(overrides.settle(1, entryId, timeMs));
    }

    private static PositionBitmaps positions(long... entryIds) {
        PositionBitmaps all = new PositionBitmaps();
        for (long entryId : entryIds) {
            all.add(1, entryId);
        }
        return all;
    }

    @Test
    void leavingOnesTakeRoomUntilTheStoredOnesAreWithoutThem() {
        for (int entryId = 0; entryId < Overrides.MAX; entryId++) {
            store(entryId, 5_000);
        }
        assertTrue(overrides.isFullFor(1));
        for (int entryId = 0; entryId < Overrides.MAX; entryId++) {
            overrides.leave(1, entryId);
        }
        assertTrue(overrides.isFullFor(1));
        assertEquals(10, overrides.takeLeft(5_000, NOTHING, 10).size());
        assertTrue(overrides.isFullFor(1), "they may be stored still");
        overrides.left();
        assertFalse(overrides.isFullFor(10));
        assertTrue(overrides.isFullFor(11));
        overrides.check();
    }

    @Test
    void theyLeaveWhenTheirTimeHasComeOrNoCrashBringsThemBack() {
        for (long entryId = 0; entryId < 4; entryId++) {
            store(entryId, 1_000 * entryId);
            overrides.leave(1, entryId);
        }
        assertEquals(positions(0, 1), overrides.takeLeft(1_999, NOTHING, ALL));
        assertEquals(positions(), overrides.takeLeft(1_999, NOTHING, ALL));
        assertEquals(positions(2), overrides.takeLeft(1_999, new Position(1, 2), ALL));
        assertEquals(positions(3), overrides.takeLeft(3_000, new Position(1, 2), ALL));
        assertTrue(overrides.isEmpty());
    }

    @Test
    void oneThatLeavesBelowAPersistedPositionSeenBeforeIsTaken() {
        assertEquals(positions(), overrides.takeLeft(0, new Position(1, 5), ALL));
        store(3, 9_000);
        overrides.leave(1, 3);
        assertEquals(positions(3), overrides.takeLeft(0, new Position(1, 5), ALL));
    }

    @Test
    void theyAreTakenAPartAtATime() {
        for (long entryId = 0; entryId < 10; entryId++) {
            store(entryId, 1_000);
            overrides.leave(1, entryId);
        }
        long taken = 0;
        for (long part : new long[] {4, 4, 2, 0}) {
            PositionBitmaps left = overrides.takeLeft(1_000, NOTHING, 4);
            assertEquals(part, left.size());
            taken += left.size();
            overrides.left();
        }
        assertEquals(10, taken);
    }

    @Test
    void whatWasTakenInVainIsTakenAgain() {
        store(1, 1_000);
        store(2, 1_000);
        overrides.leave(1, 1);
        overrides.leave(1, 2);
        overrides.comeBack(1, 2);
        assertEquals(positions(1), overrides.takeLeft(1_000, NOTHING, ALL));
        assertEquals(positions(2), overrides.takeReturned());
        assertTrue(overrides.isLeaving(1, 1));
        overrides.untake();
        overrides.check();
        assertEquals(positions(1), overrides.takeLeft(1_000, NOTHING, ALL));
        assertEquals(positions(2), overrides.takeReturned());
        overrides.left();
        assertFalse(overrides.isLeaving(1, 1));
        assertEquals(positions(), overrides.takeReturned());
    }

    @Test
    void oneThatComesBackWhileItIsTakenHasItsOwnTimeWhateverBecomesOfTheWrite() {
        store(1, 1_000);
        overrides.leave(1, 1);
        overrides.takeLeft(1_000, NOTHING, ALL);
        overrides.comeBack(1, 1);
        assertFalse(overrides.isLeaving(1, 1));
        overrides.untake();
        assertEquals(positions(1), overrides.takeReturned());
    }

    @Test
    void oneThatMovesOnInVainHasTheTimeThatWasStoredMeanwhile() {
        overrides.move(1, 1, 1_000);
        overrides.move(1, 1, 2_000);
        assertFalse(overrides.settle(1, 1, 1_000));
        assertTrue(overrides.isMoving(1, 1));
        assertTrue(overrides.undo(1, 1, 2_000));
        assertEquals(1_000, overrides.timeOf(1, 1, 5));
        overrides.leave(1, 1);
        assertFalse(overrides.settle(1, 1, 2_000), "it has left");
        assertEquals(1, overrides.stored());
    }

    @Test
    void oneThatCameBackAndMovesOnInVainHasItsOwnTime() {
        overrides.move(1, 1, 1_000);
        overrides.leave(1, 1);
        overrides.comeBack(1, 1);
        overrides.move(1, 1, 2_000);
        assertFalse(overrides.settle(1, 1, 1_000));
        assertTrue(overrides.undo(1, 1, 2_000));
        assertEquals(5, overrides.timeOf(1, 1, 5));
    }

    @Test
    void oneThatLeavesAnewWhileItIsTakenKeepsItsNewTime() {
        store(1, 1_000);
        overrides.leave(1, 1);
        overrides.takeLeft(1_000, NOTHING, ALL);
        overrides.move(1, 1, 7_000);
        overrides.leave(1, 1);
        overrides.untake();
        assertEquals(positions(), overrides.takeLeft(6_999, NOTHING, ALL));
        assertEquals(positions(1), overrides.takeLeft(7_000, NOTHING, ALL));
    }
}
