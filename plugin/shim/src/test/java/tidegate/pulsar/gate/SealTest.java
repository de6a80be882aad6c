package tidegate.pulsar.gate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.HashSet;
import java.util.Random;
import java.util.Set;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import tidegate.pulsar.wire.Position;

class SealTest {
    private final ToyBroker cursor = new ToyBroker(new VirtualClock(ToyWorld.START_MS));

    @BeforeEach
    void somebodyConsumes() {
        cursor.connect();
    }

    @Test
    void isNotPutWithoutConsumers() {
        cursor.disconnectAll();
        Seal seal = new Seal(cursor, new Random(1));
        assertEquals(Seal.NONE, seal.generation());
        assertEquals(Seal.NONE, cursor.seal());
        assertTrue(seal.isIntact(), "nothing has to be looked at again before there are some");
        assertFalse(seal.isWanted());
        cursor.connect();
        assertTrue(seal.isWanted());
    }

    @Test
    void oneThatConsumersDidNotSeeIsNotGoneBy() {
        ToyBroker racing = new ToyBroker(new VirtualClock(ToyWorld.START_MS)) {
            @Override
            public boolean putSeal(long number) {
                disconnectAll();
                return super.putSeal(number);
            }
        };
        racing.connect();
        Seal seal = new Seal(racing, new Random(1));
        assertEquals(Seal.NONE, seal.generation());
        assertNotEquals(Seal.NONE, racing.seal());
        assertTrue(seal.isIntact());
    }

    @Test
    void isTheOneThatTheCursorHas() {
        cursor.putSeal(42);
        Seal seal = new Seal(cursor, new Random(1));
        assertEquals(42, seal.generation());
        assertTrue(seal.isIntact());
    }

    @Test
    void isPutIntoACursorThatHasNone() {
        Seal seal = new Seal(cursor, new Random(1));
        assertNotEquals(Seal.NONE, seal.generation());
        assertEquals(seal.generation(), cursor.seal());
    }

    @Test
    void doesNotStandOverAReset() {
        Seal seal = new Seal(cursor, new Random(1));
        long then = seal.generation();
        assertTrue(seal.stood(then));
        cursor.reset(cursor.publish(new Position(1, 0), -1));
        assertFalse(seal.stood(then));
        cursor.connect();
        seal.renew();
        assertTrue(seal.isIntact());
        assertFalse(seal.stood(then), "what was seen before is of the former seal");
        assertTrue(seal.stood(seal.generation()));
    }

    @Test
    void isTheOneThatWasPutSinceWithoutConsumersToo() {
        Seal seal = new Seal(cursor, new Random(1));
        cursor.reset(cursor.publish(new Position(1, 0), -1));
        seal.renew();
        assertEquals(Seal.NONE, seal.generation());
        cursor.putSeal(43);
        assertFalse(seal.isIntact());
        seal.renew();
        assertEquals(43, seal.generation());
        assertTrue(seal.isIntact());
    }

    @Test
    void aConsumerThatHasStayedShowsThatNothingWasTakenBack() {
        Seal seal = new Seal(cursor, new Random(1));
        cursor.connect();
        seal.watch();
        cursor.disconnect(cursor.consumers.get(0));
        cursor.clearBacklog(cursor.publish(new Position(1, 0), -1));
        assertTrue(seal.replace());
        assertTrue(seal.isIntact());
        // Also if another part of the shim has put the next one, and the consumer was seen before the last look.
        cursor.clearBacklog(cursor.publish(new Position(1, 1), -1));
        cursor.putSeal(44);
        assertTrue(seal.replace());
        assertEquals(44, seal.generation());
    }

    @Test
    void consumersThatHaveComeSinceShowNothing() {
        Seal seal = new Seal(cursor, new Random(1));
        cursor.reset(cursor.publish(new Position(1, 0), -1));
        cursor.connect();
        // While the seal is gone they are not noted.
        seal.watch();
        assertFalse(seal.replace());
        assertNotEquals(Seal.NONE, seal.generation());
    }

    @Test
    void aConsumerThatLeavesWhileTheNextIsPutShowsNothing() {
        ToyBroker leaving = new ToyBroker(new VirtualClock(ToyWorld.START_MS)) {
            @Override
            public boolean putSeal(long number) {
                super.putSeal(number);
                disconnectAll();
                connect();
                return true;
            }
        };
        leaving.putSeal(42);
        Seal seal = new Seal(leaving, new Random(1));
        leaving.clearBacklog(leaving.publish(new Position(1, 0), -1));
        assertFalse(seal.replace());
    }

    @Test
    void theFormerIsToldUntilTheDaemonHasSaidWhatItKnows() {
        cursor.putSeal(42);
        Seal seal = new Seal(cursor, new Random(1));
        assertEquals(42, seal.tell());
        cursor.clearBacklog(cursor.publish(new Position(1, 0), -1));
        assertTrue(seal.replace());
        assertTrue(seal.holdsAnswer());
        assertTrue(seal.isOutdated());
        assertEquals(42, seal.tell());
        seal.heard();
        assertEquals(seal.generation(), seal.tell());
        assertFalse(seal.isOutdated());
        seal.renew();
        assertFalse(seal.holdsAnswer(), "what was learned under the former is doubtful");
        assertEquals(seal.generation(), seal.tell());
    }

    @Test
    void theOneThatIsDoubtedIsNotTakenAgain() {
        cursor.putSeal(42);
        Seal seal = new Seal(cursor, new Random(1));
        cursor.disconnectAll();
        seal.renew();
        assertEquals(Seal.NONE, seal.generation());
        assertTrue(seal.isIntact(), "nothing has to be looked at again before there is another");
        cursor.connect();
        assertTrue(seal.isWanted());
        seal.renew();
        assertNotEquals(42, seal.generation());
        assertEquals(cursor.seal(), seal.generation());
    }

    @Test
    void aCursorThatTakesNoneHasNone() {
        ToyBroker refusing = new ToyBroker(new VirtualClock(ToyWorld.START_MS)) {
            @Override
            public boolean putSeal(long number) {
                return false;
            }
        };
        refusing.connect();
        Seal seal = new Seal(refusing, new Random(1));
        assertEquals(Seal.NONE, seal.generation());
        assertTrue(seal.isIntact(), "nothing is learned under it, so nothing has to be looked at again and again");
        assertFalse(seal.isWanted());
    }

    @Test
    void isAlwaysAnotherOneAndNeverNegative() {
        Seal seal = new Seal(cursor, new Random(1));
        Set<Long> seen = new HashSet<>();
        for (int i = 0; i < 10_000; i++) {
            assertTrue(seal.generation() > Seal.NONE);
            assertTrue(seen.add(seal.generation()));
            seal.renew();
        }
    }

    @Test
    void isPersistedWithWhatItStandsFor() {
        Seal seal = new Seal(cursor, new Random(1));
        assertEquals(Seal.NONE, cursor.next(new VirtualClock(0)).seal());
        cursor.persistCursor();
        assertEquals(seal.generation(), cursor.next(new VirtualClock(0)).seal());
        cursor.reset(cursor.publish(new Position(1, 0), -1));
        assertEquals(Seal.NONE, cursor.next(new VirtualClock(0)).seal());
    }
}
