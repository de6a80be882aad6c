package tidegate.pulsar.gate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import tidegate.pulsar.wire.Ownership;
import tidegate.pulsar.wire.Position;

/** Acknowledgements from before a failover: their positions are deleted in the cursor again, or not. */
class SettlingDeletesTest extends TrackerScenario {
    /** The broker dies, and the cursor has none of the acknowledgements; the daemon's answer to OPEN is on its way. */
    private void forgetInACrash() {
        world.broker.persistCursor(0);
        world.crashBroker();
        world.broker.connect();
        world.runBroker();
        world.watch();
        world.connect();
        world.toDaemon();
        world.toShim(1);
        world.toDaemon();
    }

    @Test
    void aResetWhileAcknowledgementsAreDeletedAgain() {
        acknowledgeAllBut(0);
        forgetInACrash();
        world.toShim(Integer.MAX_VALUE);
        assertEquals(9, world.core().stats().settling());
        world.broker.reset(new Position(1, 0));
        world.broker.runCursor();
        assertFalse(world.broker.isDeleted(1, 5), "the deletion came too late: the cursor has another seal");
        world.broker.deliveries.clear();
        world.broker.connect();
        world.runUntil(world.now() + 2000);
        assertEquals(10, delivered().size());
        assertTrue(index().acknowledged.isEmpty(), index().acknowledged.toString());
    }

    @Test
    void withoutConsumersNothingIsDeletedAgain() {
        acknowledgeAllBut(0);
        forgetInACrash();
        world.broker.disconnectAll();
        world.toShim(Integer.MAX_VALUE);
        assertEquals(9, world.core().stats().settling());
        world.runUntil(world.now() + 2000);
        assertFalse(world.broker.isDeleted(1, 5), "a seek may be under way");
        world.broker.connect();
        world.runUntil(world.now() + 2000);
        assertTrue(world.broker.isDeleted(1, 5));
    }

    @Test
    void whatTheCursorRefusesToDeleteKeepsNothingElseBack() {
        world.broker.connect();
        for (int entry = 1; entry < 9; entry++) {
            index().acknowledged.add(publish(entry, 0));
        }
        publish(9, 60_000);
        theDaemonKnowsTheSubscription();
        world.daemon.commit();
        world.broker.undeletable.add(new Position(1, 3));
        world.runUntil(world.now() + 10_000);
        for (long entry = 1; entry < 9; entry++) {
            assertEquals(entry != 3, world.broker.isDeleted(1, entry), "entry " + entry);
        }
        assertEquals(0, world.core().stats().settling());
        assertFalse(index().acknowledged.contains(new Position(1, 3)), "rather twice than never");
        assertEquals(List.of(3L), delivered(), "the dispatcher had passed it: it is given it to read");
    }

    /** Skipping takes the seal, and a consumer that stays shows that nothing else has. */
    @Test
    void skippingWhileAcknowledgementsAreDeletedAgainRepeatsNothing() {
        acknowledgeAllBut(0);
        forgetInACrash();
        world.toShim(Integer.MAX_VALUE);
        assertEquals(9, world.core().stats().settling());
        world.broker.clearBacklog(new Position(1, 0));
        world.runUntil(world.now() + 2000);
        assertEquals(0, world.core().stats().settling());
        assertEquals(List.of(0L), delivered());
        assertTrue(world.broker.isFullyAcknowledged());
    }

    /** It may have been a reset, and rewinds nothing: the positions that the dispatcher passed are not deleted, so read again. */
    @Test
    void skippingWithoutConsumersLeavesNothingBehind() {
        acknowledgeAllBut(0);
        forgetInACrash();
        world.toShim(Integer.MAX_VALUE);
        assertEquals(9, world.core().stats().settling());
        world.broker.disconnectAll();
        world.broker.clearBacklog(new Position(1, 0));
        world.broker.connect();
        world.runUntil(world.now() + 2000);
        assertEquals(0, world.core().stats().settling());
        assertEquals(List.of(0L, 1L, 2L, 3L, 4L, 5L, 6L, 7L, 8L, 9L), delivered().stream().sorted().toList());
    }

    /** The cursor reports success though it has left out everything: it had lost the seal. */
    @Test
    void whatTheCursorHasLeftOutIsNotTakenForDeleted() {
        ToyBroker context = new ToyBroker(world.clock);
        context.connect();
        TrackerParts parts = new TrackerParts(context, world.clock, new TrackerSettings("topic", "sub",
                Ownership.first(new Random(1)), 2000, 100, 100, 60_000), new Random(2), new PendingBudget(1000));
        parts.positions.settle(1, 5);
        context.beforeDelete = () -> context.putSeal(Seal.NONE);
        parts.deletes.go();
        context.runCursor();
        parts.deletes.go();
        assertFalse(context.isDeleted(1, 5));
        assertTrue(parts.positions.contains(1, 5), "somebody must have it read again first");
        parts.check();
    }

    @Test
    void whatTheCursorDeletesAndCannotStoreIsNotGivenUp() {
        acknowledgeAllBut(0);
        forgetInACrash();
        world.broker.failingStores = 3;
        world.toShim(Integer.MAX_VALUE);
        world.runUntil(world.now() + 5000);
        assertEquals(0, world.core().stats().settling());
        assertEquals(9, index().acknowledged.size(), index().acknowledged.toString());
        assertEquals(2, world.broker.failingStores, "what is deleted is not deleted again");
    }

    @Test
    void whatAClosedCursorRefusesIsNotGivenUp() {
        world.broker.connect();
        index().acknowledged.add(publish(1, 0));
        publish(2, 60_000);
        theDaemonKnowsTheSubscription();
        world.daemon.commit();
        world.broker.undeletable.add(new Position(1, 1));
        world.broker.beforeDelete = () -> world.broker.closeCursor(1000);
        world.runUntil(world.now() + 10_000);
        assertTrue(world.core().isFinished());
        world.takeOver(world.broker);
        world.broker.connect();
        world.runUntil(world.now() + 1000);
        assertTrue(world.broker.isDeleted(1, 1), "the next owner has it deleted");
        assertEquals(List.of(), delivered());
    }
}
