package tidegate.pulsar.gate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.PositionBitmaps;
import tidegate.pulsar.wire.Standing;

/** Messages are cancelled: delivered or cancelled, and never both. */
class CancellationsTest extends TrackerScenario {
    private Frame.Cancelled cancel(Position... positions) {
        return ask(false, positions);
    }

    private Frame.Cancelled ask(boolean ask, Position... positions) {
        world.daemon.cancelled.clear();
        world.daemon.cancel(7, ask, positions);
        world.toShim(Integer.MAX_VALUE);
        world.broker.runCursor();
        world.toDaemon();
        return world.daemon.cancelled.get(7L);
    }

    private static void assertAnswer(Frame.Cancelled answer, PositionBitmaps cancelled, PositionBitmaps tooLate,
            PositionBitmaps acknowledged) {
        assertEquals(new Frame.Cancelled(Standing.SETTLED, cancelled, tooLate, acknowledged), answer);
    }

    @Test
    void whatWaitsIsNotDeliveredAndTheCursorHasItDeleted() {
        start();
        Position far = publish(1, 60_000);
        Position near = publish(2, 1_000);
        publish(3, 1_000);
        world.settle();
        assertAnswer(cancel(far, near), positions(far, near), positions(), positions());
        world.core().check();
        runFor(90_000);
        assertEquals(List.of(3L), delivered());
        assertTrue(world.broker.isDeleted(1, 1) && world.broker.isDeleted(1, 2));
        assertFalse(index().held.containsKey(far) || index().held.containsKey(near));
        assertEquals(0, world.core().stats().settling());
    }

    @Test
    void whatAConsumerHasIsTooLateAndTheRestIsToldApart() {
        start();
        Position handedOut = publish(1, 100);
        Position acknowledged = publish(2, 100);
        Position waits = publish(3, 60_000);
        Position plain = publish(4, -1);
        runFor(300);
        ToyBroker.ToyConsumer consumer = world.broker.consumers.get(0);
        world.broker.acknowledge(consumer, acknowledged);
        runFor(300);
        assertAnswer(cancel(handedOut, acknowledged, waits, plain, new Position(9, 9)),
                positions(waits), positions(handedOut), positions(acknowledged));
        assertAnswer(cancel(waits), positions(), positions(), positions(waits));
    }

    /** A daemon that came back with nothing does not hold it, and the dispatcher reads it. */
    @Test
    void aMessageThatIsReadAgainWaits() {
        start();
        Position cancelled = publish(1, 60_000);
        Position other = publish(2, 60_000);
        world.settle();
        world.broker.permits = 0;
        world.wipeDaemon();
        world.settle();
        List<Long> toRead = new ArrayList<>();
        world.core().queue().popDue(5, (ledgerId, entryId) -> toRead.add(entryId));
        assertEquals(List.of(1L, 2L), toRead);
        assertAnswer(ask(true, cancelled, other), positions(cancelled, other), positions(), positions());
        assertAnswer(cancel(cancelled), positions(cancelled), positions(), positions());
        assertTrue(world.core().queue().addMessage(1, 1, world.now() + 60_000));
        assertTrue(world.core().queue().addMessage(1, 2, world.now() + 60_000));
        assertAnswer(ask(true, cancelled, other), positions(other), positions(), positions(cancelled));
        world.broker.permits = 20;
        runFor(90_000);
        assertEquals(List.of(2L), delivered());
    }

    /** UNHELD is on its way, as of a damaged block, and the cursor has not deleted the message yet. */
    @Test
    void aCancelledMessageThatTheDaemonLosesStaysCancelled() {
        start();
        Position cancelled = publish(1, 1_000);
        publish(2, 1_000);
        world.settle();
        world.daemon.cancel(7, false, cancelled);
        world.daemon.corrupt(ToyBroker.TOPIC, ToyBroker.SUBSCRIPTION, cancelled);
        world.toShim(Integer.MAX_VALUE);
        world.core().check();
        List<Long> toRead = new ArrayList<>();
        world.core().queue().popDue(5, (ledgerId, entryId) -> toRead.add(entryId));
        assertEquals(List.of(), toRead);
        runFor(3_000);
        assertEquals(List.of(2L), delivered());
        assertTrue(world.broker.isDeleted(1, 1));
        world.core().check();
    }

    @Test
    void askingChangesNothing() {
        start();
        Position waits = publish(1, 2_000);
        world.settle();
        assertAnswer(ask(true, waits), positions(waits), positions(), positions());
        runFor(5_000);
        assertEquals(List.of(1L), delivered());
    }

    @Test
    void aCrashOfTheBrokerOrOfBothBringsNothingBack() {
        for (boolean both : new boolean[] {false, true}) {
            start();
            long entry = both ? 20 : 10;
            Position waits = publish(entry, 3_000);
            world.settle();
            assertAnswer(cancel(waits), positions(waits), positions(), positions());
            world.daemon.commit();
            world.broker.disk.deleted.clear();
            if (both) {
                world.crashDaemon();
            }
            world.crashBroker();
            world.broker.connect();
            runFor(10_000);
            assertFalse(delivered().contains(entry), "after a crash of " + (both ? "both" : "the broker"));
            assertTrue(world.broker.isDeleted(1, entry));
        }
    }

    @Test
    void aCrashOfTheDaemonBeforeItIsDurableLeavesItCancelled() {
        start();
        Position waits = publish(1, 3_000);
        world.settle();
        assertAnswer(cancel(waits), positions(waits), positions(), positions());
        world.crashDaemon();
        runFor(10_000);
        assertEquals(List.of(), delivered());
        assertTrue(index().acknowledged.contains(waits) || world.broker.markDelete().compareTo(waits) >= 0);
    }

    @Test
    void theAnswerComesWhenTheCursorsRecordHasIt() {
        start();
        Position waits = publish(1, 3_000);
        world.settle();
        world.broker.failingStores = 1;
        assertEquals(new Frame.Cancelled(Standing.UNSTORED, positions(waits), positions(), positions()), cancel(waits));
        assertFalse(world.broker.isOnDisk(waits));
        assertAnswer(cancel(waits), positions(), positions(), positions(waits));
        assertTrue(world.broker.isOnDisk(waits));
        runFor(10_000);
        assertEquals(List.of(), delivered());
    }

    @Test
    void aNextOwnerThatDecidesAloneDeliversNothingThatWasAnswered() {
        world.daemonWaitMs = 500;
        start();
        Position waits = publish(1, 3_000);
        world.settle();
        assertAnswer(cancel(waits), positions(waits), positions(), positions());
        world.daemonUp = false;
        world.crashBroker();
        world.broker.connect();
        runFor(10_000);
        assertEquals(List.of(), delivered());
    }

    @Test
    void whatTheRecordHasNoRoomForIsNotPromised() {
        world.broker.persistedRanges = 1;
        start();
        Position first = publish(1, 60_000);
        publish(2, 60_000);
        Position third = publish(3, 60_000);
        publish(0, 60_000);
        world.settle();
        assertAnswer(cancel(first), positions(first), positions(), positions());
        assertEquals(new Frame.Cancelled(Standing.NO_ROOM, positions(third), positions(), positions()), cancel(third));
        world.core().check();
    }

    @Test
    void itNeedsNoConsumer() {
        start();
        Position waits = publish(1, 3_000);
        world.settle();
        world.broker.disconnectAll();
        assertAnswer(cancel(waits), positions(waits), positions(), positions());
        world.crashBroker();
        world.broker.connect();
        runFor(10_000);
        assertEquals(List.of(), delivered());
    }

    @Test
    void amidAResetNothingIsDecided() {
        start();
        Position waits = publish(1, 3_000);
        world.settle();
        world.broker.beginReset(waits);
        assertEquals(Standing.UNDECIDED, cancel(waits).standing(), "the seal is gone");
        world.broker.completeReset();
        world.broker.connect();
        runFor(10_000);
        assertEquals(List.of(1L), delivered());
    }

    @Test
    void aLaterResetBringsItBackAsItDoesWhatWasAcknowledged() {
        start();
        Position waits = publish(1, 3_000);
        world.settle();
        assertAnswer(cancel(waits), positions(waits), positions(), positions());
        runFor(1_000);
        world.broker.reset(new Position(1, 0));
        world.broker.connect();
        runFor(10_000);
        assertEquals(List.of(1L), delivered());
    }

    @Test
    void oneThatTheDaemonHasJustPushedIsCancelledAllTheSame() {
        start();
        Position waits = publish(1, 5_000);
        runFor(2_900);
        world.clock.set(world.now() + 200);
        world.daemon.tick(world.now());
        assertAnswer(cancel(waits), positions(waits), positions(), positions());
        runFor(10_000);
        assertEquals(List.of(), delivered());
    }
}
