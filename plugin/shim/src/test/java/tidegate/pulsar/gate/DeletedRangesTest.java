package tidegate.pulsar.gate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.BitSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import tidegate.pulsar.position.NearTier;
import tidegate.pulsar.position.Overrides;
import tidegate.pulsar.position.SoughtPositions;
import tidegate.pulsar.position.TrackedPositions;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.PositionBitmaps;

/** Messages that are acknowledged before they are due, by the ids that their producer got. */
class DeletedRangesTest extends TrackerScenario {
    private static final long FAR_MS = 20_000;

    private void publishFar(int count) {
        for (int entry = 0; entry < count; entry++) {
            publish(entry, FAR_MS);
        }
        world.settle();
    }

    private void cancel(long... entries) {
        for (long entry : entries) {
            world.broker.cancel(new Position(1, entry));
        }
    }

    private long delayed() {
        return world.core().queue().delayedMessages();
    }

    private Set<Position> told() {
        return index().acknowledged;
    }

    @Test
    void whatTheDaemonHoldsLeavesAtTheNextLookAndIsTold() {
        start();
        publishFar(10);
        assertEquals(10, delayed());
        cancel(3, 5, 6);
        assertTrue(world.core().monitor().isBusy());
        world.watch();
        assertEquals(7, delayed());
        world.settle();
        assertEquals(Set.of(new Position(1, 3), new Position(1, 5), new Position(1, 6)), told());
        assertEquals(7, index().held.size());
        world.runUntil(world.now() + FAR_MS + 1000);
        assertEquals(List.of(0L, 1L, 2L, 4L, 7L, 8L, 9L), delivered());
    }

    @Test
    void whatIsNearLeavesToo() {
        start();
        for (int entry = 0; entry < 4; entry++) {
            publish(entry, 500);
        }
        world.settle();
        cancel(1, 2);
        world.settle();
        assertEquals(2, delayed());
        assertEquals(2, world.core().stats().near());
        world.runUntil(world.now() + 1000);
        assertEquals(List.of(0L, 3L), delivered());
    }

    @Test
    void whatIsUndecidedLeavesAndIsNotTakenUpByTheAnswer() {
        world.daemonUp = false;
        world.hasAFormerOwner();
        start();
        publishFar(4);
        assertEquals(4, world.core().stats().undecided());
        cancel(1, 2);
        world.watch();
        assertEquals(2, delayed());
        world.daemonUp = true;
        world.settle();
        assertEquals(2, delayed());
        assertEquals(Set.of(new Position(1, 0), new Position(1, 3)), index().held.keySet());
        assertEquals(Set.of(new Position(1, 1), new Position(1, 2)), told());
    }

    /**
     * The dispatcher reads it, a consumer acknowledges it, the watch sees that, and only then does the dispatcher ask what to
     * do.
     */
    @Test
    void whatWasAcknowledgedWhileItWasReadIsSeenWhenItComesIn() {
        start();
        publishFar(3);
        Position late = new Position(1, 3);
        world.broker.log.put(late, world.now() + FAR_MS);
        world.broker.cancel(late);
        world.settle();
        assertTrue(world.core().queue().addMessage(1, 3, world.now() + FAR_MS));
        assertEquals(4, delayed());
        assertTrue(world.core().monitor().isBusy());
        world.settle();
        assertEquals(3, delayed());
        assertEquals(Set.of(late), told());
    }

    @Test
    void whatIsHandedOutAndAcknowledgedIsToldOnce() {
        start();
        publishFar(5);
        publish(5, 10);
        world.runUntil(world.now() + 100);
        world.broker.acknowledge(world.broker.consumers.get(0), new Position(1, 5));
        cancel(3);
        world.settle();
        assertEquals(Set.of(new Position(1, 3), new Position(1, 5)), told());
        assertEquals(4, delayed());
    }

    /** Pulsar keeps one of the ranges. */
    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void whatPulsarForgetsIsDeletedAgainAndDoesNotCome(boolean graceful) {
        start();
        publishFar(20);
        cancel(1, 3, 5, 7, 9, 11, 13, 15, 17, 19);
        if (graceful) {
            // Within the same poll: the tracker's last look.
            world.unload(1);
        } else {
            world.settle();
            world.broker.persistCursor(1);
            world.crashBroker();
        }
        world.broker.connect();
        world.settle();
        assertEquals(10, delayed());
        assertEquals(10, index().held.size());
        for (int entry = 1; entry < 20; entry += 2) {
            assertTrue(world.broker.isDeleted(1, entry), entry + " is not deleted again");
        }
        world.runUntil(world.now() + FAR_MS + 1000);
        assertEquals(Set.of(0L, 2L, 4L, 6L, 8L, 10L, 12L, 14L, 16L, 18L), Set.copyOf(delivered()));
    }

    /**
     * No consumer takes more, so the dispatcher reads nothing, and no tracker has met them. Pulsar keeps two of the ranges, and
     * it keeps them in order.
     */
    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void whatIsCancelledBeforeItIsReadDoesNotComeThoughPulsarForgetsIt(boolean graceful) {
        world.broker.persistedRanges = 2;
        start();
        publishFar(1);
        int permits = world.broker.permits;
        world.broker.permits = 0;
        for (int entry = 1; entry < 20; entry++) {
            publish(entry, FAR_MS);
        }
        world.settle();
        assertEquals(1, delayed());
        cancel(1, 3, 5, 7, 9, 11, 13, 15, 17, 19);
        if (graceful) {
            // Within the same poll: the tracker's last look.
            world.unload(2);
        } else {
            world.settle();
            world.broker.persistCursor(2);
            world.crashBroker();
        }
        world.broker.permits = permits;
        world.broker.connect();
        world.settle();
        assertEquals(10, delayed());
        for (int entry = 1; entry < 20; entry += 2) {
            assertTrue(world.broker.isDeleted(1, entry), entry + " is not deleted again");
        }
        world.runUntil(world.now() + FAR_MS + 1000);
        assertEquals(Set.of(0L, 2L, 4L, 6L, 8L, 10L, 12L, 14L, 16L, 18L), Set.copyOf(delivered()));
    }

    /** Those of messages without a delivery time, too, and of those that a former tracker has seen. */
    @Test
    void whatTheCursorHasNoRoomForIsToldWhateverItIs() {
        world.broker.persistedRanges = 3;
        start();
        publish(0, FAR_MS);
        for (int entry = 1; entry < 20; entry++) {
            publish(entry, -1);
        }
        world.settle();
        acknowledge(2, 4, 6);
        world.settle();
        assertEquals(Set.of(), told());
        acknowledge(8, 10, 12);
        world.settle();
        assertEquals(Set.of(new Position(1, 8), new Position(1, 10), new Position(1, 12)), told());
        acknowledge(1);
        world.settle();
        assertTrue(told().contains(new Position(1, 6)), "4 is the last one with room");
        // Pulsar makes no tracker before it has read a delayed message; EarlyTrackers does.
        world.broker.readBatch = 1;
        world.unload(3);
        world.broker.deliveries.clear();
        world.broker.connect();
        world.settle();
        assertEquals(List.of(3L, 5L, 7L, 9L, 11L, 13L, 14L, 15L, 16L, 17L, 18L, 19L), delivered());
        acknowledge(3, 5, 7, 9, 11, 13, 14, 15, 16, 17, 18, 19);
        world.settle();
        // The cursor has one row beyond the first message, and the toy counts entries.
        world.unload(3);
        world.broker.deliveries.clear();
        world.broker.connect();
        world.settle();
        assertEquals(List.of(), delivered());
    }

    private void acknowledge(long... entries) {
        for (long entry : entries) {
            world.broker.acknowledge(world.broker.consumers.get(0), new Position(1, entry));
        }
    }

    /** The copy is from before the reset; the request for the seal comes after it. */
    @Test
    void aResetBetweenLookingAndTellingBringsAgainWhatTheCursorHadNoRoomFor() {
        world.broker.persistedRanges = 1;
        start();
        publish(0, FAR_MS);
        for (int entry = 1; entry < 6; entry++) {
            publish(entry, -1);
        }
        world.settle();
        acknowledge(1, 3, 5);
        world.broker.beforeSeal = () -> world.broker.reset(new Position(1, 0));
        world.watch();
        assertEquals(Set.of(), told());
        world.unload(1);
        world.broker.deliveries.clear();
        world.broker.connect();
        world.settle();
        assertEquals(Set.of(), told());
        assertEquals(List.of(1L, 2L, 3L, 4L, 5L), delivered());
    }

    @Test
    void nothingIsCopiedWhileThereIsSurelyRoom() {
        start();
        publish(0, 100);
        world.runUntil(world.now() + 200);
        acknowledge(0);
        world.settle();
        assertEquals(0, world.core().stats().tracked());
        for (int entry = 1; entry < 20; entry++) {
            publish(entry, -1);
        }
        world.settle();
        int copies = world.broker.copies;
        acknowledge(2, 4, 6);
        world.runUntil(world.now() + 10_000);
        assertEquals(copies, world.broker.copies);
    }

    /** The cursor's mark-delete position has moved over them, and is not stored yet. */
    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void theFirstOnesAreToldBeforeTheCursorIsStored(boolean handedOut) {
        start();
        publishFar(6);
        if (handedOut) {
            publish(6, 10);
            world.runUntil(world.now() + 100);
        }
        world.broker.persistCursor(100);
        cancel(0, 1, 2);
        world.settle();
        assertEquals(3, delayed());
        assertEquals(Set.of(new Position(1, 0), new Position(1, 1), new Position(1, 2)), told());
        world.crashBroker();
        world.broker.connect();
        world.settle();
        assertEquals(3, delayed());
        world.runUntil(world.now() + FAR_MS + 1000);
        assertEquals(Set.of(3L, 4L, 5L), delivered().stream().filter(entry -> entry < 6).collect(Collectors.toSet()));
    }

    /** The daemon holds nothing of it at the next look, though the cursor may be stored a minute later. */
    @Test
    void aSkippedBacklogIsNotHeld() {
        start();
        publishFar(300);
        world.broker.clearBacklog(new Position(1, 200));
        world.settle();
        assertEquals(99, delayed());
        assertEquals(99, index().held.size());
    }

    @Test
    void aKilledDaemonKnowsIt() {
        start();
        publishFar(4);
        cancel(1, 2);
        world.settle();
        world.crashDaemon();
        world.settle();
        assertEquals(2, index().held.size());
        assertEquals(2, delayed());
    }

    /** While the topic had another kind of consumers, or no tracker of ours, nobody looked. */
    @Test
    void whatWasAcknowledgedWithoutATrackerIsSeenWhenTheIndexIsTakenUp() {
        start();
        publishFar(6);
        world.unload(100);
        cancel(1, 4);
        world.broker.connect();
        world.settle();
        assertEquals(4, delayed());
        assertEquals(4, index().held.size());
        assertEquals(Set.of(new Position(1, 1), new Position(1, 4)), told());
    }

    @Test
    void aResetBringsItAgain() {
        start();
        publishFar(6);
        cancel(1, 4);
        world.settle();
        assertEquals(4, delayed());
        world.broker.reset(new Position(1, 0));
        world.broker.connect();
        world.settle();
        assertEquals(6, delayed());
        assertEquals(Set.of(), told());
        world.runUntil(world.now() + FAR_MS + 1000);
        assertEquals(Set.of(0L, 1L, 2L, 3L, 4L, 5L), Set.copyOf(delivered()));
    }

    /** The copy is from before the reset; the request for the seal comes after it. */
    @Test
    void aResetBetweenLookingAndTellingLeavesItHeld() {
        start();
        publishFar(6);
        cancel(1, 4);
        world.broker.beforeSeal = () -> world.broker.reset(new Position(1, 0));
        world.watch();
        world.broker.connect();
        world.settle();
        assertEquals(6, delayed());
        assertEquals(Set.of(), told());
        assertEquals(6, index().held.size());
    }

    @Test
    void whatWasCancelledBetweenIsToldUnderTheNewSeal() {
        start();
        publishFar(6);
        cancel(1);
        world.settle();
        world.broker.reset(new Position(1, 0));
        cancel(2, 3);
        world.broker.connect();
        world.settle();
        assertEquals(4, delayed());
        assertEquals(Set.of(new Position(1, 2), new Position(1, 3)), told());
    }

    @Test
    void nothingIsCopiedWhileNothingChanges() {
        start();
        publishFar(10);
        cancel(2);
        world.settle();
        int copies = world.broker.copies;
        world.runUntil(world.now() + 10_000);
        assertEquals(copies, world.broker.copies);
        cancel(4);
        world.runUntil(world.now() + 100);
        assertEquals(copies + 1, world.broker.copies);
        assertEquals(8, delayed());
    }

    /** More than are told while the lock is held once. */
    @Test
    void manyAreToldInParts() {
        TrackedPositions positions = new TrackedPositions(new NearTier(), new SoughtPositions(), new Overrides());
        BitSet deleted = new BitSet();
        for (int entry = 0; entry < 20_001; entry++) {
            positions.enter(7, entry);
            if (entry % 2 == 0) {
                deleted.set(entry);
            }
        }
        deleted.set(20_002);
        ToyBroker cursor = new ToyBroker(world.clock) {
            @Override
            public Map<Long, long[]> deletedEntries() {
                return Map.of(7L, deleted.toLongArray(), 8L, new long[] {-1});
            }
        };
        cursor.persistedRanges = 20_000;
        DeletedRanges.Look look = new DeletedRanges(cursor, new Seal(cursor, world.random), positions).look();
        assertEquals(10_001, look.parts().stream().mapToLong(PositionBitmaps::size).sum());
        look.parts().forEach(part -> assertTrue(part.size() <= 1024, part.size() + " in a part"));
        look.parts().forEach(part -> part.forEach((ledgerId, entryId) -> assertTrue(ledgerId == 7 && deleted.get((int) entryId))));
    }
}
