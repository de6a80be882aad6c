package tidegate.pulsar.gate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import tidegate.pulsar.wire.Ownership;
import tidegate.pulsar.wire.Position;

/** One promise of the tracker at a time, against the toy broker and the toy daemon: who gets a message, when, and how often. */
class TrackerCoreTest extends TrackerScenario {
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
        assertEquals(1, world.core().queue().delayedMessages());
        world.runUntil(ToyWorld.START_MS + 58_100);
        assertEquals(1, world.core().stats().near());
        world.runUntil(ToyWorld.START_MS + 60_000);
        assertEquals(List.of(1L), delivered());
        assertEquals(0, world.core().queue().delayedMessages());
        assertTrue(world.core().queue().contains(1, 1), "handed out: the cursor must not read it again");
        world.acknowledgeAll();
        world.settle();
        assertFalse(world.core().queue().contains(1, 1));
        assertTrue(index().held.isEmpty());
    }

    @Test
    void whatWasReadBeforeItWasSkippedIsNotTracked() {
        start();
        publish(0, 60_000);
        publish(1, 60_000);
        world.settle();
        world.broker.acknowledge(world.broker.consumers.get(0), new Position(1, 0));
        world.settle();
        assertFalse(world.core().queue().contains(1, 0));
        assertTrue(world.core().queue().addMessage(1, 0, world.now() + 60_000), "it must not be delivered");
        assertFalse(world.core().queue().contains(1, 0));
        assertEquals(1, world.core().queue().delayedMessages());
    }

    /** Pulsar's Bucket tracker kept counting it, and popped it a second time (apache/pulsar#26251). */
    @Test
    void whatIsReadAgainOnceItIsDueIsDeliveredOnceAndCountsNoMore() {
        start();
        publish(1, 60_000);
        publish(2, 60_000);
        world.settle();
        assertEquals(2, world.core().queue().delayedMessages());
        assertFalse(world.core().queue().addMessage(1, 1, world.now()), "due: the dispatcher delivers it");
        assertEquals(1, world.core().queue().delayedMessages());
        world.runUntil(world.now() + 61_000);
        assertEquals(List.of(2L), delivered(), "the other one: the first is not handed out again");
        assertEquals(0, world.core().queue().delayedMessages());
    }

    /** Pulsar's in-memory tracker had positions read again and again before they were due (apache/pulsar#26188). */
    @Test
    void nothingIsHandedOutToBeReadBeforeItIsDue() {
        start();
        long firstMs = world.now() + 100;
        for (int entry = 0; entry < 10; entry++) {
            publish(entry, 100 + entry);
        }
        for (int entry = 0; entry < 10; entry++) {
            world.runUntil(firstMs + entry - 1);
            assertFalse(world.core().queue().hasDue(), "entry " + entry + " is due in a millisecond");
            assertEquals(entry, delivered().size());
        }
        world.runUntil(firstMs + 9);
        assertEquals(10, delivered().size());
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
    void whatConsumersHeldComesAgainAtOnceThoughTheClockIsSetRightMeanwhile() {
        start();
        for (int entry = 0; entry < 12; entry++) {
            publish(entry, 100);
        }
        world.runUntil(world.now() + 200);
        assertEquals(12, delivered().size());
        world.broker.disconnectAll();
        world.clock.set(world.now() + 4_000);
        world.broker.permits = 1;
        world.broker.connect();
        world.settle();
        assertEquals(13, delivered().size());
        world.clock.set(ToyWorld.START_MS + 300);
        world.acknowledgeAll();
        world.broker.permits = 20;
        world.runUntil(world.now() + 1_000);
        assertEquals(24, delivered().size());
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
        assertFalse(world.broker.core.queue().contains(1, 1), "left to the cursor");
    }

    /** Refused messages of a mixed load; for the rest, Pulsar's double reads are Pulsar's. */
    @Test
    void overlappingReplayReadsDeliverARefusedPlainMessageOnce() {
        start();
        publish(1, 100);
        Position plain = publish(2, -1);
        world.runUntil(world.now() + 200);
        world.broker.negativeAcknowledge(world.broker.consumers.get(0), plain);
        world.settle();
        assertEquals(List.of(2L, 1L, 2L), delivered());
        world.broker.replayTwice(plain);
        assertEquals(List.of(2L, 1L, 2L), delivered(), "still with its consumer");
        world.broker.acknowledge(world.broker.consumers.get(0), plain);
        world.broker.replayTwice(plain);
        assertEquals(List.of(2L, 1L, 2L), delivered(), "acknowledged");
    }

    /** Pulsar takes it from its consumer first; the cursor hears of it at the end of the whole command. */
    @Test
    void whatIsBeingAcknowledgedIsNotDeliveredAgain() {
        Position position = readTwiceWhileAcknowledged();
        acknowledge(position);
        world.runUntil(world.now() + 1000);
        assertEquals(List.of(1L), delivered());
        assertFalse(world.broker.core.queue().contains(1, 1), "left to the cursor");
    }

    /** Its acknowledgement is seen though the dispatcher has no consumer that takes anything. */
    @Test
    void whatIsBeingAcknowledgedIsWatched() {
        Position position = readTwiceWhileAcknowledged();
        world.broker.permits = 0;
        acknowledge(position);
        world.runUntil(world.now() + 1000);
        assertFalse(world.broker.core.queue().contains(1, 1));
    }

    @Test
    void whatIsNotAcknowledgedAfterAllIsDeliveredAgain() {
        readTwiceWhileAcknowledged();
        assertEquals(List.of(1L), delivered());
        world.runUntil(world.now() + 1000);
        assertEquals(List.of(1L, 1L), delivered());
    }

    @Test
    void whatWasRefusedOnceIsNotDeliveredAgainEither() {
        start();
        Position position = publish(1, 100);
        world.runUntil(world.now() + 100);
        world.broker.negativeAcknowledge(world.broker.consumers.get(0), position);
        world.settle();
        world.broker.consumers.get(0).pending.remove(position);
        world.broker.replayTwice(position);
        acknowledge(position);
        world.runUntil(world.now() + 1000);
        assertEquals(List.of(1L, 1L), delivered());
    }

    @Test
    void refusedAndRefusedAgainIsDeliveredEachTimeAtOnce() {
        start();
        Position position = publish(1, 100);
        world.runUntil(world.now() + 100);
        for (int time = 0; time < 3; time++) {
            world.broker.negativeAcknowledge(world.broker.consumers.get(0), position);
            world.settle();
        }
        assertEquals(List.of(1L, 1L, 1L, 1L), delivered());
    }

    private Position readTwiceWhileAcknowledged() {
        start();
        Position position = publish(1, 100);
        world.runUntil(world.now() + 100);
        world.broker.consumers.get(0).pending.remove(position);
        world.broker.replayTwice(position);
        return position;
    }

    private void acknowledge(Position position) {
        world.broker.acknowledge(world.broker.consumers.get(0), position);
    }

    @Test
    void whatAConsumerLeavesBehindIsDeliveredAgainAtOnce() {
        start();
        world.broker.connect();
        publish(1, 100);
        world.runUntil(world.now() + 100);
        long beforeMs = world.now();
        world.broker.disconnect(world.broker.consumers.get(0));
        world.settle();
        assertEquals(List.of(1L, 1L), delivered());
        assertEquals(beforeMs, world.now());
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

    // ---- a daemon that holds less than it did --------------------------------------------------------------------

    /** Ten far entries are held; a consumer has a plain and a due message, and has acknowledged neither. */
    private ToyBroker.ToyConsumer loseTheDaemonsDataWhileAConsumerHoldsTwo() {
        start();
        for (int entry = 0; entry < 10; entry++) {
            publish(entry, 60_000);
        }
        world.settle();
        publish(10, -1);
        publish(11, 0);
        world.settle();
        assertEquals(List.of(10L, 11L), delivered());
        world.wipeDaemon();
        return world.broker.consumers.get(0);
    }

    @Test
    void whatTheDaemonLostIsReadAgainAndConsumersKeepWhatTheyHave() {
        ToyBroker.ToyConsumer consumer = loseTheDaemonsDataWhileAConsumerHoldsTwo();
        world.settle();
        assertEquals(10, index().held.size(), "what was lost has been read and told again");
        assertEquals(List.of(consumer), world.broker.consumers);
        assertEquals(List.of(10L, 11L), delivered());
        world.acknowledgeAll();
        world.runUntil(world.now() + 61_000);
        assertEquals(12, delivered().size());
    }

    @Test
    void whatWasToBeReadAgainStillIsWhenConsumersWereReplacedMeanwhile() {
        loseTheDaemonsDataWhileAConsumerHoldsTwo();
        world.connect();
        for (int round = 0; round < 3; round++) {
            world.toDaemon();
            world.toShim(Integer.MAX_VALUE);
        }
        assertTrue(world.core().queue().hasDue());
        // The dispatcher takes note of them and never reads them.
        world.core().queue().popDue(4, (ledgerId, entryId) -> { });
        world.broker.disconnectAll();
        world.broker.connect();
        world.settle();
        assertEquals(10, index().held.size());
    }

    @Test
    void whatWasAcknowledgedBeforeItIsReadAgainIsNotRead() {
        loseTheDaemonsDataWhileAConsumerHoldsTwo();
        for (int entry = 0; entry < 5; entry++) {
            world.broker.acknowledge(world.broker.consumers.get(0), new Position(1, entry));
        }
        world.settle();
        assertEquals(Set.of(5L, 6L, 7L, 8L, 9L),
                index().held.keySet().stream().map(Position::entryId).collect(Collectors.toSet()));
    }

    @Test
    void aDueEntryThatTheDaemonLostComesAtOnce() {
        loseTheDaemonsDataWhileAConsumerHoldsTwo();
        world.daemonUp = false;
        world.clock.advance(61_000);
        world.settle();
        assertEquals(2, delivered().size(), "only the daemon had them");
        world.daemonUp = true;
        world.settle();
        assertEquals(12, delivered().size());
        world.acknowledgeAll();
        world.runUntil(world.now() + 2_000);
        assertEquals(12, delivered().size());
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
