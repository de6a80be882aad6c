package tidegate.pulsar.gate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import tidegate.pulsar.position.NearTier;
import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.FrameCodec;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.Records;
import tidegate.pulsar.wire.ReleasePace;
import tidegate.pulsar.wire.Standing;

/** Due messages leave at the subscription's pace: held back and never lost, and as told. */
class PacerTest extends TrackerScenario {
    private Frame.Paced pace(ReleasePace pace) {
        return ask(false, pace);
    }

    private Frame.Paced ask(boolean ask, ReleasePace pace) {
        world.daemon.paced.clear();
        world.daemon.pace(7, ask, pace);
        world.toShim(Integer.MAX_VALUE);
        world.broker.runCursor();
        world.toDaemon();
        return world.daemon.paced.get(7L);
    }

    /** With a tracker, which comes with the first delayed message. */
    private void startTracking() {
        start();
        publish(0, 3_600_000);
        world.settle();
    }

    private static Frame.Paced inForce(ReleasePace pace, int heldBack) {
        return new Frame.Paced(pace, heldBack, "");
    }

    private void publishMany(int count, long delayMs) {
        for (int entry = 1; entry <= count; entry++) {
            publish(entry, delayMs);
        }
    }

    private void consumeAll(long forMs) {
        for (long end = world.now() + forMs; world.now() < end; ) {
            world.runUntil(Math.min(end, world.now() + 10));
            world.acknowledgeAll();
        }
    }

    @Test
    void nothingLeavesWhilePausedAndEverythingAfter() {
        start();
        publishMany(10, 1_000);
        world.settle();
        assertEquals(inForce(ReleasePace.PAUSED, 0), pace(ReleasePace.PAUSED));
        publish(11, 0);
        publish(12, -1);
        world.runUntil(world.now() + 60_000);
        assertEquals(List.of(12L), delivered(), "a message without a delivery time");
        assertEquals(inForce(ReleasePace.PAUSED, 11), ask(true, ReleasePace.NONE));
        assertEquals(11, world.core().stats().heldBack());
        assertEquals(inForce(ReleasePace.NONE, 0), pace(ReleasePace.NONE));
        consumeAll(1_000);
        assertEquals(List.of(12L, 1L, 2L, 3L, 4L, 11L, 5L, 6L, 7L, 8L, 9L, 10L), delivered(), "the oldest five first");
    }

    @Test
    void ofTwoPacesRightAfterEachOtherTheLastHolds() {
        start();
        publishMany(3, 1_000);
        world.settle();
        world.daemon.paced.clear();
        world.daemon.pace(7, false, ReleasePace.PAUSED);
        world.daemon.pace(8, false, ReleasePace.NONE);
        world.toShim(Integer.MAX_VALUE);
        for (int stored = 0; stored < 2; stored++) {
            world.broker.runCursor();
        }
        world.toDaemon();
        assertEquals(inForce(ReleasePace.PAUSED, 0), world.daemon.paced.get(7L));
        assertEquals(inForce(ReleasePace.NONE, 0), world.daemon.paced.get(8L));
        assertEquals(ReleasePace.NONE, world.daemon.knownPace());
        consumeAll(1_000);
        assertEquals(List.of(1L, 2L, 3L), delivered());
    }

    @Test
    void aPausedTrackerWakesNobodyAndIsAskedForNothing() {
        start();
        publishMany(5, 1_000);
        world.settle();
        pace(ReleasePace.PAUSED);
        world.runUntil(world.now() + 2_000);
        int rounds = world.broker.rounds;
        world.runUntil(world.now() + 60_000);
        assertEquals(NearTier.NONE, world.broker.wakeMs);
        assertEquals(rounds, world.broker.rounds);
        assertFalse(world.core().queue().hasDue());
        assertTrue(world.core().queue().contains(1, 1));
    }

    @Test
    void itOutlivesCrashesOfBothAndAnUnload() {
        start();
        publishMany(5, 1_000);
        world.settle();
        pace(ReleasePace.PAUSED);
        world.daemon.commit();
        world.crashDaemon();
        world.crashBroker();
        world.broker.connect();
        world.daemon.paced.clear();
        world.runUntil(world.now() + 5_000);
        assertEquals(inForce(ReleasePace.PAUSED, 0), world.daemon.paced.get(0L), "told right after OPEN");
        world.unload(0);
        world.broker.connect();
        world.runUntil(world.now() + 5_000);
        world.wipeDaemon();
        world.runUntil(world.now() + 5_000);
        assertEquals(List.of(), delivered());
        assertEquals(inForce(ReleasePace.NONE, 0), pace(ReleasePace.NONE));
        consumeAll(1_000);
        assertEquals(List.of(1L, 2L, 3L, 4L, 5L), delivered());
    }

    /** The dispatcher is made anew, as for another subscription type, while the pace is being written. */
    private Frame.Paced paceAmidReplacement(ReleasePace pace) {
        TrackerCore former = world.core();
        world.daemon.paced.clear();
        world.daemon.pace(7, false, pace);
        world.toShim(Integer.MAX_VALUE);
        world.broker.replaceDispatcher();
        world.broker.connect();
        world.runBroker();
        assertNotSame(former, world.core());
        world.broker.runCursor();
        assertEquals(pace, world.broker.pace());
        world.toDaemon();
        return world.daemon.paced.get(7L);
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void aPaceWrittenAfterTheNextTrackerHasReadItIsNotDoneAndComesIntoForce(boolean pauses) {
        world.broker.permits = 1_000;
        start();
        publishMany(5, 1_000);
        world.settle();
        if (!pauses) {
            pace(ReleasePace.PAUSED);
            world.runUntil(world.now() + 2_000);
        }
        Frame.Paced answer = paceAmidReplacement(pauses ? ReleasePace.PAUSED : ReleasePace.NONE);
        assertTrue(answer == null || !answer.why().isEmpty(), answer + " of a tracker that ends");
        world.runUntil(world.now() + 3_000);
        assertEquals(pauses ? 0 : 5, delivered().size());
        assertEquals(pauses ? ReleasePace.PAUSED : ReleasePace.NONE, world.daemon.knownPace(), "the daemon shows it unasked");
        assertEquals(pauses ? inForce(ReleasePace.PAUSED, 5) : inForce(ReleasePace.NONE, 0), ask(true, ReleasePace.NONE));
    }

    @Test
    void aPaceStoredForAStreamThatIsGoneIsToldOnTheNext() {
        start();
        publishMany(5, 1_000);
        world.settle();
        world.daemon.pace(7, false, ReleasePace.PAUSED);
        world.toShim(Integer.MAX_VALUE);
        world.disconnect();
        world.connect();
        for (int i = 0; i < 3; i++) {
            world.toDaemon();
            world.toShim(Integer.MAX_VALUE);
        }
        assertEquals(ReleasePace.NONE, world.daemon.knownPace(), "it is not stored yet");
        world.broker.runCursor();
        assertEquals(ReleasePace.PAUSED, world.broker.pace());
        world.toDaemon();
        assertEquals(ReleasePace.PAUSED, world.daemon.knownPace());
    }

    @Test
    void anAnswerThatComesLateIsFollowedByThePaceInForce() {
        startTracking();
        world.core().paces().sent(inForce(ReleasePace.rate(5), 0));
        world.toDaemon();
        assertEquals(inForce(ReleasePace.NONE, 0), world.daemon.paced.get(0L));
    }

    @Test
    void anOwnerThatDecidesAloneKeepsThePause() {
        world.daemonWaitMs = 500;
        start();
        publishMany(5, 1_000);
        world.settle();
        pace(ReleasePace.PAUSED);
        world.daemonUp = false;
        world.crashBroker();
        world.broker.connect();
        world.runUntil(world.now() + 10_000);
        assertEquals(List.of(), delivered());
        world.daemonUp = true;
        world.runUntil(world.now() + 2_000);
        assertEquals(List.of(), delivered());
        pace(ReleasePace.NONE);
        consumeAll(1_000);
        assertEquals(5, delivered().size());
    }

    @Test
    void whatWaitsForAConsumerIsTakenBackAndWhatOneHadComesAgain() {
        world.broker.permits = 2;
        start();
        publishMany(5, 100);
        world.runUntil(world.now() + 300);
        assertEquals(List.of(1L, 2L), delivered(), "the others were given to the dispatcher");
        pace(ReleasePace.PAUSED);
        ToyBroker.ToyConsumer consumer = world.broker.consumers.get(0);
        world.broker.negativeAcknowledge(consumer, new Position(1, 1));
        world.broker.acknowledge(consumer, new Position(1, 2));
        world.runUntil(world.now() + 5_000);
        assertEquals(List.of(1L, 2L, 1L), delivered(), "a consumer gave it back");
        pace(ReleasePace.NONE);
        consumeAll(1_000);
        assertEquals(List.of(1L, 2L, 1L, 3L, 4L, 5L), delivered());
    }

    @Test
    void afterTheLastConsumerWhatItHadWaitsToo() {
        start();
        publishMany(3, 100);
        world.runUntil(world.now() + 300);
        pace(ReleasePace.PAUSED);
        world.broker.disconnectAll();
        world.broker.connect();
        world.runUntil(world.now() + 5_000);
        assertEquals(List.of(1L, 2L, 3L), delivered());
        pace(ReleasePace.NONE);
        consumeAll(1_000);
        assertEquals(6, delivered().size());
    }

    @Test
    void itIsInForceOnceItIsStored() {
        start();
        publishMany(3, 1_000);
        world.settle();
        world.broker.metadataConflicts = 1;
        Frame.Paced refused = pace(ReleasePace.PAUSED);
        assertEquals(ReleasePace.NONE, refused.pace());
        assertFalse(refused.why().isEmpty());
        world.runUntil(world.now() + 2_000);
        assertEquals(List.of(1L, 2L, 3L), delivered());
    }

    @Test
    void aNewSubscriptionNeedsAConsumer() {
        start();
        publishMany(3, 3_000);
        world.settle();
        world.broker.isStored = false;
        world.broker.disconnectAll();
        assertTrue(pace(ReleasePace.PAUSED).why().contains("once a consumer is connected"));
        world.broker.connect();
        world.settle();
        assertEquals("", pace(ReleasePace.PAUSED).why());
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 3, 20, 500})
    void aRateLetsSoManyLeaveASecond(int rate) {
        world.broker.permits = 1_000;
        world.broker.readBatch = 100;
        world.credit = 3_000;
        startTracking();
        pace(ReleasePace.rate(rate));
        publishMany(rate * 4, 1_000);
        world.settle();
        consumeAll(1_000 + 2_100);
        int bucket = Math.max(1, rate / 20);
        int got = delivered().size();
        assertTrue(got >= 2 * rate - bucket && got <= 2.1 * rate + bucket, got + " came at " + rate + " a second");
        consumeAll(3_000);
        assertEquals(rate * 4, delivered().size());
        world.broker.deliveries.forEach(one -> assertTrue(one.atMs() >= one.deliverAtMs()));
        for (int i = 0; i < got; i++) {
            assertEquals(i + 1, delivered().get(i), "the oldest first");
        }
    }

    @Test
    void aBurstIsSpreadEvenlyAndHasLeftAtTheEnd() {
        world.broker.permits = 1_000;
        world.broker.readBatch = 100;
        world.credit = 3_000;
        startTracking();
        assertEquals("", pace(ReleasePace.spread(10_000)).why());
        publishMany(400, 1_000);
        world.settle();
        consumeAll(1_000);
        for (int second = 1; second <= 10; second++) {
            consumeAll(1_000);
            int got = delivered().size();
            assertTrue(Math.abs(got - 40 * second) <= 20, got + " have come after " + second + " s");
        }
        consumeAll(1_000);
        assertEquals(400, delivered().size());
    }

    @Test
    void aReleaseHastensNoSpread() {
        world.broker.permits = 1_000;
        startTracking();
        Records released = new Records();
        for (int entry = 1; entry <= 40; entry++) {
            publish(entry, 3_600_000);
            released.add(1, entry, 0);
        }
        assertEquals("", pace(ReleasePace.spread(10_000)).why());
        world.runUntil(world.now() + 60_000);
        for (int entry = 41; entry <= 80; entry++) {
            publish(entry, 1_000);
        }
        consumeAll(2_000);
        world.daemon.reschedule(8, false, released);
        world.toShim(Integer.MAX_VALUE);
        for (int i = 0; i < 8; i++) {
            world.broker.runCursor();
        }
        world.toDaemon();
        assertEquals(Standing.SETTLED, world.daemon.rescheduled.get(8L).standing());
        consumeAll(4_000);
        assertTrue(delivered().size() < 60, delivered().size() + " of 80 have left after half of the time");
        consumeAll(8_000);
        assertEquals(80, delivered().size());
    }

    @Test
    void aSpreadCountsWhatTheDaemonHasNoCreditFor() {
        world.broker.permits = 1_000;
        world.broker.readBatch = 100;
        world.credit = 20;
        startTracking();
        pace(ReleasePace.spread(10_000));
        world.nearMaxEntries = 0;
        publishMany(400, 5_000);
        consumeAll(5_000);
        for (int second = 1; second <= 10; second++) {
            world.core().paces().behind(new Frame.Behind(Math.max(0, 380 - delivered().size())));
            consumeAll(1_000);
            int got = delivered().size();
            assertTrue(Math.abs(got - 40 * second) <= 40, got + " have come after " + second + " s");
        }
        consumeAll(2_000);
        assertEquals(400, delivered().size());
    }

    @Test
    void aSteadyStreamIsLateByNoMoreThanTheSpread() {
        world.broker.permits = 1_000;
        startTracking();
        pace(ReleasePace.spread(4_000));
        for (int entry = 1; entry <= 200; entry++) {
            publish(entry, entry * 100L);
        }
        consumeAll(25_000);
        assertEquals(200, delivered().size());
        world.broker.deliveries.forEach(one -> assertTrue(one.atMs() >= one.deliverAtMs() && one.atMs() <= one.deliverAtMs() + 4_100,
                () -> one + " was late"));
    }

    @Test
    void aRateStartsAnewAndLetsNothingOutAtOnce() {
        world.broker.permits = 1_000;
        start();
        publishMany(50, 1_000);
        world.settle();
        pace(ReleasePace.rate(2));
        for (int i = 0; i < 10; i++) {
            consumeAll(400);
            world.crashBroker();
            world.broker.connect();
        }
        assertTrue(delivered().size() <= 10, delivered() + " came in 4 s");
    }

    @Test
    void aClockSetBackStopsARateForAMomentOnly() {
        world.broker.permits = 1_000;
        startTracking();
        pace(ReleasePace.rate(10));
        publishMany(50, 0);
        consumeAll(1_000);
        int before = delivered().size();
        assertTrue(before <= 11, before + " came in a second");
        world.clock.set(world.now() - 30_000);
        pace(ReleasePace.rate(10));
        publish(60, -1);
        consumeAll(500);
        // Those that were due are not, by this clock; they are when it is right again.
        world.clock.set(world.now() + 30_000);
        consumeAll(1_000);
        assertTrue(delivered().size() >= before + 10, delivered().size() + " after " + before);
    }

    @Test
    void anOlderDaemonHearsOfNoPace() {
        world.daemon.version = FrameCodec.VERSION_WITH_PACE - 1;
        startTracking();
        world.broker.putPace(ReleasePace.PAUSED, written -> { });
        world.broker.runCursor();
        world.runUntil(world.now() + 3_000);
        world.disconnect();
        world.runUntil(world.now() + 3_000);
        assertTrue(world.daemon.received.stream().noneMatch(Frame.Paced.class::isInstance));
        world.disconnect();
        world.daemon.version = FrameCodec.VERSION;
        world.runUntil(world.now() + 3_000);
        assertEquals(ReleasePace.PAUSED, world.daemon.knownPace());
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void aDaemonThatComesBackAgainAndAgainFillsNothing(boolean breaks) {
        world.credit = 8;
        world.nearMaxEntries = 6;
        startTracking();
        pace(ReleasePace.PAUSED);
        publishMany(200, 10_000);
        world.runUntil(world.now() + 13_000);
        for (int i = 0; i < 10; i++) {
            if (breaks) {
                world.crashDaemon();
            } else {
                world.daemon.failStreams();
            }
            world.runUntil(world.now() + 3_000);
            world.core().check();
            assertTrue(world.core().stats().near() <= 16, world.core().stats().near() + " are near");
        }
        pace(ReleasePace.NONE);
        world.broker.permits = 1_000;
        consumeAll(10_000);
        assertEquals(200, delivered().stream().distinct().count());
    }

    @Test
    void nearStaysWithinItsBoundWhilePaused() {
        world.credit = 4;
        world.nearMaxEntries = 6;
        startTracking();
        pace(ReleasePace.PAUSED);
        publishMany(100, 500);
        world.runUntil(world.now() + 5_000);
        assertTrue(world.core().stats().near() <= 10, world.core().stats().near() + " are near");
        assertEquals(List.of(), delivered());
        pace(ReleasePace.NONE);
        world.broker.permits = 1_000;
        consumeAll(5_000);
        assertEquals(100, delivered().stream().distinct().count());
        assertEquals(100, delivered().size());
    }
}
