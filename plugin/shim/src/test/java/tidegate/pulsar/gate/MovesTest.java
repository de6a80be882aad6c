package tidegate.pulsar.gate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.PositionBitmaps;
import tidegate.pulsar.wire.Records;
import tidegate.pulsar.wire.Standing;

/** Messages are due at other times than their own: whatever breaks, never before the time that holds. */
class MovesTest extends TrackerScenario {
    private static final long OWN_MS = 10_000;

    private Frame.Rescheduled move(long deliverAtMs, Position... positions) {
        return ask(false, deliverAtMs, positions);
    }

    private Frame.Rescheduled ask(boolean ask, long deliverAtMs, Position... positions) {
        Records records = new Records();
        for (Position position : positions) {
            records.add(position.ledgerId(), position.entryId(), deliverAtMs);
        }
        return ask(ask, records);
    }

    private Frame.Rescheduled ask(boolean ask, Records records) {
        world.daemon.rescheduled.clear();
        world.daemon.reschedule(7, ask, records);
        world.toShim(Integer.MAX_VALUE);
        for (int i = 0; i < 8; i++) {
            world.broker.runCursor();
        }
        world.toDaemon();
        return world.daemon.rescheduled.get(7L);
    }

    private static void assertAnswer(Frame.Rescheduled answer, PositionBitmaps moved, PositionBitmaps tooLate,
            PositionBitmaps acknowledged) {
        assertEquals(new Frame.Rescheduled(Standing.SETTLED, moved, tooLate, acknowledged), answer);
    }

    private void assertMoved(Frame.Rescheduled answer, Position... positions) {
        assertAnswer(answer, positions(positions), positions(), positions());
        world.core().check();
    }

    /** When each delivery of the entry took place. */
    private List<Long> times(long entryId) {
        return world.broker.deliveries.stream().filter(one -> one.position().entryId() == entryId)
                .map(ToyBroker.Delivery::atMs).toList();
    }

    @Test
    void laterFromTheNearTierAndFromTheDaemon() {
        start();
        long then = world.now() + 30_000;
        Position near = publish(1, 1_000);
        Position far = publish(2, OWN_MS);
        publish(3, 1_000);
        world.settle();
        assertMoved(move(then, near, far), near, far);
        runFor(OWN_MS + 5_000);
        assertEquals(List.of(3L), delivered());
        assertEquals(2, world.core().queue().delayedMessages());
        runFor(OWN_MS * 3);
        assertEquals(List.of(then), times(1));
        assertEquals(List.of(then), times(2));
    }

    @Test
    void earlierAndAtOnce() {
        start();
        Position atOnce = publish(1, 60_000);
        Position soon = publish(2, 60_000);
        Position later = publish(3, 60_000);
        world.settle();
        long now = world.now();
        assertMoved(move(0, atOnce), atOnce);
        assertMoved(move(now + 500, soon), soon);
        assertMoved(move(now + 20_000, later), later);
        world.settle();
        runFor(30_000);
        assertEquals(List.of(now), times(1));
        assertEquals(List.of(now + 500), times(2));
        assertEquals(List.of(now + 20_000), times(3));
    }

    @Test
    void manyAtOnceThatTheNearTierHasNoRoomFor() {
        world.nearMaxEntries = 3;
        start();
        Position[] many = new Position[20];
        for (int i = 0; i < many.length; i++) {
            many[i] = publish(i, 60_000);
        }
        world.settle();
        assertMoved(move(0, many), many);
        runFor(1_000);
        world.acknowledgeAll();
        runFor(1_000);
        assertEquals(many.length, delivered().size());
    }

    @Test
    void theOthersAreToldApart() {
        start();
        Position handedOut = publish(1, 100);
        Position acknowledged = publish(2, 100);
        Position waits = publish(3, 60_000);
        Position plain = publish(4, -1);
        runFor(300);
        world.broker.acknowledge(world.broker.consumers.get(0), acknowledged);
        runFor(300);
        assertAnswer(ask(true, 0, handedOut, acknowledged, waits, plain, new Position(9, 9)),
                positions(waits), positions(handedOut), positions(acknowledged));
        assertAnswer(move(world.now() + 1_000, handedOut, acknowledged, waits, plain, new Position(9, 9)),
                positions(waits), positions(handedOut), positions(acknowledged));
    }

    @Test
    void askingAgainStoresNothing() {
        start();
        Position waits = publish(1, 2_000);
        world.settle();
        long then = world.now() + 8_000;
        assertAnswer(ask(true, then, waits), positions(waits), positions(), positions());
        assertEquals("", world.broker.disk.overridePointer);
        assertMoved(move(then, waits), waits);
        String pointer = world.broker.disk.overridePointer;
        world.broker.failingOverrides = 100;
        assertMoved(move(then, waits), waits);
        assertEquals(pointer, world.broker.disk.overridePointer);
        runFor(OWN_MS);
        assertEquals(List.of(then), times(1));
    }

    @Test
    void ofTwoTimesInOneRequestTheLastCounts() {
        start();
        Position waits = publish(1, 60_000);
        world.settle();
        long then = world.now() + 10_000;
        assertMoved(move(then, waits), waits);
        Records records = new Records();
        records.add(waits.ledgerId(), waits.entryId(), then - 5_000);
        records.add(waits.ledgerId(), waits.entryId(), then);
        assertMoved(ask(false, records), waits);
        runFor(60_000);
        assertEquals(List.of(then), times(1));
    }

    /** The dispatcher reads it after a move that was not stored. */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void aMessageThatIsReadAgainMoves(boolean isOverdue) {
        start();
        Position waits = publish(1, 60_000);
        world.settle();
        world.broker.failingOverrides = 100;
        assertEquals(Frame.Rescheduled.notYet(), move(world.now() + 10_000, waits));
        List<Long> toRead = new ArrayList<>();
        world.core().queue().popDue(5, (ledgerId, entryId) -> toRead.add(entryId));
        assertEquals(List.of(1L), toRead);
        long ownMs = world.now() + 60_000;
        world.broker.failingOverrides = 0;
        world.clock.set(world.now() + (isOverdue ? 90_000 : 10_000));
        assertAnswer(ask(true, 0, waits), positions(waits), positions(), positions());
        long then = world.now() + 200_000;
        assertMoved(move(then, waits), waits);
        assertTrue(world.core().queue().addMessage(1, 1, ownMs));
        runFor(300_000);
        assertEquals(List.of(then), times(1));
    }

    @Test
    void aReleasedMessageStaysDueWhenClocksAreSetBackAndNoOtherIsEarly() {
        start();
        Position released = publish(1, 60_000);
        Position later = publish(2, 60_000);
        publish(3, 5_000);
        long then = world.now() + 90_000;
        world.settle();
        world.broker.disconnectAll();
        assertMoved(move(0, released), released);
        assertMoved(move(then, later), later);
        world.clock.set(world.now() - 100_000);
        world.crashDaemon();
        world.crashBroker();
        world.broker.connect();
        long now = world.now();
        runFor(10_000);
        assertEquals(List.of(1L), delivered());
        assertTrue(times(1).get(0) < now + 1_000);
        runFor(220_000);
        assertEquals(List.of(then), times(2));
    }

    /** Four losses: broker; daemon, too; its disk, too; and the way to it. */
    @ParameterizedTest
    @ValueSource(ints = {0, 1, 2, 3})
    void acrossCrashesOfBrokerOrBothAndWithADaemonThatStaysAway(int lost) {
        world.daemonWaitMs = 500;
        start();
        Position later = publish(1, 1_000);
        Position sooner = publish(2, 60_000);
        world.settle();
        long then = world.now() + 20_000;
        assertMoved(move(then, later), later);
        assertMoved(move(world.now() + 3_000, sooner), sooner);
        if (lost >= 1) {
            world.crashDaemon();
        }
        if (lost >= 2) {
            world.wipeDaemon();
        }
        world.daemonUp = lost < 3;
        world.crashBroker();
        world.broker.connect();
        runFor(15_000);
        assertEquals(List.of(2L), delivered());
        runFor(15_000);
        assertEquals(List.of(then), times(1));
        assertEquals(1, times(2).size());
    }

    @Test
    void nothingIsLetOutBeforeTheTimesWereRead() {
        start();
        Position later = publish(1, 1_000);
        world.settle();
        long then = world.now() + 20_000;
        assertMoved(move(then, later), later);
        world.daemonWaitMs = 500;
        world.daemonUp = false;
        world.crashBroker();
        world.disconnect();
        world.broker.failingOverrides = 100;
        world.broker.luck = new Random(1);
        world.broker.connect();
        runFor(10_000);
        assertEquals(List.of(), delivered());
        world.broker.failingOverrides = 0;
        runFor(30_000);
        assertEquals(List.of(then), times(1));
    }

    @Test
    void theTopicUnloadedAndLoadedAgain() {
        start();
        Position later = publish(1, 1_000);
        world.settle();
        long then = world.now() + 20_000;
        assertMoved(move(then, later), later);
        world.unload(Integer.MAX_VALUE);
        world.broker.connect();
        runFor(30_000);
        assertEquals(List.of(then), times(1));
        assertEquals(then, index().held.getOrDefault(later, then));
    }

    @Test
    void aChangeThatIsSurelyNotStoredIsUndecidedAndChangesNothing() {
        start();
        Position later = publish(1, 1_000);
        Position far = publish(2, OWN_MS);
        world.settle();
        long own = world.now() + 1_000;
        world.broker.failingOverrides = 100;
        world.broker.luck = new Random(1);
        assertEquals(Frame.Rescheduled.notYet(), move(own + 10_000, later, far));
        world.broker.failingOverrides = 0;
        runFor(30_000);
        assertEquals(List.of(own), times(1));
        assertEquals(1, times(2).size());
    }

    @Test
    void aDaemonThatDoesNotKnowMovesAndWasIgnoredAmidOneNeedNotPushAgain() {
        world.nearMaxEntries = 0;
        start();
        Position soon = publish(1, 1_000);
        long own = world.now() + 1_000;
        world.settle();
        world.broker.failingOverrides = 100;
        world.broker.luck = new Random(1);
        Records records = new Records();
        records.add(soon.ledgerId(), soon.entryId(), own + 10_000);
        world.daemon.reschedule(7, false, records);
        world.toShim(Integer.MAX_VALUE);
        world.daemon.version = 5;
        world.disconnect();
        for (int i = 0; i < 3; i++) {
            world.connect();
            world.toDaemon();
            world.daemon.commit();
            world.daemon.tick(world.now());
            world.toShim(Integer.MAX_VALUE);
        }
        world.broker.runCursor();
        world.broker.failingOverrides = 0;
        runFor(30_000);
        assertEquals(List.of(own), times(1));
        world.core().check();
    }

    /** The daemon may push a rebuild's entry before it says that it holds it. An ignored push comes no second time. */
    @Test
    void oneThatDidNotMoveIsReadAgainThoughARebuildHasPutItIn() {
        start();
        Position soon = publish(1, OWN_MS);
        long own = world.now() + OWN_MS;
        world.settle();
        world.broker.failingOverrides = 100;
        world.broker.luck = new Random(1);
        world.daemon.reschedule(7, false, Records.of(soon.ledgerId(), soon.entryId(), own + 10_000));
        world.toShim(Integer.MAX_VALUE);
        world.clock.advance(OWN_MS - 1_000);
        world.daemon.tick(world.now());
        world.toShim(Integer.MAX_VALUE);
        for (int i = 0; i < 4; i++) {
            world.broker.runCursor();
        }
        world.core().handler().onHeld(new Frame.Held(false, positions(soon), positions()));
        world.broker.failingOverrides = 0;
        runFor(30_000);
        assertEquals(List.of(own), times(1));
        world.core().check();
    }

    @Test
    void aFailedAppendLeavesItGatedUntilANewLedgerCounts() {
        start();
        Position first = publish(1, 60_000);
        Position second = publish(2, 2_000);
        world.settle();
        long then = world.now() + 10_000;
        assertMoved(move(then, first), first);
        world.broker.failingOverrides = 100;
        assertEquals(new Frame.Rescheduled(Standing.UNSTORED, positions(second), positions(), positions()), move(then, second));
        assertEquals(Frame.Rescheduled.notYet(), move(0, first), "until it is known which ledger counts");
        runFor(5_000);
        assertEquals(List.of(), delivered());
        world.broker.failingOverrides = 0;
        runFor(30_000);
        assertEquals(List.of(then), times(1));
        assertEquals(1, times(2).size());
        assertTrue(times(2).get(0) >= then);
    }

    @Test
    void aPointerThatIsWrittenAndRefusedWhenItIsSentAgainNamesALedgerThatStays() {
        start();
        Position later = publish(1, 1_000);
        world.settle();
        long then = world.now() + 20_000;
        world.broker.repeatedPointers = 1;
        assertEquals(new Frame.Rescheduled(Standing.UNSTORED, positions(later), positions(), positions()), move(then, later));
        world.broker.checkOverrides();
        world.crashBroker();
        world.broker.connect();
        runFor(30_000);
        assertEquals(List.of(then), times(1));
    }

    @Test
    void aBrokerThatDoesNotKnowItsVersionHasTheTopicOpenedAgain() {
        start();
        Position later = publish(1, 1_000);
        world.settle();
        long then = world.now() + 20_000;
        world.broker.repeatedPointers = 1;
        move(then, later);
        runFor(30_000);
        assertEquals(List.of(then), times(1));
    }

    @Test
    void withoutTheNewestLedgerThatBeforeItCounts() {
        start();
        Position later = publish(1, 1_000);
        world.settle();
        long then = world.now() + 20_000;
        assertMoved(move(then, later), later);
        world.broker.disk.overridePointer = world.broker.disk.overridePointer.replace("1;", "1;999,");
        world.crashBroker();
        world.broker.connect();
        runFor(30_000);
        assertEquals(List.of(then), times(1));
    }

    @Test
    void aTrackerThatForgetsEverythingKeepsTheTimesOfASubscriptionThatStays() {
        start();
        Position later = publish(1, 1_000);
        world.settle();
        long then = world.now() + 20_000;
        assertMoved(move(then, later), later);
        world.broker.disconnectAll();
        world.core().queue().clear();
        world.core().check();
        world.broker.connect();
        runFor(30_000);
        assertEquals(List.of(then), times(1));
    }

    @Test
    void aMovedMessageCanBeCancelledAndMovedAgain() {
        start();
        Position cancelled = publish(1, 60_000);
        Position again = publish(2, 60_000);
        world.settle();
        assertMoved(move(world.now() + 1_000, cancelled, again), cancelled, again);
        long then = world.now() + 5_000;
        assertMoved(move(then, again), again);
        world.daemon.cancel(8, false, cancelled);
        world.settle();
        assertEquals(positions(cancelled), world.daemon.cancelled.get(8L).cancelled());
        runFor(70_000);
        assertEquals(List.of(2L), delivered());
        assertEquals(List.of(then), times(2));
    }

    @Test
    void onceAcknowledgedItsOwnTimeCountsAgainAndNothingIsLeft() {
        start();
        Position released = publish(1, 30_000);
        long own = world.now() + 30_000;
        publish(2, 60_000);
        world.settle();
        assertMoved(move(0, released), released);
        runFor(1_000);
        world.acknowledgeAll();
        runFor(3_000);
        assertEquals(1, times(1).size());
        assertEquals("", world.broker.disk.overridePointer);
        assertEquals(0, world.broker.disk.ledgers.size());
        world.broker.reset(released);
        world.broker.connect();
        runFor(40_000);
        assertEquals(2, times(1).size());
        assertEquals(own, times(1).get(1));
    }

    @Test
    void whatAResetBringsBackHasItsOwnTimeAtTheNextOwner() {
        start();
        Position first = publish(0, 90_000);
        Position later = publish(1, 30_000);
        world.settle();
        long own = world.now() + 30_000;
        assertMoved(move(world.now() + 60_000, later), later);
        world.broker.cancel(later);
        runFor(1_500);
        world.broker.reset(first);
        world.broker.connect();
        runFor(3_000);
        world.crashBroker();
        world.broker.connect();
        runFor(40_000);
        assertEquals(List.of(own), times(1));
    }

    @Test
    void aDeletionThatTheCursorRefusesLeavesTheMessageItsTime() {
        start();
        publish(0, 90_000);
        Position later = publish(1, 10_000);
        world.settle();
        long then = world.now() + 30_000;
        assertMoved(move(then, later), later);
        world.broker.persistedRanges = 0;
        world.broker.cancel(later);
        runFor(1_500);
        world.crashBroker();
        world.broker.undeletable.add(later);
        world.broker.connect();
        runFor(60_000);
        assertEquals(List.of(then), times(1));
    }

    @Test
    void aLedgerIsWrittenAnewWhenItHasMuchThatIsOver() {
        start();
        Position waits = publish(1, 60_000);
        world.settle();
        assertMoved(move(world.now() + 100_000, waits), waits);
        String first = world.broker.disk.overridePointer;
        for (int i = 0; i < 1_100; i++) {
            assertMoved(move(world.now() + 100_000 + i, waits), waits);
        }
        assertFalse(world.broker.disk.overridePointer.equals(first));
        world.settle();
        assertEquals(1, world.broker.disk.ledgers.size(), "the former ones are deleted");
    }

    @Test
    void aDaemonThatDoesNotKnowMovesHandsNothingOutAtTheWrongTime() {
        start();
        Position later = publish(1, 5_000);
        Position sooner = publish(2, 60_000);
        world.settle();
        long then = world.now() + 20_000;
        assertMoved(move(then, later), later);
        assertMoved(move(world.now() + 10_000, sooner), sooner);
        world.daemon.commit();
        world.daemon.index(ToyBroker.TOPIC, ToyBroker.SUBSCRIPTION).held.put(later, world.now() + 5_000);
        world.daemon.index(ToyBroker.TOPIC, ToyBroker.SUBSCRIPTION).held.put(sooner, world.now() + 60_000);
        world.daemon.version = 5;
        world.disconnect();
        runFor(40_000);
        assertEquals(List.of(then), times(1));
        assertEquals(1, times(2).size());
        assertTrue(times(2).get(0) < then);
        assertEquals(List.of(), world.daemon.violations);
    }

    @Test
    void aPushAtTheFormerTimeIsNotHandedOutAndTheMoveIsToldAgain() {
        start();
        Position later = publish(1, 30_000);
        world.settle();
        long then = world.now() + 60_000;
        assertMoved(move(then, later), later);
        world.settle();
        index().held.put(later, world.now() + 1_000);
        runFor(5_000);
        assertEquals(List.of(), delivered());
        assertEquals(then, index().held.get(later));
        runFor(70_000);
        assertEquals(List.of(then), times(1));
    }
}
