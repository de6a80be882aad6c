package tidegate.pulsar.gate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.Position;

/** News from the cursor: acknowledgements, mark-delete, and resets, seen by the tracker or not. */
class CursorWatchTest extends TrackerScenario {
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

    /** Mark-delete does not show the reset: the first message was not acknowledged. */
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
        // The shim knows; the daemon is away and does not.
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
        // The acknowledgements are still there: they go out under another seal, which goes with them.
        world.runUntil(world.now() + 500);
        assertEquals(9, index().acknowledged.size());
        world.broker.completeReset();
        world.broker.connect();
        world.runUntil(world.now() + 2000);
        assertEquals(10, delivered().size());
        assertTrue(index().acknowledged.isEmpty(), index().acknowledged.toString());
    }

    /** Closing a cursor stores the reset's position, with the cursor's seal at that time. */
    @Test
    void whatAResetBringsBackComesThoughTheTopicIsUnloadedMeanwhile() {
        start();
        for (int entry = 0; entry < 10; entry++) {
            publish(entry, 100);
        }
        world.runUntil(world.now() + 200);
        world.acknowledgeAll();
        world.runUntil(world.now() + 2000);
        world.broker.deliveries.clear();
        world.broker.beginReset(new Position(1, 0));
        // The acknowledgements are still there, and go once the reset is done: they must not go out under a new seal.
        world.runUntil(world.now() + 500);
        world.unload(1000);
        world.broker.connect();
        world.runUntil(world.now() + 2000);
        assertEquals(10, delivered().size());
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

    /** In case a write of the cursor that raced with the reset ever puts the seal back. */
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
        // No look at the cursor before it is read again.
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
        while (!world.core().handler().isOpen()) {
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
        // Read and sent, with no look at the cursor but the one before the read.
        for (int i = 0; i < 5; i++) {
            world.runBroker();
            world.toDaemon();
            world.daemon.commit();
            world.toShim(Integer.MAX_VALUE);
        }
        assertEquals(7, index().held.size(), "the daemon heard of mark-delete before the adds");
    }

    @Test
    void aResetBetweenLookingAtWhatIsDueAndTellingIsNotTold() {
        start();
        publish(1, 60_000);
        Position position = publish(2, 10_000);
        world.settle();
        // Acknowledged by id, never delivered.
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
        // The watch looks at it, but not yet again.
        world.core().queue().shouldPause();
        world.core().queue().clear();
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
        // The record on disk is from before the seal.
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
        // Loaded again, then reset, and only then a tracker follows the one with something to send.
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
    void aResetIsNotTakenForAForgottenAcknowledgement() {
        acknowledgeAllBut(0);
        assertEquals(9, index().acknowledged.size());
        world.disconnect();
        world.broker.reset(new Position(1, 0));
        // The answer to OPEN comes before another look at the cursor.
        while (!world.core().handler().isOpen()) {
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
        assertEquals(10, world.core().queue().delayedMessages());
        world.broker.reset(new Position(1, 8));
        world.broker.connect();
        world.runUntil(world.now() + 3000);
        assertEquals(List.of(8L, 9L), delivered());
        assertEquals(0, world.core().queue().delayedMessages());
    }
}
