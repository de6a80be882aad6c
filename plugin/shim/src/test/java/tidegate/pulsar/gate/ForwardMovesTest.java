package tidegate.pulsar.gate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;
import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.Position;

/**
 * Moves of mark-delete while a frozen daemon alone knows the acknowledgements: the cursor's record had no room for them. A
 * move forward takes nothing back, with the seal or without; a reset takes back all that follows it.
 */
class ForwardMovesTest extends TrackerScenario {
    private static final Set<Long> ALL = Set.of(0L, 1L, 2L, 3L, 4L, 5L, 6L, 7L, 8L, 9L);

    /** The progress of the new owner's stream at the event. */
    enum Moment {
        /** The daemon has not answered OPEN. */
        OPENING,
        /** The connection has ended since, and the next one's OPEN waits. */
        OPENING_AGAIN,
        /** The daemon has answered, and the cursor has not yet deleted the named positions. */
        SETTLING,
        /** An earlier skip had the stream closed, to open it under another seal; the daemon does not confirm CLOSE. */
        CLOSING
    }

    /**
     * A move and its moment. Expiry and trimmed ledgers keep the seal; skip, clear, quota, cumulative acknowledgements do
     * not.
     */
    static Stream<Arguments> moves() {
        return Stream.of(Moment.values()).flatMap(moment ->
                Stream.of(true, false).map(keepsSeal -> Arguments.of(moment, keepsSeal)));
    }

    /** Entry 0 is not acknowledged, 1 to 9 are, and only the daemon knows; its answer is awaited. */
    private void theNextOwnerAsks() {
        acknowledgeAllBut(0);
        world.daemon.answersOpen = false;
        world.unload(0);
        world.broker.connect();
        world.settle();
        assertEquals(List.of(0L), delivered());
        assertEquals(9, index().acknowledged.size());
        world.broker.deliveries.clear();
    }

    private void reach(Moment moment) {
        theNextOwnerAsks();
        if (moment == Moment.CLOSING) {
            world.broker.clearBacklog(new Position(0, 5));
            world.core().monitor().look();
        }
        if (moment == Moment.CLOSING || moment == Moment.SETTLING) {
            world.daemon.answerOpens();
            world.toShim(Integer.MAX_VALUE);
            assertEquals(9, world.core().stats().settling());
        }
        if (moment == Moment.CLOSING) {
            world.toDaemon();
        }
    }

    /** After that moment's event. */
    private void goOn(Moment moment) {
        world.core().monitor().look();
        if (moment == Moment.OPENING_AGAIN) {
            world.disconnect();
            world.settle();
        }
        world.daemon.answerOpens();
        world.runUntil(world.now() + 2000);
    }

    @ParameterizedTest
    @MethodSource("moves")
    void aMoveForwardTakesNothingBack(Moment moment, boolean keepsSeal) {
        reach(moment);
        world.broker.moveForward(new Position(1, 0), keepsSeal);
        goOn(moment);
        assertEquals(List.of(), delivered());
        assertEquals(world.broker.seal(), index().generation);
        assertTrue(world.broker.isFullyAcknowledged());
    }

    /** The daemon got them again under the new seal, so it still knows when the cursor has forgotten once more. */
    @ParameterizedTest
    @EnumSource(Moment.class)
    void whatAMoveForwardLeavesIsKnownToTheNextOwner(Moment moment) {
        reach(moment);
        world.broker.clearBacklog(new Position(0, 7));
        world.core().monitor().look();
        if (moment == Moment.OPENING_AGAIN) {
            world.disconnect();
        }
        world.daemon.answerOpens();
        for (int i = 0; i < 10; i++) {
            world.connect();
            world.toDaemon();
            world.daemon.commit();
            world.toShim(Integer.MAX_VALUE);
        }
        world.broker.persistCursor(0);
        world.crashBroker();
        world.broker.connect();
        world.runUntil(world.now() + 2000);
        assertEquals(List.of(0L), delivered());
    }

    @ParameterizedTest
    @EnumSource(Moment.class)
    void aResetTakesEverythingBack(Moment moment) {
        reach(moment);
        world.broker.reset(new Position(1, 0));
        world.broker.connect();
        goOn(moment);
        assertEquals(ALL, new HashSet<>(delivered()));
        assertEquals(10, delivered().size());
        assertTrue(index().acknowledged.isEmpty(), index().acknowledged.toString());
    }

    /** No look between the two. */
    @ParameterizedTest
    @EnumSource(Moment.class)
    void aResetBehindAMoveForwardTakesEverythingBack(Moment moment) {
        reach(moment);
        world.broker.clearBacklog(new Position(1, 0));
        world.broker.reset(new Position(1, 0));
        world.broker.connect();
        goOn(moment);
        assertEquals(ALL, new HashSet<>(delivered()));
        assertEquals(10, delivered().size());
        assertTrue(index().acknowledged.isEmpty(), index().acknowledged.toString());
    }

    @ParameterizedTest
    @EnumSource(Moment.class)
    void aMoveForwardBehindAResetLeavesWhatTheResetTookBack(Moment moment) {
        reach(moment);
        world.broker.reset(new Position(1, 0));
        world.broker.clearBacklog(new Position(1, 0));
        world.broker.connect();
        goOn(moment);
        assertEquals(Set.of(1L, 2L, 3L, 4L, 5L, 6L, 7L, 8L, 9L), new HashSet<>(delivered()));
        assertEquals(9, delivered().size());
    }

    /** The same broker loads the topic again, before the daemon's answer or after the connection's end, too. */
    @ParameterizedTest
    @EnumSource(names = {"OPENING", "OPENING_AGAIN"})
    void theNextTrackerAsksForWhatTheFormerHasNotHeard(Moment moment) {
        theNextOwnerAsks();
        world.broker.clearBacklog(new Position(1, 0));
        world.core().monitor().look();
        world.unload(0);
        world.broker.connect();
        world.settle();
        goOn(moment);
        assertEquals(List.of(), delivered());
        assertEquals(world.broker.seal(), index().generation);
        assertTrue(world.broker.isFullyAcknowledged());
    }

    /** Another broker of the same daemon had the topic meanwhile, and opened the index under the present seal. */
    @Test
    void theNextTrackerAsksUnderThePresentSealIfAnotherOwnerHas() {
        theNextOwnerAsks();
        world.broker.clearBacklog(new Position(1, 0));
        world.core().monitor().look();
        world.unload(0);
        long seal = world.broker.seal();
        world.broker.recreate(world.broker.ownership().next(true, new Random(3)));
        world.broker.putSeal(seal);
        index().generation = seal;
        world.broker.connect();
        world.settle();
        goOn(Moment.OPENING);
        assertEquals(List.of(), delivered());
    }

    @Test
    void aConsumerThatHasStayedShowsItThoughOthersHaveGone() {
        theNextOwnerAsks();
        ToyBroker.ToyConsumer first = world.broker.consumers.get(0);
        world.broker.connect();
        world.watch();
        world.broker.disconnect(first);
        world.broker.clearBacklog(new Position(1, 0));
        goOn(Moment.OPENING);
        assertEquals(List.of(), delivered());
    }

    @Test
    void withoutAConsumerThatHasStayedItMayHaveBeenAReset() {
        theNextOwnerAsks();
        world.broker.disconnectAll();
        world.broker.clearBacklog(new Position(1, 0));
        world.broker.connect();
        goOn(Moment.OPENING);
        assertEquals(9, delivered().size());
    }

    /** A consumer connects before the seal is gone, with no look in between. */
    @Test
    void aConsumerThatCameSinceTheLastLookShowsNothing() {
        theNextOwnerAsks();
        world.broker.disconnectAll();
        world.broker.connect();
        world.broker.clearBacklog(new Position(1, 0));
        goOn(Moment.OPENING);
        assertEquals(9, delivered().size());
    }

    @Test
    void theFormerSealIsToldUntilTheDaemonHasSaidWhatItKnows() {
        theNextOwnerAsks();
        long former = index().generation;
        world.broker.clearBacklog(new Position(1, 0));
        goOn(Moment.OPENING_AGAIN);
        assertNotEquals(former, index().generation);
        List<Long> told = world.daemon.received.stream().filter(Frame.Open.class::isInstance)
                .map(frame -> ((Frame.Open) frame).generation()).toList();
        assertEquals(List.of(former, former, index().generation), told.subList(1, told.size()));
    }
}
