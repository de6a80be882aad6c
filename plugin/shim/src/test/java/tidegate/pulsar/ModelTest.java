package tidegate.pulsar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import tidegate.pulsar.TrackerHost.Position;

/**
 * Random histories of a broker, a daemon and a connection that break at any point. Whatever happens: nothing is delivered
 * early, nothing is lost, and the shim sends nothing that the daemon has to refuse.
 *
 * <p>A failure names its seed; the same seed replays the same history:
 * {@code mvn test -Dtest=ModelTest -DargLine=-Dtidegate.seed=N}. More histories: {@code -DargLine=-Dtidegate.seeds=1000}.
 */
class ModelTest {
    private static final int STEPS = 300;

    static List<Long> seeds() {
        List<Long> seeds = new ArrayList<>();
        Long only = Long.getLong("tidegate.seed");
        if (only != null) {
            return List.of(only);
        }
        int count = Integer.getInteger("tidegate.seeds", 40);
        for (long seed = 0; seed < count; seed++) {
            seeds.add(seed);
        }
        return seeds;
    }

    /** What may go wrong in a history. */
    private record Faults(boolean connection, boolean daemon, boolean broker, boolean consumers, boolean seek) {}

    private static final class History {
        final Random random;
        final ToyWorld world;
        final Faults faults;
        final Set<Position> redeliverable = new HashSet<>();
        long nextEntry;
        long ledger = 1;
        boolean everything;

        History(long seed, Faults faults) {
            this.faults = faults;
            random = new Random(seed);
            world = new ToyWorld(random);
            world.credit = 1 + random.nextInt(20);
            world.nearMaxEntries = random.nextInt(20);
            world.horizonMs = 1 + random.nextInt(3000);
            world.maxPendingEntries = 10 + random.nextInt(1000);
            world.daemonWaitMs = random.nextBoolean() ? Long.MAX_VALUE / 2 : random.nextInt(5000);
            world.daemon.maxHeldPerFrame = 1 + random.nextInt(20);
            world.broker.permits = 1 + random.nextInt(30);
            world.broker.readBatch = 1 + random.nextInt(10);
            world.broker.connect();
        }

        boolean chance(int percent) {
            return random.nextInt(100) < percent;
        }

        void step() {
            switch (random.nextInt(12)) {
                case 0, 1 -> publish();
                case 2 -> world.clock.advance(random.nextInt(300));
                case 3 -> world.runBroker();
                case 4 -> {
                    world.connect();
                    world.toDaemon();
                }
                case 5 -> {
                    world.daemon.tick(world.now());
                    world.toShim(1 + random.nextInt(5));
                }
                case 6 -> world.daemon.commit();
                case 7 -> world.watch();
                case 8, 9 -> consume();
                case 10 -> world.broker.persistCursor(random.nextInt(4));
                default -> fault();
            }
            wake();
        }

        /** The timer fires on time, or a little later, never early. */
        private void wake() {
            if (world.broker.wakeMs <= world.now()) {
                world.runBroker();
            }
        }

        private void publish() {
            for (int i = random.nextInt(5); i >= 0; i--) {
                if (chance(3)) {
                    ledger++;
                    nextEntry = 0;
                }
                long delay = chance(20) ? -1 : chance(20) ? 0 : random.nextInt(chance(30) ? 60_000 : 3_000);
                world.broker.publish(new Position(ledger, nextEntry++), delay < 0 ? -1 : world.now() + delay);
            }
        }

        private void consume() {
            if (world.broker.consumers.isEmpty()) {
                world.broker.connect();
                return;
            }
            ToyBroker.ToyConsumer consumer = world.broker.consumers.get(random.nextInt(world.broker.consumers.size()));
            for (Position position : List.copyOf(consumer.pending)) {
                if (chance(40)) {
                    world.broker.acknowledge(consumer, position);
                } else if (chance(5)) {
                    redeliverable.add(position);
                    world.broker.negativeAcknowledge(consumer, position);
                }
            }
            world.broker.readRequested = true;
        }

        private void fault() {
            switch (random.nextInt(10)) {
                case 0 -> {
                    if (faults.connection) {
                        world.disconnect();
                    }
                }
                case 1 -> {
                    if (faults.daemon) {
                        world.crashDaemon();
                    }
                }
                case 2 -> {
                    if (faults.daemon && chance(20)) {
                        world.wipeDaemon();
                        everything = true;
                    }
                }
                case 3 -> {
                    if (faults.daemon) {
                        world.daemonUp = !world.daemonUp;
                        world.disconnect();
                        everything |= world.daemonWaitMs < 10_000;
                    }
                }
                case 4 -> {
                    if (faults.broker) {
                        redeliverUnacknowledged();
                        if (chance(50)) {
                            world.crashBroker();
                            everything = true;
                        } else {
                            redeliverPlain();
                            world.unload(random.nextInt(4));
                        }
                    }
                }
                case 5 -> {
                    if (faults.consumers) {
                        redeliverUnacknowledged();
                        if (world.broker.consumers.isEmpty() || chance(50)) {
                            world.broker.connect();
                        } else {
                            world.broker.disconnect(
                                    world.broker.consumers.get(random.nextInt(world.broker.consumers.size())));
                        }
                    }
                }
                case 6 -> {
                    if (faults.consumers) {
                        redeliverUnacknowledged();
                        world.broker.disconnectAll();
                    }
                }
                case 7 -> {
                    if (faults.seek && !world.broker.log.isEmpty()) {
                        everything = true;
                        List<Position> positions = List.copyOf(world.broker.log.keySet());
                        world.broker.reset(positions.get(random.nextInt(positions.size())));
                    }
                }
                case 8 -> {
                    if (faults.daemon && chance(30)) {
                        world.daemon.failStreams();
                    }
                }
                default -> {
                    if (faults.daemon && chance(30) && !world.broker.log.isEmpty()) {
                        everything = true;
                        List<Position> positions = List.copyOf(world.broker.log.keySet());
                        world.daemon.corrupt(ToyBroker.TOPIC, ToyBroker.SUBSCRIPTION,
                                positions.get(random.nextInt(positions.size())));
                    }
                }
            }
        }

        /** Whether the acknowledgement of a message without a delivery time survives is Pulsar's own affair. */
        private void redeliverPlain() {
            world.broker.log.forEach((position, deliverAtMs) -> {
                if (deliverAtMs < 0) {
                    redeliverable.add(position);
                }
            });
        }

        private void redeliverUnacknowledged() {
            world.broker.consumers.forEach(consumer -> redeliverable.addAll(consumer.pending));
        }

        /** No more faults: everything published must reach a consumer that acknowledges it. */
        void finish() {
            world.daemonUp = true;
            world.broker.permits = Math.max(5, world.broker.permits);
            world.settle();
            if (world.broker.consumers.isEmpty()) {
                world.broker.connect();
            }
            long end = world.now() + 200_000;
            while (!world.broker.isFullyAcknowledged() && world.now() < end) {
                world.runUntil(world.now() + 500);
                world.acknowledgeAll();
                if (world.broker.consumers.isEmpty()) {
                    world.broker.connect();
                }
            }
        }

        private ToyDaemon.Index index() {
            return world.daemon.index(ToyBroker.TOPIC, ToyBroker.SUBSCRIPTION);
        }

        void check() {
            assertEquals(List.of(), world.daemon.violations);
            for (ToyBroker.Delivery delivery : world.broker.deliveries) {
                assertTrue(delivery.deliverAtMs() <= delivery.atMs(), () -> "early: " + delivery);
            }
            assertTrue(world.broker.isFullyAcknowledged(), () -> "lost: " + world.broker.log.keySet().stream()
                    .filter(position -> !world.broker.isDeleted(position.ledgerId(), position.entryId())).toList()
                    + " " + (world.core() == null ? "" : world.core().stats()) + " held " + index().held.keySet()
                    + " " + world.daemon);
            if (world.core() != null) {
                world.settle();
                assertEquals(0, world.core().delayedMessages(), "msgDelayed at the end");
            }
            if (!everything) {
                Map<Position, Integer> times = new HashMap<>();
                world.broker.deliveries.forEach(delivery -> times.merge(delivery.position(), 1, Integer::sum));
                times.forEach((position, count) -> assertTrue(count == 1 || redeliverable.contains(position),
                        () -> position + " came " + count + " times"));
            }
        }
    }

    private static void run(long seed, Faults faults) {
        History history = new History(seed, faults);
        try {
            for (int step = 0; step < STEPS; step++) {
                history.step();
            }
            history.finish();
            history.check();
        } catch (AssertionError | RuntimeException e) {
            throw new AssertionError("seed " + seed + " with " + faults + ": " + e.getMessage(), e);
        }
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void withoutFaultsEverythingComesOnce(long seed) {
        run(seed, new Faults(false, false, false, false, false));
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void lostConnectionsRepeatNothing(long seed) {
        run(seed, new Faults(true, false, false, false, false));
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void consumersComeAndGo(long seed) {
        run(seed, new Faults(true, false, false, true, false));
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void killedDaemons(long seed) {
        run(seed, new Faults(true, true, false, true, false));
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void everythingBreaks(long seed) {
        run(seed, new Faults(true, true, true, true, true));
    }

    /** Nothing of this would find a thing if nothing was ever delivered. */
    @Test
    void historiesAreWorthSomething() {
        int deliveries = 0;
        for (long seed = 0; seed < 20; seed++) {
            History history = new History(seed, new Faults(true, true, true, true, true));
            for (int step = 0; step < STEPS; step++) {
                history.step();
            }
            deliveries += history.world.broker.deliveries.size();
        }
        assertTrue(deliveries > 500, deliveries + " deliveries");
    }
}
