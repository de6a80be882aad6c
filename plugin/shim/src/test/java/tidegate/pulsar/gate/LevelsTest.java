package tidegate.pulsar.gate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.junit.jupiter.api.Test;
import tidegate.pulsar.wire.Frame;

/** Levels in the life of a subscription: rounded up when read, never early, with the daemon and without. */
class LevelsTest extends TrackerScenario {
    private static final List<Long> LEVELS = List.of(1_000L, 10_000L, 60_000L);

    private long left(long entry) {
        return world.broker.deliveries.stream().filter(one -> one.position().entryId() == entry)
                .mapToLong(one -> one.atMs() - ToyWorld.START_MS).findFirst().orElse(-1);
    }

    private void ruled(List<Long> levels) {
        world.broker.policy = new DelayPolicy(levels, DelayPolicy.NO_QUOTA, true);
    }

    @Test
    void delaysAreRoundedUpNearAndFarAndLongOnesStay() {
        ruled(LEVELS);
        start();
        publish(1, 700);
        publish(2, 1_000);
        publish(3, 3_000);
        publish(4, 12_000);
        publish(5, 61_500);
        publish(6, 0);
        publish(7, -1);
        world.settle();
        world.runUntil(ToyWorld.START_MS + 70_000);
        assertEquals(List.of(1_000L, 1_000L, 10_000L, 60_000L, 61_500L, 0L, 0L),
                List.of(left(1), left(2), left(3), left(4), left(5), left(6), left(7)));
    }

    @Test
    void aNewRuleHoldsForEntriesThatAreReadFromThenOn() {
        start();
        publish(1, 3_000);
        publish(2, 30_000);
        world.settle();
        ruled(LEVELS);
        world.runUntil(ToyWorld.START_MS + 2_000);
        publish(3, 3_000);
        world.settle();
        world.runUntil(ToyWorld.START_MS + 4_000);
        ruled(List.of());
        world.runUntil(ToyWorld.START_MS + 6_000);
        publish(4, 3_000);
        world.runUntil(ToyWorld.START_MS + 70_000);
        assertEquals(List.of(3_000L, 30_000L, 12_000L, 9_000L), List.of(left(1), left(2), left(3), left(4)));
    }

    /** The namespace's rules come from the metadata store, after the topic is loaded. */
    @Test
    void theFirstMessagesWaitForTheRules() {
        ruled(LEVELS);
        world.broker.tellsPolicy = false;
        start();
        publish(1, 700);
        publish(2, 3_000);
        publish(3, -1);
        runFor(300);
        assertEquals(List.of(3L), delivered(), "the one without a delay, read with the first");
        world.broker.tellsPolicy = true;
        runFor(150);
        publish(4, 3_000);
        world.runUntil(ToyWorld.START_MS + 20_000);
        assertTrue(left(4) >= 10_450 && left(4) <= 10_500, "by the rules: " + left(4));
        assertTrue(left(1) >= 1_000 && left(1) <= 1_450, "rounded once the rules are known: " + left(1));
        assertTrue(left(2) >= 10_000 && left(2) <= 10_450, "rounded once the rules are known: " + left(2));
    }

    @Test
    void theRulesDecideAboutTheIndexLogOfTheFirstOpening() {
        world.broker.policy = new DelayPolicy(List.of(), DelayPolicy.NO_QUOTA, false);
        world.broker.logHome = "bookkeeper";
        world.broker.tellsPolicy = false;
        start();
        publish(1, 60_000);
        runFor(300);
        world.broker.tellsPolicy = true;
        runFor(300);
        assertTrue(world.core().stats().open());
        assertEquals(List.of(""), world.daemon.received.stream().filter(Frame.Open.class::isInstance)
                .map(one -> ((Frame.Open) one).logHome()).toList());
    }

    /** A metadata store that never answers delays nothing for longer. */
    @Test
    void unknownRulesEndTheirWaitAfterFiveSeconds() {
        ruled(LEVELS);
        world.broker.tellsPolicy = false;
        start();
        publish(1, 700);
        publish(2, 8_000);
        world.runUntil(ToyWorld.START_MS + 4_900);
        assertEquals(List.of(), delivered());
        world.runUntil(ToyWorld.START_MS + 5_300);
        assertEquals(List.of(1L), delivered());
        world.runUntil(ToyWorld.START_MS + 8_100);
        assertEquals(List.of(8_000L), List.of(left(2)));
    }

    /** The index has the rounded time; whoever reads the message anew rounds the delay that is left. */
    @Test
    void afterAFailoverNothingIsEarlyAndNothingLost() {
        ruled(LEVELS);
        start();
        for (int entry = 0; entry < 50; entry++) {
            publish(entry, 500 + 137L * entry);
        }
        world.runUntil(ToyWorld.START_MS + 1_500);
        world.acknowledgeAll();
        world.crashBroker();
        world.broker.connect();
        while (world.now() < ToyWorld.START_MS + 70_000) {
            world.runUntil(world.now() + 500);
            world.acknowledgeAll();
        }
        assertEquals(50, Set.copyOf(delivered()).size());
        for (ToyBroker.Delivery one : world.broker.deliveries) {
            assertTrue(one.atMs() >= one.deliverAtMs(), "early: " + one);
        }
    }

    /** As the chunks of a message: a client drops one that comes before the first. */
    @Test
    void messagesOfOneTimeKeepTheirOrderWhereverALevelLiesBetweenTheirReads() {
        ruled(List.of(10_000L, 30_000L));
        start();
        long dueMs = 10_005;
        publish(1, dueMs);
        world.settle();
        world.runUntil(ToyWorld.START_MS + 10);
        publish(2, dueMs - 10);
        world.settle();
        world.runUntil(ToyWorld.START_MS + 31_000);
        assertEquals(List.of(1L, 2L), delivered());
        assertEquals(List.of(30_000L, 30_000L), List.of(left(1), left(2)));
    }

    @Test
    void withoutADaemonTheBrokerRoundsTheSame() {
        world.daemonWaitMs = 100;
        ruled(LEVELS);
        start();
        world.daemonUp = false;
        world.disconnect();
        publish(1, 3_000);
        world.runUntil(ToyWorld.START_MS + 20_000);
        assertTrue(left(1) >= 10_000 && left(1) < 10_300, "the wait for the daemon is over after 100 ms: " + left(1));
        assertEquals(Set.of(1L), new TreeSet<>(delivered()));
    }
}
