package tidegate.pulsar.gate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.Collections;
import java.util.EnumMap;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import tidegate.pulsar.readahead.ScanPass;
import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.FrameCodec;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.Records;
import tidegate.pulsar.wire.ReleasePace;
import tidegate.pulsar.wire.Standing;

/**
 * Random histories of two machines, each with a broker and a daemon, of a connection and of a topic that moves between them;
 * all of it breaks at any point. Whatever happens: nothing is delivered early; nothing is lost, and after a reset of the
 * cursor everything from there on comes again; nothing is repeated needlessly; and the shim sends no frame that a daemon has
 * to refuse.
 *
 * <p>A failure names its seed, which replays its history: {@code mvn test -Dtest=ModelTest -DargLine=-Dtidegate.seed=N}.
 * More histories: {@code -DargLine=-Dtidegate.seeds=1000}.
 */
class ModelTest {
    private static final int STEPS = 300;
    private static final int ALL = Integer.MAX_VALUE;
    private static final int NOT_PAUSED = -1;

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

    /** Faults of a history, and operations on the topic. */
    private enum Fault {
        CONNECTION, DAEMON, BROKER, CONSUMERS, RESET, MOVE, CLOCK, REBUILD, CANCEL, PACE, RESCHEDULE, METADATA, SKIP, LEVELS, TYPE
    }

    private static final Set<Fault> EVERYTHING = EnumSet.allOf(Fault.class);

    private static final class History {
        final Random random;
        final ToyWorld[] machines;
        final Set<Fault> faults;
        int owner;
        /** May come any number of times: handed out and not acknowledged at a fault. */
        final Set<Position> redeliverable = new HashSet<>();
        /** Cancelled by their ids, unmet by a tracker. */
        final Set<Position> unmet = new HashSet<>();
        /** How often the others may come: once, and once more for each reset that took them back. */
        final Map<Position, Integer> times = new HashMap<>();
        /** From which delivery on a position must come: all when published, or reset. */
        final Map<Position, Integer> due = new TreeMap<>();
        int cancelled;
        /** Answered as done: from which delivery on it must not come. */
        final Map<Position, Integer> takenBack = new HashMap<>();
        /** By machine: cancelled over its daemon, so that it knows. */
        final List<Set<Position>> told = List.of(new HashSet<>(), new HashSet<>());
        /** By the request's number: positions that need not come until its answer, and from when on they had to. */
        final Map<Long, Map<Position, Integer>> asked = new HashMap<>();
        final Map<Standing, Integer> answers = new EnumMap<>(Standing.class);
        /** Times that may hold for a message, besides its own if it has none here. */
        final Map<Position, Set<Long>> mayHold = new HashMap<>();
        /** By the request's number: the new times. */
        final Map<Long, Map<Position, Long>> moving = new TreeMap<>();
        /** Requests before an end of overrides: the answer may be of an earlier moment. */
        final Set<Long> endedAmid = new HashSet<>();
        final Map<Standing, Integer> moves = new EnumMap<>(Standing.class);
        int checkedDeliveries;
        int deliveredAnew;
        long requests;
        /** The delivery from which on nothing leaves for the first time; none while uncertain. */
        int pausedFrom = NOT_PAUSED;
        int heldBack;
        long nextEntry;
        long ledger = 1;
        /** The cursor's record omitted acknowledgements; the model does not track if they are in it again. */
        boolean forgetful;
        /** A daemon has lost acknowledgements; thanks to the broker's own knowledge nothing comes again. */
        boolean ignorant;
        boolean everything;
        int skipped;

        History(long seed, Set<Fault> faults) {
            this.faults = faults;
            random = new Random(seed);
            machines = new ToyWorld[] {new ToyWorld(random), new ToyWorld(random)};
            for (ToyWorld machine : machines) {
                machine.credit = 1 + random.nextInt(20);
                machine.nearMaxEntries = random.nextInt(20);
                machine.horizonMs = 1 + random.nextInt(3000);
                machine.maxPendingEntries = 10 + random.nextInt(1000);
                machine.daemonWaitMs = random.nextBoolean() ? Long.MAX_VALUE / 2 : random.nextInt(5000);
                machine.daemon.maxHeldPerFrame = 1 + random.nextInt(20);
                machine.maxWaiting = 1 + random.nextInt(50);
                machine.stride = chance(70) ? new ScanPass.Stride(2 + random.nextInt(10), 1 + random.nextInt(20),
                        random.nextInt(8), 1 + random.nextInt(100), 1 + random.nextInt(10)) : null;
            }
            machines[1].broker = null;
            if (faults.contains(Fault.CLOCK)) {
                machines[1].clock.advance(random.nextInt(5_000));
            }
            world().broker.permits = 1 + random.nextInt(30);
            world().broker.readBatch = 1 + random.nextInt(10);
            world().broker.persistedRanges = may(Fault.CANCEL) && chance(70) ? ALL : random.nextInt(6);
            world().broker.failingOverrides = chance(50) ? 0 : random.nextInt(60);
            world().broker.luck = new Random(seed);
            world().broker.connect();
        }

        /** The topic's machine. */
        ToyWorld world() {
            return machines[owner];
        }

        ToyBroker broker() {
            return world().broker;
        }

        boolean chance(int percent) {
            return random.nextInt(100) < percent;
        }

        boolean may(Fault fault) {
            return faults.contains(fault);
        }

        void step() {
            if (may(Fault.CANCEL) && chance(15)) {
                takeBack();
            }
            if (may(Fault.PACE) && chance(8)) {
                pace(chance(50) ? ReleasePace.PAUSED : chance(50) ? ReleasePace.NONE : ReleasePace.rate(1 + random.nextInt(50)));
            }
            if (may(Fault.RESCHEDULE) && chance(15)) {
                moveSome();
            }
            if (may(Fault.LEVELS) && chance(3)) {
                List<Long> levels = Stream.of(20L, 300L, 2_000L, 9_000L).filter(level -> chance(60)).toList();
                broker().policy = new DelayPolicy(chance(30) ? List.of() : levels, random.nextInt(20), chance(50));
            }
            if (may(Fault.TYPE) && chance(4)) {
                redeliverUnacknowledged();
                broker().replaceDispatcher();
                broker().connect();
            }
            if (may(Fault.METADATA) && chance(broker().refusesMetadata ? 20 : 2)) {
                broker().refusesMetadata = !broker().refusesMetadata;
                // Without a claim it is without the daemon, too.
                everything |= world().daemonWaitMs < 10_000;
            }
            // A skipped message cannot be cancelled or moved.
            if (may(Fault.SKIP) && chance(may(Fault.CANCEL) ? 1 : 8)) {
                skip();
            }
            ToyWorld machine = chance(75) ? world() : machines[1 - owner];
            switch (random.nextInt(14)) {
                case 0, 1 -> publish();
                case 2 -> advance(random.nextInt(300));
                case 3 -> world().runBroker();
                case 4 -> {
                    machine.connect();
                    machine.toDaemon();
                }
                case 5 -> {
                    machine.daemon.tick(machine.now());
                    machine.toShim(1 + random.nextInt(5));
                }
                case 6 -> machine.daemon.commit();
                case 7 -> {
                    machine.watch();
                    machine.toDaemon();
                    noteAnswers(machine.daemon);
                    noteMoves(machine.daemon);
                }
                case 8, 9 -> consume();
                case 10 -> broker().persistCursor();
                case 11, 12 -> {
                    for (int i = random.nextInt(8); i >= 0; i--) {
                        world().readAhead();
                    }
                }
                default -> fault();
            }
            wake();
            checkTimes();
            checkPause();
        }

        /** Once answered it is in force. Without an answer it may be. */
        private void pace(ReleasePace pace) {
            ToyWorld machine = world();
            if (!machine.isConnected()) {
                return;
            }
            pausedFrom = NOT_PAUSED;
            machine.daemon.paced.clear();
            machine.daemon.pace(++requests, false, pace);
            machine.toShim(ALL);
            broker().runCursor();
            machine.toDaemon();
            noteAnswers(machine.daemon);
            Frame.Paced answer = machine.daemon.paced.get(requests);
            if (answer != null && answer.why().isEmpty()) {
                assertEquals(answer.pace(), broker().disk.pace, "a crash would bring another pace");
                pausedFrom = answer.pace().isPaused() ? broker().deliveries.size() : NOT_PAUSED;
                heldBack += answer.heldBack();
            }
        }

        /** While paused only messages without a delivery time come, and those that have come before. */
        private void checkPause() {
            List<ToyBroker.Delivery> deliveries = broker().deliveries;
            for (; pausedFrom != NOT_PAUSED && pausedFrom < deliveries.size(); pausedFrom++) {
                ToyBroker.Delivery delivery = deliveries.get(pausedFrom);
                assertTrue(delivery.deliverAtMs() < 0
                        || deliveries.subList(0, pausedFrom).stream().anyMatch(one -> one.position().equals(delivery.position())),
                        () -> delivery + " left while paused");
            }
        }

        private void advance(long ms) {
            for (ToyWorld machine : machines) {
                machine.clock.advance(ms);
            }
        }

        /** The timer fires on time, or a little later, never early. */
        private void wake() {
            if (broker().wakeMs <= world().now()) {
                world().runBroker();
            }
        }

        private void publish() {
            int count = chance(5) ? 20 + random.nextInt(60) : 1 + random.nextInt(5);
            for (int i = 0; i < count; i++) {
                if (chance(3)) {
                    ledger++;
                    nextEntry = 0;
                }
                long delay = chance(20) ? -1 : chance(20) ? 0 : random.nextInt(chance(30) ? 60_000 : 3_000);
                Position position = new Position(ledger, nextEntry++);
                broker().publish(position, delay < 0 ? -1 : world().now() + delay);
                due.put(position, 0);
                times.put(position, 1);
            }
        }

        private void moveSome() {
            List<Position> delayed = broker().log.entrySet().stream().filter(entry -> entry.getValue() >= 0)
                    .map(Map.Entry::getKey).toList();
            ToyDaemon daemon = world().daemon;
            if (delayed.isEmpty() || !world().isConnected() || daemon.version < FrameCodec.VERSION_WITH_MOVE) {
                return;
            }
            Map<Position, Long> times = new TreeMap<>();
            for (int i = random.nextInt(8); i >= 0; i--) {
                long timeMs = chance(30) ? 0 : world().now() + random.nextInt(chance(30) ? 60_000 : 3_000);
                times.put(delayed.get(random.nextInt(delayed.size())), timeMs);
            }
            Records records = new Records();
            times.forEach((position, timeMs) -> {
                records.add(position.ledgerId(), position.entryId(), timeMs);
                holding(position).add(timeMs);
            });
            broker().repeatedPointers = broker().failingOverrides > 0 && chance(5) ? 1 : 0;
            moving.put(++requests, times);
            daemon.reschedule(requests, false, records);
            world().toShim(ALL);
            for (int i = random.nextInt(6); i > 0; i--) {
                broker().runCursor();
            }
            world().toDaemon();
            noteMoves(daemon);
            noteAnswers(daemon);
        }

        private Set<Long> holding(Position position) {
            return mayHold.computeIfAbsent(position, one -> new HashSet<>(Set.of(broker().log.get(one))));
        }

        private void noteMoves(ToyDaemon daemon) {
            daemon.rescheduled.forEach(this::note);
            daemon.rescheduled.clear();
        }

        private void note(long seq, Frame.Rescheduled answer) {
            Map<Position, Long> asked = moving.remove(seq);
            moves.merge(answer.standing(), 1, Integer::sum);
            if (answer.standing() == Standing.UNSTORED) {
                return;
            }
            Set<Position> moved = new HashSet<>();
            if (answer.standing() == Standing.SETTLED) {
                answer.moved().forEach((ledgerId, entryId) -> moved.add(new Position(ledgerId, entryId)));
            }
            asked.forEach((position, timeMs) -> {
                if (moved.contains(position)) {
                    Set<Long> later = new HashSet<>(Set.of(timeMs));
                    if (endedAmid.contains(seq)) {
                        later.add(broker().log.get(position));
                    }
                    moving.forEach((number, times) -> {
                        if (number > seq && times.containsKey(position)) {
                            later.add(times.get(position));
                        }
                    });
                    mayHold.put(position, later);
                }
            });
        }

        /** Never before each time that may hold. */
        private void checkTimes() {
            List<ToyBroker.Delivery> deliveries = broker().deliveries;
            for (; checkedDeliveries < deliveries.size(); checkedDeliveries++) {
                ToyBroker.Delivery delivery = deliveries.get(checkedDeliveries);
                Set<Long> times = mayHold.get(delivery.position());
                if (times != null) {
                    deliveredAnew++;
                    assertTrue(times.stream().anyMatch(timeMs -> timeMs <= delivery.atMs()),
                            () -> "early: " + delivery + ", which is due at " + times);
                } else {
                    assertTrue(delivery.deliverAtMs() <= delivery.atMs(), () -> "early: " + delivery);
                }
            }
            broker().checkOverrides();
        }

        /** Its own time may count again. */
        private void ownTimesMayHold() {
            mayHold.forEach((position, times) -> times.add(broker().log.get(position)));
            endedAmid.addAll(moving.keySet());
        }

        private void takeBack() {
            List<Position> delayed = broker().log.entrySet().stream().filter(entry -> entry.getValue() >= 0)
                    .map(Map.Entry::getKey).toList();
            if (delayed.isEmpty() || !world().isConnected()) {
                return;
            }
            ToyDaemon daemon = world().daemon;
            Position[] some = random.ints(1 + random.nextInt(5), 0, delayed.size()).mapToObj(delayed::get).distinct()
                    .toArray(Position[]::new);
            Map<Position, Integer> need = new TreeMap<>();
            for (Position position : some) {
                Integer from = due.remove(position);
                if (from != null) {
                    need.put(position, from);
                }
            }
            asked.put(++requests, need);
            daemon.cancel(requests, false, some);
            world().toShim(ALL);
            world().toDaemon();
            noteAnswers(daemon);
        }

        /** An answer may come late, and never if its stream ends. */
        private void noteAnswers(ToyDaemon daemon) {
            daemon.cancelled.forEach((seq, answer) -> note(answer, asked.remove(seq)));
            daemon.cancelled.clear();
        }

        private void note(Frame.Cancelled answer, Map<Position, Integer> need) {
            answers.merge(answer.standing(), 1, Integer::sum);
            boolean isSettled = answer.standing() == Standing.SETTLED;
            if (answer.standing() == Standing.UNDECIDED) {
                need.forEach(due::putIfAbsent);
            }
            answer.tooLate().forEach((ledgerId, entryId) -> {
                Position position = new Position(ledgerId, entryId);
                if (need.containsKey(position)) {
                    due.putIfAbsent(position, need.get(position));
                }
            });
            answer.cancelled().forEach((ledgerId, entryId) -> {
                Position position = new Position(ledgerId, entryId);
                if (isSettled) {
                    checkStored(position);
                    takenBack.put(position, broker().deliveries.size());
                    told.get(owner).add(position);
                }
            });
            answer.acknowledged().forEach((ledgerId, entryId) -> {
                Position position = new Position(ledgerId, entryId);
                if (isSettled) {
                    checkStored(position);
                }
            });
        }

        /** A record has it, unless later acknowledgements have left no room. */
        private void checkStored(Position position) {
            assertTrue(broker().isOnDisk(position) || broker().persistedRanges != ALL,
                    () -> position + " was answered, and a crash would bring it back");
        }

        private void consume() {
            if (broker().isResetting() && chance(50)) {
                completeReset();
            }
            if (broker().consumers.isEmpty()) {
                broker().connect();
                return;
            }
            ToyBroker.ToyConsumer consumer = broker().consumers.get(random.nextInt(broker().consumers.size()));
            if (chance(30)) {
                cancel();
            }
            for (Position position : List.copyOf(consumer.pending)) {
                if (chance(40)) {
                    broker().acknowledge(consumer, position);
                } else if (chance(5)) {
                    redeliverable.add(position);
                    broker().negativeAcknowledge(consumer, position);
                }
            }
            broker().readRequested = true;
        }

        /**
         * Acknowledges free messages, due or not, by their ids: they need not come, and may come once less. Only Pulsar
         * knows of them after a reset until a tracker has put a seal there, and, if no tracker has met them, until the topic
         * is unloaded.
         */
        private void cancel() {
            List<Position> waiting = broker().log.keySet().stream()
                    .filter(one -> !broker().isDeleted(one.ledgerId(), one.entryId())
                            && !broker().isOutstanding(one.ledgerId(), one.entryId())).toList();
            for (Position position : waiting) {
                if (chance(20) && due.remove(position) != null) {
                    if (came(position) < times.get(position)) {
                        times.merge(position, -1, Integer::sum);
                    }
                    if (isUnsealed()) {
                        redeliverable.add(position);
                    } else if (!world().core().queue().contains(position.ledgerId(), position.entryId())) {
                        unmet.add(position);
                    }
                    broker().cancel(position);
                    cancelled++;
                }
            }
        }

        private boolean isUnsealed() {
            return world().core() == null || broker().seal() == Seal.NONE;
        }

        /** How often it has come. */
        private long came(Position position) {
            return broker().deliveries.stream().filter(delivery -> delivery.position().equals(position)).count();
        }

        private void fault() {
            ToyWorld machine = chance(75) ? world() : machines[1 - owner];
            switch (random.nextInt(15)) {
                case 0 -> {
                    if (may(Fault.CONNECTION)) {
                        machine.disconnect();
                    }
                }
                case 1 -> {
                    if (may(Fault.DAEMON)) {
                        machine.crashDaemon();
                        machine.daemon.version = may(Fault.RESCHEDULE) && chance(10) ? 5 : FrameCodec.VERSION;
                    }
                }
                case 2 -> {
                    if (may(Fault.DAEMON) && chance(20)) {
                        machine.wipeDaemon();
                        ignorant = true;
                        // Later acknowledgements may have taken these from the record, and only that daemon knew them.
                        takenBack.keySet().removeIf(position -> machine == world() && !broker().isOnDisk(position));
                        everything |= forgetful;
                    }
                }
                case 3 -> {
                    if (may(Fault.DAEMON)) {
                        machine.daemonUp = !machine.daemonUp;
                        machine.disconnect();
                        everything |= machine.daemonWaitMs < 10_000;
                    }
                }
                case 4 -> {
                    if (may(Fault.BROKER)) {
                        leave(owner);
                    }
                }
                case 5 -> {
                    if (may(Fault.CONSUMERS)) {
                        redeliverUnacknowledged();
                        if (broker().consumers.isEmpty() || chance(50)) {
                            broker().connect();
                        } else {
                            broker().disconnect(broker().consumers.get(random.nextInt(broker().consumers.size())));
                        }
                    }
                }
                case 6 -> {
                    if (may(Fault.CONSUMERS)) {
                        redeliverUnacknowledged();
                        broker().disconnectAll();
                    }
                }
                case 7, 8 -> {
                    if (may(Fault.RESET) && !broker().log.isEmpty()) {
                        beginReset();
                    }
                }
                case 9 -> {
                    if (may(Fault.DAEMON) && chance(30)) {
                        machine.daemon.failStreams();
                    }
                }
                case 10 -> {
                    if (may(Fault.MOVE)) {
                        leave(1 - owner);
                    }
                }
                case 11, 12 -> {
                    if (may(Fault.REBUILD) && machine.daemonUp) {
                        rebuild(machine.daemon);
                    }
                }
                case 13 -> {
                    if (may(Fault.CLOCK)) {
                        machine.clock.set(machine.now() - random.nextInt(3_000));
                    }
                }
                default -> {
                    if (may(Fault.DAEMON) && chance(30) && !broker().log.isEmpty()) {
                        List<Position> positions = List.copyOf(broker().log.keySet());
                        machine.daemon.corrupt(ToyBroker.TOPIC, ToyBroker.SUBSCRIPTION,
                                positions.get(random.nextInt(positions.size())));
                    }
                }
            }
        }

        /** Puts some of the stored messages into the index, whatever their state: read, handed out or acknowledged. */
        private void rebuild(ToyDaemon daemon) {
            broker().log.forEach((position, deliverAtMs) -> {
                if (deliverAtMs >= 0 && chance(60)) {
                    daemon.takeIn(ToyBroker.TOPIC, ToyBroker.SUBSCRIPTION, position, deliverAtMs);
                }
            });
        }

        /** The broker is killed, or the topic unloaded; {@code to} has it next. */
        private void leave(int to) {
            redeliverUnacknowledged();
            if (may(Fault.CLOCK)) {
                // An override goes when its time has come by one clock; the next owner's may be behind.
                ownTimesMayHold();
            }
            ToyBroker left;
            if (chance(50)) {
                if (chance(10)) {
                    broker().loseRecord();
                    ownTimesMayHold();
                    takenBack.clear();
                }
                skipWhatIsStored();
                redeliverUnmet();
                left = world().killBroker();
                everything = true;
            } else if (broker().isResetting()) {
                // Pulsar does not close a cursor amid a reset.
                return;
            } else {
                redeliverPlain();
                // Only this machine's daemon knows the acknowledgements without room in the record.
                int ranges = chance(50) ? ALL : random.nextInt(6);
                forgetful |= ranges != ALL;
                // That machine's tracker decides alone if its wait for the daemon is over first.
                everything |= forgetful && (to != owner || ignorant || world().daemonWaitMs < 10_000);
                broker().persistedRanges = ranges;
                if (isUnsealed()) {
                    redeliverUnmet();
                }
                unmet.clear();
                left = world().unloadBroker(ranges);
            }
            // Later acknowledgements may have left no room in the record. Then only this machine's daemon knows, if the next
            // owner waits for it.
            boolean nobodyKnows = to != owner || ignorant || machines[to].daemonWaitMs < 10_000;
            takenBack.keySet().removeIf(position -> !left.isOnDisk(position)
                    && (nobodyKnows || !told.get(to).contains(position)));
            owner = to;
            world().takeOver(left);
        }

        /**
         * The user skips the first messages. To a tracker it is a reset if no consumer has stayed since its last look: then
         * everything may come again.
         */
        private void skip() {
            List<Position> left = broker().log.keySet().stream()
                    .filter(one -> !broker().isDeleted(one.ledgerId(), one.entryId())).limit(1 + random.nextInt(3)).toList();
            if (left.isEmpty() || broker().isResetting()) {
                return;
            }
            Position last = left.get(left.size() - 1);
            due.keySet().removeIf(position -> position.compareTo(last) <= 0);
            boolean isReset = broker().consumers.isEmpty() || world().core() == null || may(Fault.CONSUMERS) || may(Fault.RESET);
            everything |= isReset;
            if (isReset) {
                // Knowledge of a daemon alone goes with its seal.
                told.forEach(Set::clear);
                takenBack.keySet().removeIf(position -> !broker().isDeleted(position.ledgerId(), position.entryId()));
            }
            broker().clearBacklog(last);
            broker().readRequested = true;
            skipped += left.size();
        }

        /** A seek was stored and never answered: skipped messages need not come. */
        private void skipWhatIsStored() {
            if (broker().isResetting()) {
                due.keySet().removeIf(position -> position.compareTo(broker().markDelete()) > 0
                        && position.compareTo(broker().disk.markDelete) <= 0);
            }
        }

        /** The user seeks; the target need not have a tracker. */
        private void beginReset() {
            redeliverUnacknowledged();
            takenBack.clear();
            List<Position> positions = List.copyOf(broker().log.keySet());
            broker().beginReset(positions.get(random.nextInt(positions.size())));
            if (chance(60)) {
                completeReset();
            }
        }

        /** The seek is answered: from now on everything from there must come. */
        private void completeReset() {
            Position to = broker().resettingTo();
            broker().completeReset();
            ownTimesMayHold();
            for (Position position : broker().log.keySet()) {
                if (position.compareTo(to) >= 0) {
                    due.put(position, broker().deliveries.size());
                    times.merge(position, 1, Integer::sum);
                } else {
                    due.remove(position);
                }
            }
        }

        /** Pulsar alone decides if the acknowledgement of a message without a delivery time survives. */
        private void redeliverPlain() {
            broker().log.forEach((position, deliverAtMs) -> {
                if (deliverAtMs < 0) {
                    redeliverable.add(position);
                }
            });
        }

        private void redeliverUnmet() {
            redeliverable.addAll(unmet);
            unmet.clear();
        }

        private void redeliverUnacknowledged() {
            broker().consumers.forEach(consumer -> redeliverable.addAll(consumer.pending));
        }

        /** No more faults: everything published must reach a consumer that acknowledges it. */
        void finish() {
            if (broker().isResetting()) {
                completeReset();
            }
            world().daemonUp = true;
            broker().failingOverrides = 0;
            broker().refusesMetadata = false;
            broker().permits = Math.max(5, broker().permits);
            world().settle();
            if (broker().consumers.isEmpty()) {
                broker().connect();
            }
            long end = world().now() + 200_000;
            while (!broker().isFullyAcknowledged() && world().now() < end) {
                if (may(Fault.PACE)) {
                    checkPause();
                    pace(ReleasePace.NONE);
                }
                world().runUntil(world().now() + 500);
                world().acknowledgeAll();
                if (broker().consumers.isEmpty()) {
                    broker().connect();
                }
            }
            if (may(Fault.PACE) && world().daemon.knownPace() != null) {
                world().runUntil(world().now() + 3_000);
                assertEquals(broker().pace(), world().daemon.knownPace(), "the daemon shows a former pace");
            }
        }

        private ToyDaemon.Index index() {
            return world().daemon.index(ToyBroker.TOPIC, ToyBroker.SUBSCRIPTION);
        }

        long takenAhead() {
            return machines[0].takenAhead() + machines[1].takenAhead();
        }

        void check() {
            for (ToyWorld machine : machines) {
                assertEquals(List.of(), machine.daemon.violations);
            }
            List<ToyBroker.Delivery> deliveries = broker().deliveries;
            checkTimes();
            assertTrue(broker().isFullyAcknowledged(), () -> "lost: " + broker().log.keySet().stream()
                    .filter(position -> !broker().isDeleted(position.ledgerId(), position.entryId())).toList()
                    + " " + (world().core() == null ? "" : world().core().stats()) + " held " + index().held.keySet()
                    + " " + world().daemon);
            Map<Position, Integer> last = new HashMap<>();
            Map<Position, Integer> came = new HashMap<>();
            for (int i = 0; i < deliveries.size(); i++) {
                last.put(deliveries.get(i).position(), i);
                came.merge(deliveries.get(i).position(), 1, Integer::sum);
            }
            takenBack.forEach((position, from) -> assertTrue(last.getOrDefault(position, -1) < from,
                    () -> position + " was cancelled before delivery " + from + ", and came"));
            due.forEach((position, from) -> assertTrue(last.getOrDefault(position, -1) >= from,
                    () -> position + " was lost: it did not come since delivery " + from));
            if (world().core() != null) {
                world().settle();
                assertEquals(0, world().core().queue().delayedMessages(), "msgDelayed at the end");
            }
            if (!everything) {
                came.forEach((position, count) -> assertTrue(
                        count <= times.get(position) || redeliverable.contains(position),
                        () -> position + " came " + count + " times"));
            }
        }
    }

    private static void run(long seed, Set<Fault> faults) {
        History history = new History(seed, faults);
        try {
            for (int step = 0; step < STEPS; step++) {
                history.step();
            }
            history.finish();
            history.check();
        } catch (AssertionError | RuntimeException e) {
            throw new AssertionError("seed " + seed + " with " + faults + ", " + history.takenAhead() + " read ahead: " + e.getMessage(), e);
        }
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void withoutFaultsEverythingComesOnce(long seed) {
        run(seed, Set.of());
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void lostConnectionsRepeatNothing(long seed) {
        run(seed, Set.of(Fault.CONNECTION));
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void consumersComeAndGo(long seed) {
        run(seed, Set.of(Fault.CONNECTION, Fault.CONSUMERS));
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void killedDaemons(long seed) {
        run(seed, Set.of(Fault.CONNECTION, Fault.CONSUMERS, Fault.DAEMON));
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void resetsBringEverythingAgainAndNothingTwice(long seed) {
        run(seed, Set.of(Fault.CONNECTION, Fault.CONSUMERS, Fault.RESET));
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void resetsWithAndWithoutATracker(long seed) {
        run(seed, Set.of(Fault.RESET, Fault.BROKER));
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void movesThereAndBackWithResetsInBetween(long seed) {
        run(seed, Set.of(Fault.RESET, Fault.MOVE, Fault.BROKER, Fault.CLOCK));
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void anIndexIsRebuiltMeanwhile(long seed) {
        run(seed, Set.of(Fault.REBUILD, Fault.CONSUMERS, Fault.RESET, Fault.BROKER));
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void cancelledOrDeliveredAndNeverBoth(long seed) {
        run(seed, Set.of(Fault.CANCEL, Fault.CONNECTION, Fault.CONSUMERS, Fault.DAEMON, Fault.BROKER));
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void cancelledAmidResets(long seed) {
        run(seed, Set.of(Fault.CANCEL, Fault.CONNECTION, Fault.CONSUMERS, Fault.RESET, Fault.BROKER));
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void whatIsPausedComesAfterwards(long seed) {
        run(seed, Set.of(Fault.PACE, Fault.CONNECTION));
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void movedAndNeverBeforeTheTimeThatHolds(long seed) {
        run(seed, Set.of(Fault.RESCHEDULE, Fault.CONNECTION, Fault.CONSUMERS, Fault.DAEMON, Fault.BROKER));
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void roundedUpByOtherLevelsAllTheTime(long seed) {
        run(seed, Set.of(Fault.LEVELS, Fault.CONNECTION, Fault.CONSUMERS, Fault.DAEMON, Fault.BROKER, Fault.MOVE, Fault.RESET,
                Fault.RESCHEDULE));
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void anotherTypeOfSubscriptionAndBack(long seed) {
        run(seed, Set.of(Fault.TYPE, Fault.CONNECTION, Fault.CONSUMERS, Fault.DAEMON, Fault.RESCHEDULE, Fault.CANCEL));
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void anotherTypeAmidResets(long seed) {
        run(seed, Set.of(Fault.TYPE, Fault.CONNECTION, Fault.BROKER, Fault.RESET, Fault.RESCHEDULE));
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void pausedAmidFaults(long seed) {
        run(seed, Set.of(Fault.PACE, Fault.CONNECTION, Fault.CONSUMERS, Fault.DAEMON, Fault.BROKER, Fault.MOVE, Fault.CLOCK));
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void movedToAnotherMachine(long seed) {
        run(seed, Set.of(Fault.RESCHEDULE, Fault.MOVE, Fault.DAEMON, Fault.BROKER, Fault.REBUILD));
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void movedAndCancelledAmidResets(long seed) {
        run(seed, Set.of(Fault.RESCHEDULE, Fault.CANCEL, Fault.CONNECTION, Fault.CONSUMERS, Fault.RESET, Fault.BROKER));
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void theMetadataStoreRefusesWrites(long seed) {
        run(seed, Set.of(Fault.METADATA, Fault.MOVE, Fault.BROKER, Fault.CONSUMERS, Fault.DAEMON, Fault.PACE, Fault.RESCHEDULE));
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void everythingBreaks(long seed) {
        run(seed, EVERYTHING);
    }

    /** Any two to five kinds of faults at once: a promise broken by the others cannot hide behind them. */
    @ParameterizedTest
    @MethodSource("seeds")
    void anyFewFaultsTogether(long seed) {
        Random luck = new Random(seed);
        List<Fault> faults = new ArrayList<>(EVERYTHING);
        Collections.shuffle(faults, luck);
        run(seed, EnumSet.copyOf(faults.subList(0, 2 + luck.nextInt(4))));
    }

    /** A kind less, in turn, meets faults that this kind hides. */
    @ParameterizedTest
    @MethodSource("seeds")
    void almostEverythingBreaks(long seed) {
        Fault[] kinds = Fault.values();
        run(seed, EnumSet.complementOf(EnumSet.of(kinds[(int) (seed % kinds.length)])));
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void skippingRepeatsNothing(long seed) {
        run(seed, Set.of(Fault.SKIP, Fault.CONNECTION, Fault.BROKER));
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void skippedAmidResets(long seed) {
        run(seed, Set.of(Fault.SKIP, Fault.RESET, Fault.CONNECTION, Fault.CONSUMERS, Fault.BROKER));
    }

    /** Without deliveries this would find nothing. */
    @Test
    void historiesAreWorthSomething() {
        int deliveries = 0;
        int again = 0;
        int cancelled = 0;
        int skipped = 0;
        Map<Standing, Integer> answers = new EnumMap<>(Standing.class);
        Map<Standing, Integer> moves = new EnumMap<>(Standing.class);
        int anew = 0;
        long readAhead = 0;
        int heldBack = 0;
        for (long seed = 0; seed < 30; seed++) {
            History history = new History(seed, EVERYTHING);
            for (int step = 0; step < STEPS; step++) {
                history.step();
            }
            deliveries += history.broker().deliveries.size();
            readAhead += history.takenAhead();
            cancelled += history.cancelled;
            skipped += history.skipped;
            heldBack += history.heldBack;
            history.answers.forEach((standing, count) -> answers.merge(standing, count, Integer::sum));
            history.moves.forEach((standing, count) -> moves.merge(standing, count, Integer::sum));
            anew += history.deliveredAnew;
            again += (int) history.due.values().stream().filter(from -> from > 0).count();
        }
        assertTrue(deliveries > 500, deliveries + " deliveries");
        assertTrue(readAhead > 30, readAhead + " taken that were read ahead");
        assertTrue(cancelled > 100, cancelled + " cancelled");
        assertTrue(skipped > 50, skipped + " skipped");
        assertTrue(heldBack > 100, heldBack + " held back");
        assertTrue(again > 500, again + " taken back by resets");
        assertTrue(answers.get(Standing.SETTLED) > 100, answers + " answers to cancels");
        assertTrue(answers.get(Standing.NO_ROOM) > 10, answers + " answers to cancels");
        assertTrue(moves.get(Standing.SETTLED) > 100, moves + " answers to moves");
        assertTrue(moves.get(Standing.UNSTORED) > 0, moves + " answers to moves");
        assertTrue(anew > 30, anew + " deliveries of moved messages");
    }
}
