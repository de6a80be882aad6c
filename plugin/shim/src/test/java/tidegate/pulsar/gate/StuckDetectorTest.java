package tidegate.pulsar.gate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;
import tidegate.pulsar.position.NearTier;

/**
 * Tests entries that a Key_Shared dispatcher passes over while one consumer takes nothing; the toy broker looks ahead as Pulsar
 * 4.0 does.
 */
class StuckDetectorTest extends TrackerScenario {
    private static final long DELAY_MS = 5000;

    /** This many are due at once; all but those from {@code firstFree} on are for a consumer without permits. */
    private void stickAllBut(int entries, int firstFree) {
        world.broker.permits = 1000;
        world.broker.isForStuck = position -> position.entryId() < firstFree;
        start();
        for (int entry = 0; entry < entries; entry++) {
            publish(entry, DELAY_MS);
        }
        world.runUntil(world.now() + DELAY_MS - 100);
        assertEquals(List.of(), delivered());
    }

    @Test
    void whatIsDueForAFreeConsumerDoesNotWaitForTheStuckOne() {
        stickAllBut(100, 60);
        world.runUntil(world.now() + 100 + 500);
        assertEquals(LongStream.range(60, 100).boxed().toList(), delivered());
    }

    /** The stuck one's entries have made the looks rare by then. */
    @Test
    void nothingOfALaterBurstWaitsForTheStuckOne() {
        stickAllBut(100, 60);
        world.runUntil(world.now() + 17_000);
        world.broker.isForStuck = position -> position.entryId() % 100 < 60;
        for (int entry = 100; entry < 200; entry++) {
            publish(entry, DELAY_MS);
        }
        world.runUntil(world.now() + DELAY_MS + 500);
        assertEquals(
                LongStream.concat(LongStream.range(60, 100), LongStream.range(160, 200)).boxed().toList(), delivered());
    }

    @Test
    void aConsumerThatNeverTakesAnythingCostsFewRounds() {
        stickAllBut(100, 100);
        world.runUntil(world.now() + 3000);
        int before = world.broker.rounds;
        world.runUntil(world.now() + 100_000);
        assertTrue(world.broker.rounds - before <= 40, world.broker.rounds - before + " rounds in a hundred seconds");
    }

    /** Pulsar reads for the others when a consumer goes that had been given something, and only then. */
    @Test
    void whatAConsumerLeavesComes() {
        stickAllBut(10, 10);
        world.runUntil(world.now() + 12_000);
        ToyBroker.ToyConsumer stuck = new ToyBroker.ToyConsumer();
        world.broker.consumers.add(stuck);
        world.runUntil(world.now() + 12_000);
        world.broker.consumers.remove(stuck);
        world.broker.unstick();
        world.runUntil(world.now() + 200);
        assertEquals(10, delivered().size());
    }

    @Test
    void withoutPermitsNobodyIsWoken() {
        world.broker.permits = 5;
        start();
        for (int entry = 0; entry < 20; entry++) {
            publish(entry, DELAY_MS);
        }
        world.runUntil(world.now() + DELAY_MS + 1000);
        int before = world.broker.rounds;
        world.runUntil(world.now() + 60_000);
        // These are the looks for unreadable entries.
        assertTrue(world.broker.rounds - before <= 10, world.broker.rounds - before + " rounds in a minute");
        world.acknowledgeAll();
        world.settle();
        assertEquals(10, delivered().size());
    }

    @Test
    void aClockThatIsSetBackDelaysNoLook() {
        stickAllBut(100, 60);
        world.runUntil(world.now() + 101);
        world.clock.set(world.now() - 1000);
        world.runUntil(world.now() + 1000 + 1500);
        assertEquals(40, delivered().size());
    }

    /** At the topic's end nothing else begins a round. */
    @Test
    void aWakeUpThatComesToNothingIsRepeated() {
        start();
        publish(0, DELAY_MS);
        world.runUntil(world.now() + DELAY_MS - 1);
        world.broker.lostRequests = 1;
        world.runUntil(world.now() + 1);
        assertEquals(List.of(), delivered());
        assertEquals(0, world.broker.lostRequests, "it was woken");
        world.runUntil(world.now() + 10);
        assertEquals(List.of(0L), delivered());
    }

    @Test
    void aLostTimerCostsASecond() {
        start();
        publish(0, DELAY_MS);
        world.runUntil(world.now() + DELAY_MS - 1);
        world.broker.wakeMs = NearTier.NONE;
        world.runUntil(world.now() + 2500);
        assertEquals(List.of(0L), delivered());
    }

    /** A classic dispatcher asks once more right before a normal read, and that waits at the topic's end. */
    @Test
    void whatIsGivenRightBeforeANormalReadIsReplayed() {
        start();
        publish(0, DELAY_MS);
        world.runUntil(world.now() + DELAY_MS - 60);
        world.broker.isClassic = true;
        world.broker.beforeAsking = () -> world.clock.set(world.now() + 61);
        world.broker.readRequested = true;
        world.runBroker();
        assertEquals(List.of(), delivered(), "it was due between the questions");
        world.runUntil(world.now() + 100);
        assertEquals(List.of(0L), delivered());
    }
}
