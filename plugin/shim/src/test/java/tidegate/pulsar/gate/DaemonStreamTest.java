package tidegate.pulsar.gate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;
import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.PositionBitmaps;
import tidegate.pulsar.wire.ProtocolException;

/** The tracker and its daemon: opening, claiming, credit, clearing, and sending again. */
class DaemonStreamTest extends TrackerScenario {
    @Test
    void untilTheDaemonHasAnsweredEverythingDelayedIsTracked() {
        world.daemon.answersOpen = false;
        start();
        publish(1, 0);
        publish(2, 5000);
        publish(3, -1);
        world.settle();
        assertEquals(List.of(3L), delivered());
        assertTrue(world.core().queue().contains(1, 1));
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
        assertFalse(world.core().queue().contains(1, 2));
        world.runUntil(ToyWorld.START_MS + 60_000);
        assertEquals(Set.of(1L, 3L, 4L, 5L), new HashSet<>(delivered()));
        assertEquals(4, delivered().size());
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
        assertEquals(501, world.core().queue().delayedMessages());
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
        assertFalse(world.core().queue().contains(1, 1));
        assertEquals(Set.of(new Position(1, 0)), index().held.keySet());
    }

    @Test
    void nothingIsToldTheDaemonBeforeTheSubscriptionIsOwned() {
        world.broker.metadataConflicts = 4;
        start();
        publish(1, 60_000);
        world.settle();
        assertFalse(world.core().handler().isOpen());
        assertTrue(world.daemon.received.stream().noneMatch(Frame.Open.class::isInstance));
        world.runUntil(world.now() + 5_000);
        assertTrue(world.core().handler().isOpen());
        assertEquals(1, world.broker.disk.ownership.epoch());
        assertEquals(1, index().held.size());
    }

    @Test
    void whoCannotOwnTheSubscriptionGatesInMemory() {
        world.daemonWaitMs = 10_000;
        world.broker.connect();
        // The topic belongs to another broker by now, with writes that come first.
        world.broker.disk.version = 99;
        publish(1, 0);
        publish(2, 30_000);
        world.runUntil(world.now() + 9_900);
        assertEquals(List.of(), delivered());
        world.runUntil(world.now() + 40_000);
        assertEquals(List.of(1L, 2L), delivered());
        assertFalse(world.core().handler().isOpen());
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
            assertTrue(world.core().handler().isOpen());
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
        assertTrue(world.core().handler().isOpen());
        assertEquals(2, world.broker.disk.ownership.epoch());
    }

    private List<Frame.Open> opens() {
        return world.daemon.received.stream().filter(Frame.Open.class::isInstance).map(Frame.Open.class::cast).toList();
    }

    @Test
    void aStreamIsOpenedAgainUnderTheSameClaim() {
        world.broker.connect();
        publish(1, 60_000);
        Position last = publish(2, 60_000);
        world.settle();
        publish(3, 60_000);
        world.settle();
        world.disconnect();
        world.settle();
        world.daemon.failStreams();
        world.runUntil(world.now() + 3_000);
        assertEquals(3, opens().size());
        for (Frame.Open open : opens()) {
            assertEquals(1, open.epoch());
            assertEquals(world.broker.disk.ownership.claims(), open.claims());
            assertEquals(last, new Position(open.endLedgerId(), open.endEntryId()), "where the topic ended when it was claimed");
        }
        assertEquals(3, index().held.size(), "what came behind that is no reason to doubt");
    }

    @Test
    void aRuleSwitchesTheIndexLogAtTheNextOpening() {
        world.broker.logHome = "bookkeeper";
        world.broker.connect();
        publish(1, 60_000);
        world.settle();
        for (boolean on : new boolean[] {false, true}) {
            world.broker.policy = new DelayPolicy(List.of(), DelayPolicy.NO_QUOTA, on);
            world.runUntil(world.now() + 3_000);
            world.disconnect();
            world.settle();
        }
        assertEquals(List.of("bookkeeper", "", "bookkeeper"), opens().stream().map(Frame.Open::logHome).toList());
    }

    @Test
    void whoHasLostItsClaimOpensUnderAnotherOne() {
        start();
        publish(1, 60_000);
        world.settle();
        Position last = publish(2, 60_000);
        world.settle();
        world.daemon.failStreams(ProtocolException.STALE_EPOCH);
        world.runUntil(world.now() + 3_000);
        Frame.Open first = opens().get(0);
        Frame.Open second = opens().get(1);
        assertEquals(2, second.epoch());
        assertEquals(2, second.claims().size());
        assertEquals(first.claims(), second.claims().subList(0, 1));
        assertEquals(world.broker.disk.ownership.claims(), second.claims());
        assertEquals(last, new Position(second.endLedgerId(), second.endEntryId()));
    }

    @Test
    void eachOwnerTellsTheClaimsOfThoseBefore() {
        start();
        publish(1, 3_600_000);
        world.settle();
        for (int owner = 2; owner <= 70; owner++) {
            world.unload(0);
            world.broker.connect();
            world.runUntil(world.now() + 1000);
        }
        List<Frame.Open> opens = opens();
        assertEquals(70, opens.size());
        for (int i = 1; i < opens.size(); i++) {
            List<Integer> before = opens.get(i - 1).claims();
            List<Integer> claims = opens.get(i).claims();
            assertEquals(Math.min(64, i + 1), claims.size());
            assertEquals(before.subList(before.size() - claims.size() + 1, before.size()), claims.subList(0, claims.size() - 1));
        }
        assertEquals(70, new HashSet<>(opens.stream().map(open -> open.claims().get(open.claims().size() - 1)).toList()).size());
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
        assertTrue(world.core().handler().isOpen());
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
    void aClockThatRanAheadStarvesNoSoonerEntryOfCredit() {
        world.credit = 4;
        start();
        for (int entry = 0; entry < 4; entry++) {
            publish(entry, 3_000_000);
        }
        world.runUntil(world.now() + 1000);
        world.clock.set(world.now() + 2_998_500);
        world.runUntil(world.now() + 100);
        world.clock.set(world.now() - 2_998_600);
        publish(4, 60_000);
        world.runUntil(world.now() + 60_000 + 100);
        assertEquals(List.of(4L), delivered());
    }

    @Test
    void aDaemonThatKeepsLessCreditThanItIsGivenGetsItBackInTime() {
        world.credit = 100;
        world.daemon.creditMax = 5;
        start();
        for (int entry = 0; entry < 20; entry++) {
            publish(entry, 10_000);
        }
        world.settle();
        world.runUntil(world.now() + 12_000);
        assertEquals(20, delivered().size());
    }

    @Test
    void dueOfSomethingAlreadyAcknowledgedIsReportedNotDelivered() {
        start();
        Position position = publish(2, 10_000);
        publish(1, 60_000);
        world.settle();
        // Acknowledged by id, never delivered.
        world.broker.acknowledge(world.broker.consumers.get(0), position);
        world.runUntil(world.now() + 11_000);
        assertEquals(List.of(), delivered());
        assertTrue(index().acknowledged.contains(position));
        assertFalse(index().held.containsKey(position));
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
        // When killed, the daemon has the frames in memory only.
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
        assertFalse(world.core().handler().isOpen());
        world.runUntil(world.now() + 2_000);
        assertTrue(world.core().handler().isOpen());
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
        CompletableFuture<Void> cleared = world.core().queue().clear();
        assertFalse(cleared.isDone());
        world.settle();
        assertTrue(cleared.isDone());
        assertTrue(index().held.isEmpty());
        assertEquals(0, world.core().queue().delayedMessages());
    }

    /** A future's continuations run where it is completed: Pulsar's own code, with locks of its own. */
    @Test
    void whatWaitsForATrackerIsToldWithoutItsLock() {
        start();
        publish(1, 60_000);
        world.settle();
        world.broker.disconnectAll();
        TrackerCore core = world.core();
        List<String> told = new ArrayList<>();
        core.queue().clear().thenRun(() -> told.add(core.holdsLock() ? "locked" : "free"));
        core.queue().clear().thenRun(() -> told.add(core.holdsLock() ? "locked" : "free"));
        core.whenClosed().thenRun(() -> told.add(core.holdsLock() ? "locked" : "free"));
        assertEquals(List.of("free"), told, "the second takes the place of the first");
        world.settle();
        core.release();
        assertEquals(List.of("free", "free", "free"), told);
    }

    /** The daemon would refuse it, and would get the tracker's remaining changes once more. */
    @Test
    void aFinishedTrackerTellsNothingBehindItsClose() {
        start();
        publish(1, 60_000);
        world.settle();
        TrackerCore core = world.core();
        core.queue().addMessage(1, 2, world.now() + 60_000);
        core.close();
        world.broker.closeCursor(1000);
        core.monitor().look();
        PositionBitmaps lost = new PositionBitmaps();
        lost.add(1, 2);
        core.handler().onUnheld(new Frame.Unheld(lost));
        world.settle();
        List<Frame> received = world.daemon.received;
        assertEquals(new Frame.Close(), received.get(received.size() - 1));
        assertTrue(index().held.containsKey(new Position(1, 2)));
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
        assertTrue(world.core().queue().clear().isDone());
        world.settle();
        assertEquals(2, world.core().queue().delayedMessages());
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
        assertTrue(world.core().queue().clear().isDone());
        world.broker.connect();
        publish(2, 60_000);
        world.settle();
        assertEquals(1, index().held.size());
        world.daemonUp = true;
        world.settle();
        assertEquals(Set.of(new Position(1, 2)), index().held.keySet());
        assertTrue(world.core().queue().contains(1, 2));
        assertFalse(world.core().queue().contains(1, 1));
    }

    /** A consumer that connects before everything is forgotten has read some of it, and does not rewind. */
    @Test
    void aConsumerThatConnectsWhileEverythingIsForgottenReadsItAgain() {
        start();
        publish(1, 60_000);
        world.settle();
        world.broker.disconnectAll();
        world.broker.clearBacklog();
        world.broker.afterConsumersSeen = () -> {
            world.broker.connect();
            publish(2, 1000);
            world.runBroker();
        };
        world.core().queue().clear();
        world.runUntil(world.now() + 2000);
        assertEquals(List.of(2L), delivered());
    }

    /**
     * Otherwise a daemon that comes and goes would fill the broker's memory, whatever the limit on entries that wait for it
     * at a time.
     */
    @Test
    void whatAnOutageLeavesInTheBrokerIsTheDaemonsAfterTheNext() {
        world.broker.permits = 100;
        start();
        publish(0, 60_000);
        world.settle();
        for (int outage = 0; outage < 3; outage++) {
            world.daemonUp = false;
            world.disconnect();
            for (int i = 1; i <= 11; i++) {
                publish(outage * 11 + i, i == 11 ? 1_000 : 60_000);
            }
            world.settle();
            assertTrue(world.core().stats().near() >= 11, "gated here for want of a daemon");
            world.daemonUp = true;
            world.settle();
            assertTrue(world.core().stats().near() <= 13, world.core().stats().toString());
        }
        world.disconnect();
        world.settle();
        assertEquals(3, world.core().stats().near(), "what is due soon");
        world.runUntil(world.now() + 61_000);
        assertEquals(34, delivered().size());
        assertEquals(34, Set.copyOf(delivered()).size());
    }

    /** The daemon has lost everything, and the unacknowledged entries in a consumer's hands are put in again. */
    @Test
    void aRebuildBringsNothingThatAConsumerHasInHand() {
        rebuildOfWhatIsInHand(true);
    }

    @Test
    void aRebuildBeforeTheBrokerIsBackBringsNothingThatAConsumerHasInHand() {
        rebuildOfWhatIsInHand(false);
    }

    private void rebuildOfWhatIsInHand(boolean isOpen) {
        start();
        List<Position> inHand = new ArrayList<>();
        for (int entry = 0; entry < 10; entry++) {
            inHand.add(publish(entry, 100));
        }
        runFor(500);
        assertEquals(inHand.size(), delivered().size());
        Position acknowledged = inHand.get(3);
        world.broker.acknowledge(world.broker.consumers.get(0), acknowledged);
        world.wipeDaemon();
        if (isOpen) {
            world.settle();
        }
        for (Position one : inHand) {
            world.daemon.takeIn(ToyBroker.TOPIC, ToyBroker.SUBSCRIPTION, one, world.now() - 400);
        }
        world.broker.connect(); // another consumer with room
        runFor(5_000);
        assertEquals(inHand.size(), delivered().size(), "nothing came twice");
        world.broker.disconnect(world.broker.consumers.get(0));
        runFor(5_000);
        assertEquals(2 * inHand.size() - 1, delivered().size(), "the rest went to the other one, once");
        world.core().check();
    }
}
