package tidegate.pulsar.gate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Random;
import java.util.Set;
import org.junit.jupiter.api.Test;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.Records;

/** When the dispatcher may read. */
class ReadGateTest extends TrackerScenario {
    @Test
    void nothingMoreIsReadUntilTheDaemonHasSaidWhatItHolds() {
        start();
        for (int entry = 0; entry < 500; entry++) {
            publish(entry, 60_000);
        }
        world.runUntil(world.now() + 500);
        world.crashBroker();
        world.daemon.answersOpen = false;
        world.broker.connect();
        world.settle();
        int before = world.broker.reads;
        assertTrue(before < 500, before + " reads");
        // But not for ever: it could be that there is no answer, and messages that are not delayed wait, too.
        publish(500, -1);
        world.runUntil(world.now() + 900);
        assertEquals(before, world.broker.reads);
        assertEquals(List.of(), delivered());
        world.runUntil(world.now() + 200);
        assertEquals(List.of(500L), delivered());
    }

    @Test
    void aDaemonThatHasAnIndexLogToReadIsGivenMoreTime() {
        world.daemon.answersOpen = false;
        world.broker.logPointer = "1;7;;bookkeeper";
        world.hasAFormerOwner();
        publish(0, 60_000);
        world.broker.connect();
        world.settle();
        int before = world.broker.reads;
        publish(1, -1);
        world.runUntil(ToyWorld.START_MS + 4_900);
        assertEquals(before, world.broker.reads);
        assertEquals(List.of(), delivered());
        world.runUntil(ToyWorld.START_MS + 5_100);
        assertEquals(List.of(1L), delivered());
    }

    private List<Long> times() {
        return world.broker.deliveries.stream().map(one -> one.atMs() - ToyWorld.START_MS).toList();
    }

    /** No tracker has told a daemon anything of it. */
    @Test
    void aNewSubscriptionWaitsForNoAbsentDaemon() {
        world.daemonUp = false;
        world.daemonWaitMs = 10_000;
        world.broker.connect();
        publish(1, 0);
        publish(2, 700);
        publish(3, 30_000);
        world.runUntil(ToyWorld.START_MS + 31_000);
        assertEquals(List.of(1L, 2L, 3L), delivered());
        assertTrue(times().get(0) <= 50, times().toString());
        assertEquals(List.of(700L, 30_000L), times().subList(1, 3));
        publish(4, 60_000);
        world.settle();
        world.daemonUp = true;
        world.settle();
        assertEquals(4, index().held.size());
        world.acknowledgeAll();
        world.runUntil(world.now() + 61_000);
        assertEquals(List.of(1L, 2L, 3L, 4L), delivered());
    }

    @Test
    void aNewSubscriptionGivesASilentDaemonASecond() {
        world.daemon.answersOpen = false;
        world.daemonWaitMs = 10_000;
        world.broker.connect();
        publish(1, 700);
        publish(2, 3_000);
        world.runUntil(ToyWorld.START_MS + 900);
        assertEquals(List.of(), delivered());
        world.runUntil(ToyWorld.START_MS + 4_000);
        assertEquals(List.of(1L, 2L), delivered());
        assertTrue(times().get(0) <= 1_100, times().toString());
        assertEquals(3_000L, times().get(1));
    }

    /** Before it knows the rules, a tracker does not open its stream. */
    @Test
    void theSecondBeginsWhereTheDaemonCanBeAsked() {
        world.daemon.answersOpen = false;
        world.daemonWaitMs = 10_000;
        world.broker.tellsPolicy = false;
        world.broker.connect();
        publish(1, 700);
        world.runUntil(ToyWorld.START_MS + 3_000);
        world.broker.tellsPolicy = true;
        world.runUntil(ToyWorld.START_MS + 3_800);
        assertEquals(List.of(), delivered());
        world.runUntil(ToyWorld.START_MS + 5_100);
        assertEquals(List.of(1L), delivered());
    }

    /** Before the claim is stored, another owner may come between. */
    @Test
    void whoeverCannotClaimWaitsAsIfThereWereAFormerOwner() {
        world.daemonUp = false;
        world.daemonWaitMs = 10_000;
        world.broker.refusesMetadata = true;
        world.broker.connect();
        publish(1, 0);
        world.runUntil(ToyWorld.START_MS + 9_900);
        assertEquals(List.of(), delivered());
        world.runUntil(ToyWorld.START_MS + 10_100);
        assertEquals(List.of(1L), delivered());
    }

    @Test
    void aDaemonAbsentAtTheStartIsWaitedForThenDoneWithout() {
        world.daemonUp = false;
        world.daemonWaitMs = 10_000;
        world.hasAFormerOwner();
        world.broker.connect();
        publish(1, 0);
        publish(2, 30_000);
        publish(3, -1);
        world.runUntil(world.now() + 9_900);
        assertEquals(List.of(3L), delivered());
        world.runUntil(world.now() + 200);
        assertEquals(List.of(3L, 1L), delivered());
        world.runUntil(ToyWorld.START_MS + 30_000);
        assertEquals(List.of(3L, 1L, 2L), delivered());
        // When it comes at last, it learns everything.
        publish(4, 60_000);
        world.settle();
        world.daemonUp = true;
        world.settle();
        assertEquals(Set.of(new Position(1, 1), new Position(1, 2), new Position(1, 4)), index().held.keySet());
        world.runUntil(world.now() + 61_000);
        assertEquals(List.of(3L, 1L, 2L, 4L), delivered());
    }

    @Test
    void readingPausesWhenTooMuchWaitsForTheDaemon() {
        world.maxPendingEntries = 50;
        start();
        publish(0, 100_000);
        world.settle();
        world.daemonUp = false;
        world.crashDaemon();
        for (int entry = 1; entry < 500; entry++) {
            publish(entry, 10_000);
        }
        world.settle();
        assertTrue(world.core().stats().paused());
        assertTrue(world.core().stats().pending() <= 50 + world.broker.readBatch, world.core().stats().toString());
        // Due messages are delivered all the same.
        world.broker.permits = 1000;
        world.runUntil(world.now() + 10_000);
        assertTrue(delivered().size() >= 50, delivered().size() + " delivered");
        world.daemonUp = true;
        assertTrue(world.runUntil(() -> delivered().size() == 499, 20_000));
        assertFalse(world.core().stats().paused());
    }

    /** Its entries wait until somebody helps: others must not wait with them. */
    @Test
    void whereTheTimesOfMovedMessagesCannotBeReadASubscriptionLeavesRoomForTheOthers() {
        world.maxPendingEntries = 500;
        start();
        Position moved = publish(0, 1_000);
        Records records = new Records();
        records.add(moved.ledgerId(), moved.entryId(), world.now() + 60_000);
        world.settle();
        world.daemon.reschedule(7, false, records);
        world.settle();
        world.crashBroker();
        world.broker.failingOverrides = 100;
        world.broker.luck = new Random(1);
        world.broker.connect();
        for (int entry = 1; entry < 600; entry++) {
            publish(entry, 2_000);
        }
        world.runUntil(world.now() + 30_000);
        assertEquals(List.of(), delivered());
        assertTrue(world.core().stats().overridesUnread());
        assertTrue(world.core().stats().paused());
        assertTrue(world.core().stats().undecided() <= 50 + world.broker.readBatch, world.core().stats().toString());
        world.broker.failingOverrides = 0;
        world.broker.permits = 1000;
        assertTrue(world.runUntil(() -> delivered().size() == 600, 120_000), delivered().size() + " delivered");
        assertFalse(world.core().stats().overridesUnread());
        assertFalse(world.core().stats().paused());
    }
}
