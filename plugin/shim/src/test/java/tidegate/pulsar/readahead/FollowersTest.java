package tidegate.pulsar.readahead;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import tidegate.pulsar.gate.ToyWorld;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.Records;

/** Entries that a subscription gets from the pass of another of its topic. */
class FollowersTest {
    private static final int BACKLOG = 1000;
    private static final Position END = new Position(1, BACKLOG - 1);

    private final ToyWorld world = new ToyWorld(new Random(1));
    private Followers followers;

    @BeforeEach
    void oneThatHasNoPassOfItsOwn() {
        world.stride = new ScanPass.Stride(Integer.MAX_VALUE, 64, 8, 200, 5);
        world.readFailures = 0;
        for (int entry = 0; entry < BACKLOG; entry++) {
            world.broker.publish(new Position(1, entry), world.now() + 36_000_000);
        }
        world.broker.connect();
        // Once, for the tracker to be made; from now on its dispatcher may not read.
        world.runBroker();
        world.broker.permits = 0;
        world.runUntil(world.now() + 1_000);
        followers = new Followers(() -> List.of(Map.entry(world.core(), world.reader)), BACKLOG, 7);
    }

    @AfterEach
    void theDaemonHadNothingToRefuse() {
        world.runUntil(world.now() + 1_000);
        assertEquals(List.of(), world.daemon.violations);
    }

    private Records entries(int first, int last) {
        Records found = new Records();
        for (int entry = first; entry <= last; entry++) {
            found.add(1, entry, world.now() + 36_000_000);
        }
        return found;
    }

    private void tell(long read, int first, int last) {
        followers.tell(read, 1, first, last, entries(first, last), true);
    }

    @Test
    void itTakesWhatItHasNotReadYet() {
        int known = (int) world.reader.readPosition().entryId();
        assertTrue(known > 0, "its dispatcher has read some");
        tell(followers.admit(END), 0, 99);
        assertEquals(100 - known, world.takenAhead());
        assertEquals(100, world.core().queue().delayedMessages());
    }

    @Test
    void itTakesNothingThatWasAskedForBeforeItsContentsWereReplaced() {
        long before = followers.admit(END);
        world.disconnect();
        world.runUntil(world.now() + 1_000);
        tell(before, 100, 199);
        assertEquals(0, world.takenAhead());
        assertFalse(followers.follows(world.core()));
        tell(followers.admit(END), 200, 299);
        assertEquals(100, world.takenAhead());
    }

    @Test
    void itDoesNotFollowAReadBehindItsDispatcher() {
        long reads = world.reader.readPosition().entryId();
        followers.admit(new Position(1, reads - 1));
        assertFalse(followers.follows(world.core()));
        followers.admit(new Position(1, reads));
        assertTrue(followers.follows(world.core()));
    }

    @Test
    void whatWasSkippedBetweenTwoReadsIsItsDispatchers() {
        int reads = (int) world.reader.readPosition().entryId();
        long read = followers.admit(END);
        tell(read, reads, reads + 99);
        assertTrue(world.core().queue().shouldPause(), "the pass is about to read the rest");
        tell(read, reads + 200, reads + 299);
        assertFalse(world.core().queue().shouldPause(), "nobody reads what lies between");
    }

    @Test
    void itsDispatcherReadsOnAtTheEndOfThePass() {
        tell(followers.admit(END), 0, 99);
        assertTrue(world.core().queue().shouldPause());
        followers.end();
        assertFalse(world.core().queue().shouldPause());
    }
}
