package tidegate.pulsar.readahead;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import tidegate.pulsar.gate.ToyWorld;
import tidegate.pulsar.gate.VirtualClock;
import tidegate.pulsar.wire.Position;

/** The subscriptions of one broker share one thread that reads ahead: each gets on. */
class ReadAheadTest {
    private static final int SMALL = 500;
    private static final int LARGE = 20_000;
    private static final int MANY = 200;
    private static final long STEP_MS = 20;

    private final List<ToyWorld> worlds = new ArrayList<>();
    private final VirtualClock clock = new VirtualClock(ToyWorld.START_MS);
    private ReadAhead shared;
    private ReadAheadLimiter.Felt felt = ReadAheadLimiter.Felt.NOTHING;

    private ToyWorld world(int backlog) {
        ToyWorld world = new ToyWorld(new Random(worlds.size()));
        world.stride = new ScanPass.Stride(20, 64, 8, 200, 5);
        world.maxWaiting = 10_000;
        world.readFailures = 0;
        if (shared == null) {
            shared = new ReadAhead(clock, world::nanoTime, world.stride, new ReadAheadLimiter(Long.MAX_VALUE, world.nanoTime()),
                    () -> felt, world.maxWaiting);
        }
        world.readAhead = shared;
        for (int entry = 0; entry < backlog; entry++) {
            world.broker.publish(new Position(1, entry), world.now() + 36_000_000);
        }
        world.broker.connect();
        // Once, for the tracker to be made; from now on its dispatcher may not read.
        world.runBroker();
        world.broker.permits = 0;
        worlds.add(world);
        return world;
    }

    /** All of them run for that long. */
    private void runFor(long durationMs) {
        for (long passedMs = 0; passedMs < durationMs; passedMs += STEP_MS) {
            clock.advance(STEP_MS);
            worlds.forEach(world -> world.runUntil(world.now() + STEP_MS));
        }
    }

    private static boolean isRead(ToyWorld world, int backlog) {
        return world.core() != null && world.core().queue().delayedMessages() == backlog;
    }

    @AfterEach
    void everythingThatWasReadWasClosed() {
        worlds.forEach(world -> assertEquals(List.of(), world.daemon.violations));
    }

    @Test
    void smallBacklogsDoNotWaitForLargeOnes() {
        List<ToyWorld> large = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            large.add(world(LARGE));
        }
        runFor(200);
        List<ToyWorld> small = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            small.add(world(SMALL));
        }
        for (int i = 0; i < 500 && !small.stream().allMatch(world -> isRead(world, SMALL)); i++) {
            runFor(STEP_MS);
        }
        assertTrue(small.stream().allMatch(world -> isRead(world, SMALL)), "a small one was not read");
        assertTrue(small.stream().allMatch(world -> world.takenAhead() > SMALL / 2), "a small one had no turn");
        assertTrue(large.stream().noneMatch(world -> isRead(world, LARGE)), "a large one was read first");
        // Each of the large ones had its part meanwhile.
        List<Long> parts = large.stream().map(ToyWorld::takenAhead).sorted().toList();
        assertTrue(parts.get(0) * 3 > parts.get(3), "so many each: " + parts);
    }

    @Test
    void ofManyAFewAreReadAtATimeAndEachHasItsTurn() {
        List<ToyWorld> large = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            large.add(world(LARGE));
        }
        List<ToyWorld> small = new ArrayList<>();
        for (int i = 0; i < MANY; i++) {
            small.add(world(SMALL / 5));
        }
        int most = 0;
        for (int i = 0; i < 500 && !small.stream().allMatch(world -> isRead(world, SMALL / 5)); i++) {
            clock.advance(STEP_MS);
            for (ToyWorld world : worlds) {
                world.runUntil(world.now() + STEP_MS);
                most = Math.max(most, worlds.stream().mapToInt(other -> other.reader.underWay()).sum());
            }
        }
        assertTrue(small.stream().allMatch(world -> isRead(world, SMALL / 5)), "a small one was not read");
        assertTrue(small.stream().allMatch(world -> world.takenAhead() > SMALL / 10), "a small one had no turn");
        assertTrue(large.stream().noneMatch(world -> isRead(world, LARGE)), "a large one was read first");
        assertTrue(large.stream().allMatch(world -> world.takenAhead() > 0), "a large one had no turn");
        assertTrue(most > 0 && most <= 4, most + " reads under way");
    }

    @Test
    void whatNeverAnswersDoesNotKeepTheOthersWaiting() {
        for (int i = 0; i < 4; i++) {
            world(SMALL).readsHang = true;
        }
        runFor(200);
        ToyWorld other = world(SMALL);
        runFor(3_000);
        assertTrue(other.takenAhead() > SMALL / 2, other.takenAhead() + " taken");
        assertTrue(isRead(other, SMALL), other.core().queue().delayedMessages() + " known");
    }

    /** Runs until the backlog is read; returns the most reads that were under way. */
    private int mostUnderWay(ToyWorld world, int backlog) {
        int most = 0;
        for (int i = 0; i < 30_000 && !isRead(world, backlog); i++) {
            runFor(1);
            most = Math.max(most, world.reader.underWay());
        }
        assertTrue(isRead(world, backlog), "it was not read");
        return most;
    }

    @Test
    void aSmallBacklogIsReadAtOnceWhoeverPublishes() {
        felt = new ReadAheadLimiter.Felt(50, 50);
        int most = mostUnderWay(world(SMALL), SMALL);
        assertTrue(most > 1, most + " reads under way");
    }

    @Test
    void aLargeBacklogIsReadSlowlyToItsEndWherePublishersFeelIt() {
        felt = new ReadAheadLimiter.Felt(50, 50);
        int large = (int) ReadAheadLimiter.MOST_HURRIED + 5_000;
        assertEquals(1, mostUnderWay(world(large), large));
    }

    @Test
    void onesThatAreSmallEachAndLargeTogetherAreNotHurried() {
        felt = new ReadAheadLimiter.Felt(50, 50);
        int half = (int) ReadAheadLimiter.MOST_HURRIED * 3 / 5;
        ToyWorld first = world(half);
        ToyWorld second = world(half);
        runFor(100);
        assertTrue(first.takenAhead() > 0 && second.takenAhead() > 0, "both have their turns");
        assertTrue(first.reader.underWay() <= 1 && second.reader.underWay() <= 1, "one read each");
    }
}
