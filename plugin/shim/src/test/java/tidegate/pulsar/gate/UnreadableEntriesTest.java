package tidegate.pulsar.gate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Set;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import tidegate.pulsar.wire.Position;

/** Due messages that cannot be read any more, as when their ledger is lost, and those that wait behind them. */
class UnreadableEntriesTest extends TrackerScenario {
    private static final long SOON_MS = 30_000;

    /** Delayed messages of two ledgers, the first of which is lost before they are due. */
    private void loseTheFirstLedger() {
        start();
        for (int entry = 0; entry < 10; entry++) {
            publish(entry, SOON_MS);
        }
        for (int entry = 10; entry < 20; entry++) {
            world.broker.publish(new Position(2, entry), world.now() + SOON_MS);
        }
        world.runUntil(world.now() + 1000);
        world.broker.lostLedgers.add(1L);
        world.runUntil(world.now() + SOON_MS);
    }

    @Test
    void aLostLedgerHoldsNothingUpIfLostDataIsSkipped() {
        world.broker.skipsLost = true;
        loseTheFirstLedger();
        world.runUntil(world.now() + 5000);
        assertEquals(LongStream.range(10, 20).boxed().toList(), delivered());
        assertTrue(world.broker.isDeleted(1, 9));
        world.acknowledgeAll();
        world.runUntil(world.now() + 2000);
        assertTrue(index().held.isEmpty(), "the daemon knows it acknowledged: " + index().held);
    }

    @Test
    void withoutThatNothingIsSkippedUntilItIsSet() {
        loseTheFirstLedger();
        world.runUntil(world.now() + 60_000);
        assertFalse(world.broker.isDeleted(1, 0), "nobody has said that it may be given up");
        assertEquals(List.of(), delivered());
        world.broker.skipsLost = true;
        world.runUntil(world.now() + 15_000);
        assertEquals(10, delivered().size());
    }

    @Test
    void whatIsReadableAgainComes() {
        loseTheFirstLedger();
        world.runUntil(world.now() + 60_000);
        world.broker.lostLedgers.clear();
        world.broker.readRequested = true;
        world.runUntil(world.now() + 1000);
        assertEquals(20, delivered().size());
    }

    @Test
    void lostEntriesAreSkippedWithTheirNeighboursAndNoOthers() {
        world.broker.skipsLost = true;
        world.broker.permits = 1000;
        start();
        for (int entry = 0; entry < 500; entry++) {
            publish(entry, SOON_MS);
        }
        world.runUntil(world.now() + 1000);
        for (int entry = 0; entry < 400; entry++) {
            if (entry % 100 != 7) {
                world.broker.lostEntries.add(new Position(1, entry));
            }
        }
        world.runUntil(world.now() + SOON_MS + 10_000);
        assertEquals(104, delivered().size());
        assertTrue(delivered().containsAll(List.of(7L, 107L, 207L, 307L, 400L, 499L)));
    }

    @Test
    void aPositionThatTheTopicHasNotIsSkippedWhateverIsConfigured() {
        theDaemonKnowsTheSubscription();
        publish(0, SOON_MS);
        index().held.put(new Position(9, 3), world.now() + 100);
        world.daemon.commit();
        world.broker.publish(new Position(10, 0), world.now() + 200);
        start();
        world.runUntil(world.now() + 5000);
        assertTrue(world.broker.isDeleted(9, 3));
        assertEquals(List.of(0L), delivered());
    }

    /** If consumers take nothing, due messages stay where they are, and the looks at them become ever rarer. */
    @Test
    void slowConsumersCostFewReads() {
        world.broker.permits = 5;
        start();
        for (int entry = 0; entry < 20; entry++) {
            publish(entry, 100);
        }
        world.runUntil(world.now() + 60_000);
        assertEquals(5, delivered().size());
        assertTrue(world.broker.probes <= 10, world.broker.probes + " reads");
    }

    @Test
    void aResetBetweenTheAnswerAndTheSkipTakesNothing() {
        world.broker.skipsLost = true;
        start();
        publish(0, 100);
        world.broker.lostEntries.add(new Position(1, 0));
        world.broker.beforeDelete = () -> {
            world.broker.beginReset(new Position(1, 0));
            world.broker.completeReset();
        };
        assertTrue(world.runUntil(() -> !world.broker.hasConsumers(), 10_000));
        world.broker.runCursor();
        assertFalse(world.broker.isDeleted(1, 0));
    }

    /** More than a dispatcher reads before it has a tracker. */
    private void publishFar(int from, int to) {
        for (int entry = from; entry < to; entry++) {
            publish(entry, 10 * SOON_MS);
        }
    }

    /** Of a message in chunks, the first is held and the others are not: the broker was killed while it was published. */
    @ParameterizedTest
    @ValueSource(ints = {1, 250, 1000})
    void chunksWhoseFirstOneIsHeldHoldNothingUp(int distance) {
        start();
        publishFar(0, 10);
        Position first = publish(10, SOON_MS);
        publishFar(11, 10 + distance);
        world.runUntil(world.now() + 1000);
        int next = 10 + distance;
        assertEquals(next, index().held.size());
        world.crashBroker();
        for (int entry = next; entry < next + 3; entry++) {
            world.broker.chunks.put(publish(entry, SOON_MS - 1000), first);
        }
        world.broker.connect();
        world.runUntil(world.now() + 100);
        long plain = next + 3;
        publish(plain, -1);
        world.runUntil(world.now() + 15_000);
        assertEquals(distance < 900 ? List.of(plain) : List.of(), delivered(), world.broker.reads + " reads");
        world.runUntil(world.now() + SOON_MS);
        assertEquals(Set.of(10L, (long) next, next + 1L, next + 2L, plain), Set.copyOf(delivered()));
        assertEquals(5, delivered().size());
        world.core().check();
    }

    /** A command that names one message moves one chunk. */
    @Test
    void aChunkThatIsDueBeforeTheOthersHoldsNothingUp() {
        start();
        publishFar(0, 10);
        Position first = publish(10, 10 * SOON_MS);
        world.broker.chunks.put(publish(11, SOON_MS), first);
        world.runUntil(world.now() + 1000);
        world.unload(Integer.MAX_VALUE);
        world.broker.connect();
        world.runUntil(world.now() + SOON_MS);
        publish(12, -1);
        world.runUntil(world.now() + 10_000);
        assertEquals(Set.of(11L, 12L), Set.copyOf(delivered()));
    }

    /** Somebody cancelled the first one alone, or a consumer acknowledged it. */
    @Test
    void chunksWhoseFirstOneIsAcknowledgedHoldNothingUp() {
        start();
        publishFar(0, 10);
        Position first = publish(10, SOON_MS);
        world.broker.chunks.put(publish(11, SOON_MS), first);
        world.broker.chunks.put(publish(12, SOON_MS), first);
        world.runUntil(world.now() + 1000);
        world.broker.cancel(first);
        // Pulsar's dispatcher forgets a first chunk once it has met the last one.
        world.unload(Integer.MAX_VALUE);
        world.broker.connect();
        world.runUntil(world.now() + SOON_MS);
        publish(13, -1);
        world.runUntil(world.now() + 15_000);
        assertEquals(List.of(13L), delivered());
        assertTrue(world.broker.isDeleted(1, 11) && world.broker.isDeleted(1, 12), "nobody can get the message");
        assertFalse(world.broker.isDeleted(1, 0));
        world.core().check();
    }

    /** The same of a message that was published while nobody consumed, and came up without a delay or past its time. */
    @ParameterizedTest
    @ValueSource(longs = {-1, 1})
    void chunksUnknownToTheTrackerWhoseFirstOneIsAcknowledgedHoldNothingUp(long delayMs) {
        start();
        publishFar(0, 10);
        world.runUntil(world.now() + 1000);
        world.unload(Integer.MAX_VALUE);
        Position first = publish(10, delayMs);
        world.broker.chunks.put(publish(11, delayMs), first);
        world.broker.chunks.put(publish(12, delayMs), first);
        world.broker.cancel(first);
        world.runUntil(world.now() + 1000);
        world.broker.connect();
        publish(13, -1);
        world.runUntil(world.now() + 15_000);
        assertEquals(List.of(13L), delivered());
        assertTrue(world.broker.isDeleted(1, 11) && world.broker.isDeleted(1, 12), "nobody can get the message");
        assertFalse(world.broker.isDeleted(1, 0));
        world.core().check();
    }

    /** A chunk waits while a consumer has the first one. */
    @Test
    void aChunkWhoseFirstOneIsWithAConsumerStays() {
        start();
        Position first = publish(10, SOON_MS);
        world.broker.chunks.put(publish(11, 2 * SOON_MS), first);
        world.runUntil(world.now() + 3 * SOON_MS);
        assertEquals(List.of(10L, 11L), delivered());
        assertFalse(world.broker.isDeleted(1, 11));
    }
}
