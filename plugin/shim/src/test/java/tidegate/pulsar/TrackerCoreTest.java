package tidegate.pulsar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import tidegate.pulsar.TrackerHost.Position;

/** One promise of the tracker at a time, against the toy broker and the toy daemon. */
class TrackerCoreTest {
    private final ToyWorld world = new ToyWorld(new Random(1));

    @AfterEach
    void theDaemonHadNothingToRefuse() {
        assertEquals(List.of(), world.daemon.violations);
    }

    private Position publish(long entryId, long delayMs) {
        return world.broker.publish(new Position(1, entryId), delayMs < 0 ? -1 : world.now() + delayMs);
    }

    private List<Long> delivered() {
        return world.broker.deliveries.stream().map(delivery -> delivery.position().entryId()).toList();
    }

    private void start() {
        world.broker.connect();
        world.settle();
    }

    private ToyDaemon.Index index() {
        return world.daemon.index(ToyBroker.TOPIC, ToyBroker.SUBSCRIPTION);
    }

    /** The daemon has met the subscription before, and the cursor has the seal of then. */
    private void theDaemonKnowsTheSubscription() {
        world.broker.recreate(Ownership.first(new Random(5)));
        world.broker.putSeal(77);
        index().incarnation = world.broker.ownership().incarnation();
        index().generation = 77;
    }

    @Test
    void deliversAtTheMillisecondAndNeverEarlier() {
        start();
        publish(1, 1);
        publish(2, 1234);
        publish(3, 60_000);
        publish(4, 0);
        publish(5, -1);
        world.settle();
        assertEquals(Set.of(4L, 5L), new HashSet<>(delivered()));
        world.runUntil(ToyWorld.START_MS + 70_000);
        for (ToyBroker.Delivery delivery : world.broker.deliveries) {
            if (delivery.deliverAtMs() >= 0) {
                assertEquals(delivery.deliverAtMs(), delivery.atMs(), "entry " + delivery.position());
            }
        }
        assertEquals(List.of(1L, 2L, 3L), delivered().subList(2, 5));
    }

    @Test
    void aFarEntryIsTheDaemonsUntilItIsNearlyDue() {
        start();
        publish(1, 60_000);
        world.settle();
        assertEquals(0, world.core().stats().near());
        assertEquals(1, index().held.size());
        assertEquals(1, world.core().delayedMessages());
        world.runUntil(ToyWorld.START_MS + 58_100);
        assertEquals(1, world.core().stats().near());
        world.runUntil(ToyWorld.START_MS + 60_000);
        assertEquals(List.of(1L), delivered());
        assertEquals(0, world.core().delayedMessages());
        assertTrue(world.core().contains(1, 1), "handed out: the cursor must not read it again");
        world.acknowledgeAll();
        world.settle();
        assertFalse(world.core().contains(1, 1));
        assertTrue(index().held.isEmpty());
    }

    @Test
    void untilTheDaemonHasAnsweredEverythingDelayedIsTracked() {
        world.daemon.answersOpen = false;
        start();
        publish(1, 0);
        publish(2, 5000);
        publish(3, -1);
        world.settle();
        assertEquals(List.of(3L), delivered());
        assertTrue(world.core().contains(1, 1));
        assertEquals(2, world.core().stats().undecided());
    }

    @Test
    void theAnswerToOpenDecidesAboutHeldAcknowledgedAndNew() {
        world.broker.connect();
        Position held = publish(1, 60_000);
        Position acknowledged = publish(2, 0);
        Position overdueHeld = publish(3, 0);
        publish(4, 60_000);
        publish(5, 0);
        theDaemonKnowsTheSubscription();
        index().held.put(held, world.broker.log.get(held));
        index().held.put(overdueHeld, world.broker.log.get(overdueHeld));
        index().acknowledged.add(acknowledged);
        world.daemon.commit();
        world.settle();
        assertEquals(Set.of(3L, 5L), new HashSet<>(delivered()));
        assertTrue(world.broker.isDeleted(1, 2), "what was acknowledged before is acknowledged in the cursor again");
        assertEquals(Set.of(held, overdueHeld, new Position(1, 4), new Position(1, 5)), index().held.keySet());
        assertFalse(world.core().contains(1, 2));
        world.runUntil(ToyWorld.START_MS + 60_000);
        assertEquals(Set.of(1L, 3L, 4L, 5L), new HashSet<>(delivered()));
        assertEquals(4, delivered().size());
    }

    @Test
    void whatIsHeldIsNotReadAgainAfterAFailover() {
        start();
        for (int entry = 0; entry < 500; entry++) {
            publish(entry, 60_000);
        }
        world.runUntil(world.now() + 500);
        world.crashBroker();
        world.broker.connect();
        world.settle();
        assertTrue(world.broker.reads <= 8 * world.broker.readBatch, world.broker.reads + " reads");
        world.runUntil(world.now() + 61_000);
        while (!world.broker.isFullyAcknowledged()) {
            world.acknowledgeAll();
            world.settle();
        }
        assertEquals(500, delivered().size());
    }

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
    void whatTheDaemonTookInSinceIsNotReadAndComesOnTime() {
        start();
        publish(0, 60_000);
        world.settle();
        long dueMs = world.now() + 60_000;
        for (int entry = 1; entry <= 500; entry++) {
            world.daemon.takeIn(ToyBroker.TOPIC, ToyBroker.SUBSCRIPTION, new Position(1, entry), dueMs);
        }
        world.settle();
        assertEquals(501, world.core().delayedMessages());
        int before = world.broker.reads;
        for (int entry = 1; entry <= 500; entry++) {
            publish(entry, 60_000);
        }
        world.settle();
        assertTrue(world.broker.reads - before <= 2 * world.broker.readBatch, world.broker.reads - before + " reads");
        assertEquals(List.of(), delivered());
        world.runUntil(dueMs);
        while (!world.broker.isFullyAcknowledged()) {
            world.acknowledgeAll();
            world.settle();
        }
        assertEquals(501, delivered().size());
    }

    @Test
    void whatWasAcknowledgedBeforeItWasTakenInStaysAcknowledged() {
        start();
        publish(0, 60_000);
        Position gone = publish(1, 0);
        world.settle();
        world.acknowledgeAll();
        // The shim has not told the daemon yet.
        world.daemon.takeIn(ToyBroker.TOPIC, ToyBroker.SUBSCRIPTION, gone, world.now());
        world.settle();
        world.runUntil(world.now() + 10_000);
        assertEquals(List.of(1L), delivered());
        assertFalse(world.core().contains(1, 1));
        assertEquals(Set.of(new Position(1, 0)), index().held.keySet());
    }

    @Test
    void whenAllConsumersAreReplacedWhatTheyHeldIsDueAgain() {
        start();
        for (int entry = 0; entry < 12; entry++) {
            publish(entry, 100);
        }
        world.runUntil(world.now() + 200);
        assertEquals(12, delivered().size());
        world.broker.disconnectAll();
        world.settle();
        assertEquals(12, delivered().size());
        world.broker.connect();
        world.settle();
        assertEquals(24, delivered().size());
        assertEquals(12, new HashSet<>(delivered().subList(12, 24)).size());
    }

    @Test
    void aReplacementShowsEvenIfTheReadPositionDoesNotMove() {
        start();
        publish(1, 0);
        world.settle();
        world.acknowledgeAll();
        world.settle();
        // 1:2 was never read by this cursor: it comes from the index alone, as after a failover.
        publish(2, -1);
        world.settle();
        world.acknowledgeAll();
        Position far = publish(3, 5_000);
        world.settle();
        world.broker.persistCursor(1000);
        world.crashBroker();
        world.broker.connect();
        publish(4, 20_000);
        world.runUntil(world.now() + 6_000);
        assertEquals(3L, delivered().get(delivered().size() - 1));
        int before = delivered().size();
        world.broker.disconnectAll();
        world.broker.connect();
        world.settle();
        assertEquals(before + 1, delivered().size());
        assertEquals(far, world.broker.deliveries.get(before).position());
    }

    @Test
    void oneConsumerOfTwoLeavingRedeliversOnlyItsOwn() {
        world.broker.permits = 3;
        start();
        world.broker.connect();
        for (int entry = 0; entry < 6; entry++) {
            publish(entry, 100);
        }
        world.runUntil(world.now() + 200);
        assertEquals(6, delivered().size());
        world.broker.permits = 100;
        world.broker.disconnect(world.broker.consumers.get(0));
        world.settle();
        assertEquals(9, delivered().size());
    }

    @Test
    void aNegativeAcknowledgementIsDeliveredAgainAtOnce() {
        start();
        Position position = publish(1, 100);
        world.runUntil(world.now() + 100);
        world.broker.negativeAcknowledge(world.broker.consumers.get(0), position);
        world.settle();
        assertEquals(List.of(1L, 1L), delivered());
    }

    @Test
    void overlappingReplayReadsDeliverOnce() {
        start();
        Position position = publish(1, 100);
        world.runUntil(world.now() + 100);
        world.broker.replayTwice(position);
        assertEquals(List.of(1L), delivered(), "still with its consumer");

        world.broker.acknowledge(world.broker.consumers.get(0), position);
        world.broker.replayTwice(position);
        assertEquals(List.of(1L), delivered(), "acknowledged, not yet reported");

        world.runUntil(world.now() + 1000);
        world.broker.replayTwice(position);
        world.runUntil(world.now() + 1000);
        assertEquals(List.of(1L), delivered(), "acknowledged and reported");
        assertFalse(world.broker.core.contains(1, 1), "left to the cursor");
    }

    @Test
    void seekingBackTakesAcknowledgementsBack() {
        start();
        publish(0, -1);
        for (int entry = 1; entry < 10; entry++) {
            publish(entry, 100);
        }
        world.runUntil(world.now() + 200);
        // The first stays, so that the others are individual acknowledgements.
        ToyBroker.ToyConsumer consumer = world.broker.consumers.get(0);
        for (Position position : List.copyOf(consumer.pending)) {
            if (position.entryId() != 0) {
                world.broker.acknowledge(consumer, position);
            }
        }
        world.settle();
        assertEquals(9, index().acknowledged.size());
        world.broker.deliveries.clear();
        world.broker.reset(new Position(1, 4));
        world.broker.connect();
        world.settle();
        assertEquals(List.of(4L, 5L, 6L, 7L, 8L, 9L), delivered());
        assertTrue(index().acknowledged.isEmpty(), index().acknowledged.toString());
        // And a crash must not bring the former acknowledgements back.
        world.crashBroker();
        world.broker.deliveries.clear();
        world.broker.connect();
        world.settle();
        assertEquals(Set.of(4L, 5L, 6L, 7L, 8L, 9L), new HashSet<>(delivered()));
    }

    /** All but one of ten are acknowledged, and the daemon knows. */
    private void acknowledgeAllBut(long kept) {
        start();
        publish(0, -1);
        for (int entry = 1; entry < 10; entry++) {
            publish(entry, 100);
        }
        world.runUntil(world.now() + 200);
        ToyBroker.ToyConsumer consumer = world.broker.consumers.get(0);
        for (Position position : List.copyOf(consumer.pending)) {
            if (position.entryId() != kept) {
                world.broker.acknowledge(consumer, position);
            }
        }
        world.broker.persistCursor(1000);
        world.runUntil(world.now() + 2000);
        world.broker.deliveries.clear();
    }

    @Test
    void seekingBackWhileTheTopicHasNoTracker() {
        acknowledgeAllBut(5);
        assertEquals(new Position(1, 4), index().markDelete);
        world.crashBroker();
        world.broker.deliveries.clear();
        world.broker.reset(new Position(1, 2));
        world.broker.connect();
        world.runUntil(world.now() + 2000);
        assertEquals(Set.of(2L, 3L, 4L, 5L, 6L, 7L, 8L, 9L), new HashSet<>(delivered()));
        assertEquals(8, delivered().size());
    }

    /** Mark-delete does not show the reset: the first message had not been acknowledged. */
    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void aResetWhileTheTopicHasNoTrackerBringsEverythingAgain(boolean graceful) {
        acknowledgeAllBut(0);
        if (graceful) {
            world.unload(2);
        } else {
            world.crashBroker();
        }
        world.watch();
        world.broker.reset(new Position(1, 0));
        world.broker.connect();
        world.runUntil(world.now() + 2000);
        assertEquals(Set.of(0L, 1L, 2L, 3L, 4L, 5L, 6L, 7L, 8L, 9L), new HashSet<>(delivered()));
        assertEquals(10, delivered().size());
    }

    @Test
    void acknowledgementsAreBelievedOverUnloadsAndCrashesWithoutAReset() {
        acknowledgeAllBut(0);
        for (int i = 0; i < 5; i++) {
            if (i % 2 == 0) {
                world.unload(0);
            } else {
                world.crashBroker();
            }
            world.broker.connect();
            world.runUntil(world.now() + 2000);
        }
        assertEquals(Set.of(0L), new HashSet<>(delivered()));
        assertEquals(9, index().acknowledged.size());
    }

    @Test
    void aResetBetweenLookingAndTellingIsNotTold() {
        start();
        for (int entry = 0; entry < 5; entry++) {
            publish(entry, 100);
        }
        world.runUntil(world.now() + 200);
        for (Position position : List.copyOf(world.broker.consumers.get(0).pending)) {
            if (position.entryId() != 0) {
                world.broker.acknowledge(world.broker.consumers.get(0), position);
            }
        }
        world.broker.deliveries.clear();
        // The watch has seen them deleted, and asks for the seal next.
        world.broker.beforeSeal = () -> world.broker.reset(new Position(1, 0));
        world.watch();
        assertTrue(index().acknowledged.isEmpty());
        world.broker.connect();
        world.runUntil(world.now() + 1000);
        assertEquals(Set.of(0L, 1L, 2L, 3L, 4L), new HashSet<>(delivered()));
        assertTrue(index().acknowledged.isEmpty(), index().acknowledged.toString());
        world.crashBroker();
        world.broker.deliveries.clear();
        world.broker.connect();
        world.runUntil(world.now() + 1000);
        assertEquals(Set.of(0L, 1L, 2L, 3L, 4L), new HashSet<>(delivered()));
    }

    @Test
    void whatWasAcknowledgedBeforeAResetIsNeverToldAfterIt() {
        start();
        for (int entry = 0; entry < 5; entry++) {
            publish(entry, 100);
        }
        world.runUntil(world.now() + 200);
        world.daemonUp = false;
        world.crashDaemon();
        for (Position position : List.copyOf(world.broker.consumers.get(0).pending)) {
            if (position.entryId() != 0) {
                world.broker.acknowledge(world.broker.consumers.get(0), position);
            }
        }
        world.watch();
        // The shim knows; the daemon, who is away, does not.
        world.broker.reset(new Position(1, 0));
        world.broker.deliveries.clear();
        world.daemonUp = true;
        world.broker.connect();
        world.runUntil(world.now() + 1000);
        assertEquals(Set.of(0L, 1L, 2L, 3L, 4L), new HashSet<>(delivered()));
        assertTrue(index().acknowledged.isEmpty(), index().acknowledged.toString());
    }

    @Test
    void twoResetsInARowAreTwoResets() {
        acknowledgeAllBut(0);
        world.broker.reset(new Position(1, 5));
        world.watch();
        world.broker.reset(new Position(1, 2));
        world.broker.connect();
        world.runUntil(world.now() + 2000);
        assertEquals(Set.of(2L, 3L, 4L, 5L, 6L, 7L, 8L, 9L), new HashSet<>(delivered()));
        assertEquals(8, delivered().size());
        assertTrue(index().acknowledged.isEmpty());
    }

    /** Pulsar removes the seal first; the acknowledgements stay until the new position is stored. */
    @Test
    void aResetThatTakesItsTimeIsLookedAtInBetween() {
        acknowledgeAllBut(0);
        world.broker.beginReset(new Position(1, 0));
        // The acknowledgements are there still: they are told under another seal, which goes with them.
        world.runUntil(world.now() + 500);
        assertEquals(9, index().acknowledged.size());
        world.broker.completeReset();
        world.broker.connect();
        world.runUntil(world.now() + 2000);
        assertEquals(10, delivered().size());
        assertTrue(index().acknowledged.isEmpty(), index().acknowledged.toString());
    }

    @Test
    void aResetThatWasNeverAnsweredTakesNothingBack() {
        acknowledgeAllBut(0);
        world.broker.beginReset(new Position(1, 0));
        world.runUntil(world.now() + 500);
        world.crashBroker();
        world.broker.connect();
        world.runUntil(world.now() + 2000);
        // The record is the old one, with its seal; that the daemon has another now costs repetition, no more.
        assertTrue(delivered().contains(0L));
        assertEquals(delivered().size(), new HashSet<>(delivered()).size());
    }

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

    /** Should a write of the cursor that raced with the reset ever put the seal back. */
    @Test
    void aResetThatLeavesTheSealShowsInWhatIsAcknowledged() {
        acknowledgeAllBut(0);
        long seal = world.broker.seal();
        world.broker.reset(new Position(1, 0));
        world.broker.putSeal(seal);
        world.settle();
        assertTrue(index().acknowledged.isEmpty(), "the watch has seen it: " + index().acknowledged);
        world.broker.connect();
        world.runUntil(world.now() + 2000);
        assertEquals(10, delivered().size());
    }

    @Test
    void aResetThatLeavesTheSealShowsInWhatIsRead() {
        acknowledgeAllBut(0);
        long seal = world.broker.seal();
        world.broker.reset(new Position(1, 0));
        world.broker.putSeal(seal);
        world.broker.connect();
        world.daemon.received.clear();
        // Nobody looks at the cursor before it is read again.
        world.runBroker();
        world.toDaemon();
        assertEquals(List.of(new Frame.Close()), world.daemon.received, "to be opened under another seal");
        world.runUntil(world.now() + 2000);
        assertEquals(10, delivered().size());
        assertTrue(index().acknowledged.isEmpty());
    }

    @Test
    void aResetThatLeavesTheSealShowsInTheAnswerToOpen() {
        acknowledgeAllBut(0);
        long seal = world.broker.seal();
        world.disconnect();
        world.broker.reset(new Position(1, 0));
        world.broker.putSeal(seal);
        while (!world.core().isOpen()) {
            world.connect();
            world.toDaemon();
            world.toShim(Integer.MAX_VALUE);
        }
        assertEquals(0, world.core().stats().settling(), "what this tracker has seen deleted only a reset takes back");
        world.broker.connect();
        world.runUntil(world.now() + 2000);
        assertEquals(10, delivered().size());
        assertTrue(index().acknowledged.isEmpty());
    }

    @Test
    void aResetIsNoticedBeforeAnythingIsReadAgain() {
        start();
        for (int entry = 0; entry < 10; entry++) {
            publish(entry, 100);
        }
        world.runUntil(world.now() + 200);
        world.acknowledgeAll();
        world.broker.persistCursor();
        world.runUntil(world.now() + 2000);
        assertEquals(new Position(1, 9), index().markDelete);
        world.broker.log.replaceAll((position, at) -> world.now() + 30_000);
        world.broker.reset(new Position(1, 3));
        world.broker.connect();
        // Read and told, with no look at the cursor but the one before the read.
        for (int i = 0; i < 5; i++) {
            world.runBroker();
            world.toDaemon();
            world.daemon.commit();
            world.toShim(Integer.MAX_VALUE);
        }
        assertEquals(7, index().held.size(), "the daemon heard of mark-delete before the adds");
        assertFalse(world.broker.rereadRequested);
    }

    @Test
    void aResetBetweenLookingAtWhatIsDueAndTellingIsNotTold() {
        start();
        publish(1, 60_000);
        Position position = publish(2, 10_000);
        world.settle();
        // Acknowledged by id, without ever having been delivered.
        world.broker.acknowledge(world.broker.consumers.get(0), position);
        world.clock.advance(9_000);
        world.daemon.tick(world.now());
        world.broker.beforeSeal = () -> world.broker.reset(new Position(1, 1));
        world.toShim(Integer.MAX_VALUE);
        world.broker.connect();
        world.runUntil(world.now() + 2_000);
        assertEquals(List.of(2L), delivered());
        assertFalse(index().acknowledged.contains(position));
    }

    @Test
    void aClearedSubscriptionHasNothingDoubtfulLeft() {
        acknowledgeAllBut(0);
        world.broker.disconnectAll();
        world.broker.beginReset(new Position(1, 0));
        // It is looked at, but not yet again.
        world.core().shouldPause();
        world.core().clear();
        world.settle();
        assertTrue(index().acknowledged.isEmpty(), index().acknowledged.toString());
    }

    @Test
    void aResetThatLeavesTheSealShowsInMarkDelete() {
        start();
        for (int entry = 0; entry < 10; entry++) {
            publish(entry, 100);
        }
        world.runUntil(world.now() + 200);
        world.acknowledgeAll();
        world.broker.persistCursor();
        world.runUntil(world.now() + 2000);
        assertEquals(new Position(1, 9), index().markDelete);
        long seal = world.broker.seal();
        world.broker.deliveries.clear();
        world.broker.reset(new Position(1, 3));
        world.broker.putSeal(seal);
        world.watch();
        world.broker.log.replaceAll((position, at) -> world.now() + 30_000);
        world.broker.connect();
        world.settle();
        assertEquals(7, index().held.size(), "the daemon heard of mark-delete before the adds");
        world.runUntil(world.now() + 30_000);
        assertEquals(7, delivered().size());
    }

    /** Skipping replaces the seal as a reset does, but takes nothing back. */
    @Test
    void skippingForgetsNothingThatWasAcknowledged() {
        start();
        publish(0, -1);
        for (int entry = 1; entry < 10; entry++) {
            publish(entry, 100);
        }
        world.runUntil(world.now() + 200);
        for (Position position : List.copyOf(world.broker.consumers.get(0).pending)) {
            if (position.entryId() > 4) {
                world.broker.acknowledge(world.broker.consumers.get(0), position);
            }
        }
        world.runUntil(world.now() + 2000);
        assertEquals(5, index().acknowledged.size());
        world.broker.clearBacklog(new Position(1, 2));
        world.runUntil(world.now() + 1000);
        assertEquals(5, index().acknowledged.size(), "told again under the new seal");
        world.daemon.received.clear();
        world.runUntil(world.now() + 1000);
        assertTrue(world.daemon.received.stream().noneMatch(Frame.Ack.class::isInstance), "and once");
        world.broker.persistCursor(0);
        world.crashBroker();
        world.broker.deliveries.clear();
        world.broker.connect();
        world.runUntil(world.now() + 2000);
        assertEquals(Set.of(3L, 4L), new HashSet<>(delivered()));
    }

    @Test
    void aCrashRightAfterTheSealWasPutCostsRepetitionOnly() {
        start();
        publish(0, -1);
        for (int entry = 1; entry < 10; entry++) {
            publish(entry, 100);
        }
        world.runUntil(world.now() + 200);
        world.broker.persistedRanges = 0;
        for (Position position : List.copyOf(world.broker.consumers.get(0).pending)) {
            if (position.entryId() != 0) {
                world.broker.acknowledge(world.broker.consumers.get(0), position);
            }
        }
        world.runUntil(world.now() + 500);
        assertEquals(9, index().acknowledged.size());
        // The record on disk is of before the seal.
        world.broker.loseRecord();
        world.crashBroker();
        world.broker.deliveries.clear();
        world.broker.connect();
        world.runUntil(world.now() + 2000);
        assertEquals(10, new HashSet<>(delivered()).size());
        assertEquals(10, delivered().size());
        world.acknowledgeAll();
        world.runUntil(world.now() + 2000);
        assertTrue(world.broker.isFullyAcknowledged());
    }

    @Test
    void whatASuccessorInheritsIsOfItsSealOrNothing() {
        acknowledgeAllBut(0);
        world.daemonUp = false;
        world.disconnect();
        Position late = publish(20, -1);
        publish(21, 100);
        world.runUntil(world.now() + 500);
        world.broker.acknowledge(world.broker.consumers.get(0), new Position(1, 21));
        world.watch();
        // Loaded again, reset, and only then does a tracker follow the one that has something to tell.
        world.unload(0);
        world.broker.reset(new Position(1, 0));
        world.broker.deliveries.clear();
        world.broker.connect();
        world.settle();
        world.daemonUp = true;
        world.runUntil(world.now() + 2000);
        assertEquals(12, new HashSet<>(delivered()).size());
        assertTrue(delivered().contains(late.entryId()) && delivered().contains(21L));
        assertTrue(index().acknowledged.isEmpty(), index().acknowledged.toString());
    }

    @Test
    void nothingIsToldTheDaemonBeforeTheSubscriptionIsOwned() {
        world.broker.metadataConflicts = 4;
        start();
        publish(1, 60_000);
        world.settle();
        assertFalse(world.core().isOpen());
        assertTrue(world.daemon.received.stream().noneMatch(Frame.Open.class::isInstance));
        world.runUntil(world.now() + 5_000);
        assertTrue(world.core().isOpen());
        assertEquals(1, world.broker.disk.ownership.epoch());
        assertEquals(1, index().held.size());
    }

    @Test
    void whoCannotOwnTheSubscriptionGatesInMemory() {
        world.daemonWaitMs = 10_000;
        world.broker.connect();
        // The topic is another broker's by now: its writes come first.
        world.broker.disk.version = 99;
        publish(1, 0);
        publish(2, 30_000);
        world.runUntil(world.now() + 9_900);
        assertEquals(List.of(), delivered());
        world.runUntil(world.now() + 40_000);
        assertEquals(List.of(1L, 2L), delivered());
        assertFalse(world.core().isOpen());
    }

    @Test
    void eachTrackerHasAnEpochOfItsOwnWhateverTheClockSays() {
        start();
        publish(1, 60_000);
        world.settle();
        for (long epoch = 2; epoch < 6; epoch++) {
            world.clock.set(world.now() - 3_600_000);
            world.unload(0);
            world.broker.connect();
            world.runUntil(world.now() + 1000);
            assertTrue(world.core().isOpen());
            assertEquals(epoch, world.broker.disk.ownership.epoch());
        }
    }

    @Test
    void whoIsToldThatItsEpochIsOverClaimsAnotherOne() {
        start();
        publish(1, 60_000);
        world.settle();
        world.daemon.failStreams(ProtocolException.STALE_EPOCH);
        world.runUntil(world.now() + 3_000);
        assertTrue(world.core().isOpen());
        assertEquals(2, world.broker.disk.ownership.epoch());
    }

    @Test
    void aRefusedStreamIsOpenedAgainThoughTheClockIsSetBack() {
        start();
        publish(1, 10_000);
        world.settle();
        world.daemon.failStreams();
        world.toShim(100);
        world.clock.set(world.now() - 3_600_000);
        world.runUntil(world.now() + 2_000);
        assertTrue(world.core().isOpen());
    }

    @Test
    void aResetIsNotTakenForAForgottenAcknowledgement() {
        acknowledgeAllBut(0);
        assertEquals(9, index().acknowledged.size());
        world.disconnect();
        world.broker.reset(new Position(1, 0));
        // The answer to OPEN comes before anybody has looked at the cursor again.
        while (!world.core().isOpen()) {
            world.connect();
            world.toDaemon();
            world.daemon.commit();
            world.daemon.tick(world.now());
            world.toShim(Integer.MAX_VALUE);
        }
        assertEquals(0, world.core().stats().settling());
        world.broker.connect();
        world.settle();
        assertEquals(10, delivered().size());
        assertTrue(index().acknowledged.isEmpty(), index().acknowledged.toString());
    }

    @Test
    void aSeekBackWhileTheDaemonIsAwayIsToldEvenIfMarkDeleteWasAheadBefore() {
        acknowledgeAllBut(0);
        assertEquals(9, index().acknowledged.size());
        world.daemonUp = false;
        world.disconnect();
        world.acknowledgeAll();
        world.broker.persistCursor(1000);
        world.runUntil(world.now() + 2000);
        assertEquals(new Position(1, 9), world.broker.markDelete());
        world.broker.deliveries.clear();
        world.broker.reset(new Position(1, 5));
        world.broker.connect();
        world.daemonUp = true;
        world.runUntil(world.now() + 2000);
        assertEquals(Set.of(5L, 6L, 7L, 8L, 9L), new HashSet<>(delivered()));
        assertTrue(index().acknowledged.isEmpty(), index().acknowledged.toString());
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
    }

    @Test
    void seekingBackBehindThePersistedMarkDeleteTracksAgain() {
        start();
        for (int entry = 0; entry < 10; entry++) {
            publish(entry, 100);
        }
        world.runUntil(world.now() + 200);
        world.acknowledgeAll();
        world.broker.persistCursor(1000);
        world.runUntil(world.now() + 2000);
        assertEquals(new Position(1, 9), index().markDelete);
        world.broker.deliveries.clear();
        world.broker.reset(new Position(1, 3));
        world.broker.log.replaceAll((position, at) -> world.now() + 30_000);
        world.broker.connect();
        world.settle();
        assertEquals(7, index().held.size(), "the daemon's mark-delete went back before the adds");
        world.runUntil(world.now() + 30_000);
        assertEquals(7, delivered().size());
    }

    @Test
    void seekingForwardDropsWhatIsPassed() {
        start();
        for (int entry = 0; entry < 10; entry++) {
            publish(entry, 1000 + entry);
        }
        world.settle();
        assertEquals(10, world.core().delayedMessages());
        world.broker.reset(new Position(1, 8));
        world.broker.connect();
        world.runUntil(world.now() + 3000);
        assertEquals(List.of(8L, 9L), delivered());
        assertEquals(0, world.core().delayedMessages());
    }

    @Test
    void duplicatesOfDueAreIgnoredAndTheirCreditComesBack() {
        world.credit = 1;
        start();
        for (int entry = 0; entry < 20; entry++) {
            publish(entry, 10_000 + entry);
        }
        world.settle();
        world.runUntil(world.now() + 12_000);
        assertEquals(20, delivered().size());
        assertEquals(20, new HashSet<>(delivered()).size());
    }

    @Test
    void neverMoreDueThanThereIsCredit() {
        world.credit = 8;
        world.broker.permits = 0;
        start();
        for (int entry = 0; entry < 100; entry++) {
            publish(entry, 10_000);
        }
        world.broker.permits = 1000;
        world.settle();
        world.broker.permits = 0;
        world.runUntil(world.now() + 11_000);
        assertEquals(8, world.core().stats().near());
        world.broker.permits = 1000;
        world.broker.readRequested = true;
        assertTrue(world.runUntil(() -> delivered().size() == 100, 5_000));
    }

    @Test
    void dueOfSomethingAlreadyAcknowledgedIsReportedNotDelivered() {
        start();
        Position position = publish(2, 10_000);
        publish(1, 60_000);
        world.settle();
        // Acknowledged by id, without ever having been delivered.
        world.broker.acknowledge(world.broker.consumers.get(0), position);
        world.runUntil(world.now() + 11_000);
        assertEquals(List.of(), delivered());
        assertTrue(index().acknowledged.contains(position));
        assertFalse(index().held.containsKey(position));
    }

    @Test
    void acknowledgementsOutliveAKilledBroker() {
        start();
        publish(0, -1);
        for (int entry = 1; entry < 30; entry++) {
            publish(entry, 100);
        }
        world.broker.permits = 100;
        world.runUntil(world.now() + 200);
        ToyBroker.ToyConsumer consumer = world.broker.consumers.get(0);
        for (Position position : List.copyOf(consumer.pending)) {
            if (position.entryId() % 2 == 1) {
                world.broker.acknowledge(consumer, position);
            }
        }
        world.settle();
        world.crashBroker();
        world.broker.deliveries.clear();
        world.broker.connect();
        world.settle();
        assertTrue(delivered().stream().allMatch(entry -> entry % 2 == 0), delivered().toString());
        assertEquals(15, new HashSet<>(delivered()).size());
        assertTrue(world.broker.isDeleted(1, 7));
    }

    @Test
    void whatIsNotDurableIsSentAgainAndNumberedFromOne() {
        start();
        publish(1, 60_000);
        world.settle();
        publish(2, 61_000);
        publish(3, 62_000);
        world.runBroker();
        world.toDaemon();
        // The frames are in the daemon's memory only when it is killed.
        world.crashDaemon();
        assertEquals(1, index().held.size());
        publish(4, 63_000);
        world.runBroker();
        world.settle();
        assertEquals(4, index().held.size());
        world.runUntil(world.now() + 65_000);
        assertEquals(List.of(1L, 2L, 3L, 4L), delivered());
    }

    @Test
    void withoutADaemonWhatIsKnownIsStillDeliveredOnTime() {
        start();
        publish(0, 60_000);
        world.settle();
        publish(1, 1000);
        publish(2, 5000);
        world.runBroker();
        world.toDaemon();
        world.daemonUp = false;
        world.crashDaemon();
        publish(3, 3000);
        world.runUntil(world.now() + 10_000);
        assertEquals(List.of(1L, 3L, 2L), delivered());
        world.broker.deliveries.forEach(delivery -> assertEquals(delivery.deliverAtMs(), delivery.atMs()));
        world.daemonUp = true;
        world.acknowledgeAll();
        world.settle();
        assertEquals(Set.of(new Position(1, 0)), index().held.keySet());
        assertEquals(3, delivered().size());
    }

    @Test
    void aDaemonAbsentAtTheStartIsWaitedForThenDoneWithout() {
        world.daemonUp = false;
        world.daemonWaitMs = 10_000;
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
        // What is due is delivered all the same.
        world.broker.permits = 1000;
        world.runUntil(world.now() + 10_000);
        assertTrue(delivered().size() >= 50, delivered().size() + " delivered");
        world.daemonUp = true;
        assertTrue(world.runUntil(() -> delivered().size() == 499, 20_000));
        assertFalse(world.core().stats().paused());
    }

    @Test
    void aDaemonThatLostItsDiskMakesTheTopicBeReadAgain() {
        start();
        for (int entry = 0; entry < 20; entry++) {
            publish(entry, 60_000);
        }
        world.settle();
        assertEquals(20, index().held.size());
        world.wipeDaemon();
        world.settle();
        assertEquals(20, index().held.size());
        world.runUntil(world.now() + 60_000);
        assertEquals(20, delivered().size());
    }

    @Test
    void whatTheDaemonNoLongerHoldsIsReadAgain() {
        start();
        for (int entry = 0; entry < 20; entry++) {
            publish(entry, 60_000);
        }
        world.settle();
        world.daemon.corrupt(ToyBroker.TOPIC, ToyBroker.SUBSCRIPTION, new Position(1, 7));
        world.settle();
        assertEquals(20, index().held.size());
        world.runUntil(world.now() + 60_000);
        assertEquals(20, delivered().size());
    }

    @Test
    void aRefusedStreamIsOpenedAgain() {
        start();
        publish(1, 10_000);
        world.settle();
        publish(2, 11_000);
        world.runBroker();
        world.toDaemon();
        world.daemon.failStreams();
        world.toShim(100);
        assertFalse(world.core().isOpen());
        world.runUntil(world.now() + 2_000);
        assertTrue(world.core().isOpen());
        assertEquals(2, index().held.size());
        world.runUntil(world.now() + 11_000);
        assertEquals(List.of(1L, 2L), delivered());
    }

    @Test
    void clearForgetsEverythingHereAndThere() {
        start();
        for (int entry = 0; entry < 10; entry++) {
            publish(entry, 60_000);
        }
        world.settle();
        // Deleting a subscription: nobody is connected.
        world.broker.disconnectAll();
        CompletableFuture<Void> cleared = world.core().clear();
        assertFalse(cleared.isDone());
        world.settle();
        assertTrue(cleared.isDone());
        assertTrue(index().held.isEmpty());
        assertEquals(0, world.core().delayedMessages());
    }

    /** What follows a future runs where it is completed: Pulsar's own code, which takes locks of its own. */
    @Test
    void whatWaitsForATrackerIsToldWithoutItsLock() {
        start();
        publish(1, 60_000);
        world.settle();
        world.broker.disconnectAll();
        TrackerCore core = world.core();
        List<String> told = new ArrayList<>();
        core.clear().thenRun(() -> told.add(Thread.holdsLock(core) ? "locked" : "free"));
        core.clear().thenRun(() -> told.add(Thread.holdsLock(core) ? "locked" : "free"));
        core.whenClosed().thenRun(() -> told.add(Thread.holdsLock(core) ? "locked" : "free"));
        assertEquals(List.of("free"), told, "the second takes the place of the first");
        world.settle();
        core.release();
        assertEquals(List.of("free", "free", "free"), told);
    }

    @Test
    void clearingTheBacklogKeepsWhatWasReadSinceItWasAskedFor() {
        start();
        for (int entry = 0; entry < 10; entry++) {
            publish(entry, 60_000);
        }
        world.settle();
        Position last = world.broker.log.lastKey();
        publish(10, 60_000);
        publish(11, 1_000);
        world.settle();
        world.broker.clearBacklog(last);
        assertTrue(world.core().clear().isDone());
        world.settle();
        assertEquals(2, world.core().delayedMessages());
        assertEquals(Set.of(new Position(1, 10), new Position(1, 11)), index().held.keySet());
        world.runUntil(world.now() + 60_000);
        assertEquals(List.of(11L, 10L), delivered());
    }

    @Test
    void clearWithoutADaemonIsKeptForIt() {
        start();
        publish(1, 60_000);
        world.settle();
        world.daemonUp = false;
        world.disconnect();
        world.broker.disconnectAll();
        world.broker.clearBacklog();
        assertTrue(world.core().clear().isDone());
        world.broker.connect();
        publish(2, 60_000);
        world.settle();
        assertEquals(1, index().held.size());
        world.daemonUp = true;
        world.settle();
        assertEquals(Set.of(new Position(1, 2)), index().held.keySet());
        assertTrue(world.core().contains(1, 2));
        assertFalse(world.core().contains(1, 1));
    }

    @Test
    void aGracefulRestartRepeatsNothing() {
        start();
        publish(0, -1);
        for (int entry = 1; entry < 100; entry++) {
            publish(entry, 100);
        }
        world.broker.permits = 1000;
        world.runUntil(world.now() + 300);
        assertEquals(100, delivered().size());
        ToyBroker.ToyConsumer consumer = world.broker.consumers.get(0);
        for (Position position : List.copyOf(consumer.pending)) {
            if (position.entryId() % 2 == 1) {
                world.broker.acknowledge(consumer, position);
            }
        }
        // Nobody has looked at the cursor since; of the 50 acknowledgements the cursor keeps 3.
        world.unload(3);
        world.watch();
        world.settle();
        world.broker.deliveries.clear();
        world.broker.connect();
        world.settle();
        assertTrue(delivered().stream().allMatch(entry -> entry % 2 == 0), delivered().toString());
        assertEquals(50, delivered().size());
    }

    @Test
    void aSuccessorInheritsWhatTheDaemonHasNotHeard() {
        start();
        publish(0, -1);
        publish(1, 100);
        publish(2, 60_000);
        world.runUntil(world.now() + 200);
        world.daemonUp = false;
        world.crashDaemon();
        publish(3, 50_000);
        world.settle();
        world.broker.acknowledge(world.broker.consumers.get(0), new Position(1, 1));
        world.unload(0);
        world.broker.connect();
        world.settle();
        world.broker.deliveries.clear();
        world.daemonUp = true;
        world.settle();
        assertEquals(Set.of(new Position(1, 2), new Position(1, 3)), index().held.keySet());
        assertTrue(index().acknowledged.contains(new Position(1, 1)));
        world.runUntil(world.now() + 61_000);
        assertEquals(List.of(3L, 2L), delivered());
    }

    @Test
    void aRecreatedSubscriptionStartsEmpty() {
        start();
        for (int entry = 0; entry < 10; entry++) {
            publish(entry, 60_000);
        }
        world.settle();
        world.crashBroker();
        world.broker.recreate(Ownership.first(new Random(99)));
        world.broker.connect();
        world.settle();
        assertEquals(10, index().held.size());
        assertEquals(10, world.broker.reads, "the daemon forgot the former life, so the topic was read");
    }

    @Test
    void aClockSetBackMakesWhatWasHandedOutWaitAgain() {
        start();
        Position position = publish(1, 1000);
        world.runUntil(world.now() + 1000);
        assertEquals(1, delivered().size());
        world.clock.set(ToyWorld.START_MS);
        world.broker.negativeAcknowledge(world.broker.consumers.get(0), position);
        world.settle();
        assertEquals(1, delivered().size());
        world.runUntil(ToyWorld.START_MS + 1000);
        assertEquals(2, delivered().size());
    }

    @Test
    void equalTimesComeInPositionOrder() {
        start();
        List<Long> published = new ArrayList<>();
        for (long entry = 0; entry < 50; entry++) {
            publish(entry, 5000);
            published.add(entry);
        }
        world.broker.permits = 1000;
        world.runUntil(world.now() + 5000);
        assertEquals(published, delivered());
    }
}
