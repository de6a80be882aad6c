package tidegate.pulsar.gate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Random;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;
import tidegate.pulsar.wire.Position;

/**
 * Tests the classic dispatcher, which asks for due entries twice a round, after its broker and the daemon were killed. Batches
 * were acknowledged in part: to the tracker, these are messages that a consumer had.
 */
class ClassicDispatcherTest {
    private static final long DUE_IN_MS = 40;
    private static final long LATE_MAX_MS = 50;

    /** Five messages have come and stay, two more are due soon. Then both are killed. */
    private static ToyWorld afterBothWereKilled() {
        ToyWorld world = new ToyWorld(new Random(1));
        world.broker.isClassic = true;
        world.broker.connect();
        world.settle();
        for (int entry = 1; entry <= 5; entry++) {
            world.broker.publish(new Position(1, entry), world.now() + 100);
        }
        world.runUntil(world.now() + 200);
        assertEquals(5, world.broker.deliveries.size());
        for (int entry = 6; entry <= 7; entry++) {
            world.broker.publish(new Position(1, entry), world.now() + DUE_IN_MS);
        }
        world.settle();
        world.broker.deliveries.clear();
        world.crashDaemon();
        world.crashBroker();
        return world;
    }

    /** Found by this sweep: after one reading of the answer to OPEN, two entries came with the next message only. */
    @Test
    void anEntryThatComesDueAtAnyReadingOfTheClockComes() {
        List<Long> owed = LongStream.rangeClosed(1, 7).boxed().toList();
        int readings = 0;
        for (boolean jumped = true; jumped;) {
            ToyWorld world = afterBothWereKilled();
            long dueMs = world.now() + DUE_IN_MS;
            world.clock.jumpAfter(++readings, dueMs);
            world.broker.connect();
            world.settle();
            world.runUntil(dueMs - 1);
            jumped = !world.clock.isToJump();
            world.runUntil(dueMs + LATE_MAX_MS);
            List<Long> came = world.broker.deliveries.stream().map(one -> one.position().entryId()).sorted().toList();
            assertEquals(owed, came, "due at reading " + readings);
            assertEquals(List.of(), world.daemon.violations);
        }
        assertTrue(readings > 100, readings + " readings are few");
    }
}
