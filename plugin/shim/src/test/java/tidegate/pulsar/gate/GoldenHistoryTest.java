package tidegate.pulsar.gate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;
import tidegate.pulsar.gate.GoldenHistory.Step;
import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.Position;

/**
 * The simulator's kept histories (tests/testdata/sim), played by the shim's own classes: a fault that befell a model of these
 * classes must not befall them. The daemon is the toy here, as the shim is in the simulator; latencies and luck differ.
 *
 * <p>Whatever happens, nothing is early, nothing is lost, and nothing is sent to a consumer while one has it.
 */
class GoldenHistoryTest {
    private static final int MACHINES = 2;
    private static final long LOAD_MS = 10;
    private static final int LATEST = 1000;
    private static final int PERCENT = 100;
    /**
     * Events below the toys: a store, a disk's pace, the index, the homes of index logs; also lives of a subscription, as the
     * toys have only one.
     */
    private static final Set<String> BELOW = Set.of("slow_disk", "refuse_writes", "refuse_reads", "fail_write", "damage", "width",
            "drift", "wait", "bookies_slow", "bookies_away", "damage_log", "unsubscribe", "back_up", "put_back");

    static Stream<Path> histories() {
        return GoldenHistory.files().stream();
    }

    /** A step that waits until some daemon would have made so many requests about an index log. */
    private static final class Trap {
        private final boolean appends;
        private final Step then;
        private int left;

        Trap(Step step) {
            appends = step.arguments().get("op").equals("APPEND");
            left = step.number("request", 1);
            then = step.then();
        }

        /** Opening a stream opens, reads and begins a log; each change then appends to it. */
        boolean springs(List<Frame> received) {
            left -= (int) received.stream().filter(frame -> appends ? isChange(frame) : frame instanceof Frame.Open).count();
            return left <= 0;
        }

        private static boolean isChange(Frame frame) {
            return frame instanceof Frame.Add || frame instanceof Frame.Ack || frame instanceof Frame.Unack
                    || frame instanceof Frame.MarkDelete || frame instanceof Frame.Clear;
        }
    }

    private static final class Play {
        private final GoldenHistory history;
        private final ToyWorld[] machines = new ToyWorld[MACHINES];
        /** Other events still to come, by time. */
        private final TreeMap<Long, List<Runnable>> later = new TreeMap<>();
        /** The delivery from which on a position must come. */
        private final Map<Position, Integer> due = new TreeMap<>();
        private final int clients;
        private long ackAfterMs;
        private long passedMs;
        private int owner = 1;
        private ToyBroker homeless;
        private Trap trap;
        private long ledger;
        private long entry;
        private int steps;

        Play(GoldenHistory history) {
            this.history = history;
            Random random = new Random(history.setting("seed", 0));
            for (int i = 0; i < MACHINES; i++) {
                ToyWorld machine = machines[i] = new ToyWorld(random);
                machine.horizonMs = (int) history.setting("horizon_ms", 2_000);
                machine.credit = (int) history.setting("credit", 100);
                machine.daemon.creditMax = (int) history.setting("credit_max", 1_000_000);
                machine.nearMaxEntries = history.setting("near_max", 1_000);
                machine.maxPendingEntries = history.setting("pending_max", 10_000);
                machine.daemonWaitMs = history.setting("daemon_wait_ms", 10_000);
            }
            clients = (int) history.setting("clients", 2);
            ackAfterMs = history.setting("ack_after_ms", -1);
            ledger = history.setting("first_ledger_id", 10);
            machines[0].broker = null;
            machines[1].broker.permits = (int) history.setting("permits", 10);
            machines[1].broker.persistedRanges = (int) history.setting("ranges_max", 10_000);
            connectAll();
        }

        private ToyWorld world() {
            return machines[owner];
        }

        private ToyBroker broker() {
            return world().broker;
        }

        private ToyBroker topic() {
            return homeless == null ? broker() : homeless;
        }

        private void connectAll() {
            while (broker() != null && !broker().isResetting() && broker().consumers.size() < clients) {
                broker().connect();
            }
        }

        private ToyBroker.ToyConsumer consumer(Step step) {
            boolean none = broker() == null || broker().consumers.isEmpty();
            return none ? null : broker().consumers.get(step.number("client") % broker().consumers.size());
        }

        // ---- time

        private void in(long ms, Runnable call) {
            later.computeIfAbsent(passedMs + ms, at -> new ArrayList<>()).add(call);
        }

        private void run(long ms) {
            long end = passedMs + ms;
            while (true) {
                while (!later.isEmpty() && later.firstKey() <= passedMs) {
                    later.pollFirstEntry().getValue().forEach(Runnable::run);
                }
                settle();
                if (passedMs == end) {
                    return;
                }
                long next = Math.min(end, passedMs + 20);
                if (!later.isEmpty()) {
                    next = Math.min(next, later.firstKey());
                }
                if (broker() != null && broker().wakeMs > world().now()) {
                    next = Math.min(next, passedMs + broker().wakeMs - world().now());
                }
                for (ToyWorld machine : machines) {
                    machine.clock.advance(next - passedMs);
                }
                passedMs = next;
            }
        }

        private void settle() {
            for (ToyWorld machine : machines) {
                for (int i = 0; i < 4; i++) {
                    machine.connect();
                    toDaemon(machine);
                    machine.daemon.commit();
                    machine.daemon.tick(machine.now());
                    machine.toShim(Integer.MAX_VALUE);
                    machine.runBroker();
                    machine.watch();
                }
            }
            if (broker() != null) {
                checkHands();
                if (ackAfterMs >= 0) {
                    world().acknowledgeAll();
                }
            }
        }

        private void toDaemon(ToyWorld machine) {
            List<Frame> received = machine.daemon.received;
            int before = received.size();
            machine.toDaemon();
            if (trap != null && trap.springs(received.subList(before, received.size()))) {
                Step then = trap.then;
                trap = null;
                perform(then);
            }
        }

        private void checkHands() {
            Map<Position, ToyBroker.ToyConsumer> hands = new HashMap<>();
            for (ToyBroker.ToyConsumer consumer : broker().consumers) {
                consumer.pending.forEach(position ->
                        assertEquals(null, hands.put(position, consumer), () -> position + " is in two hands"));
            }
        }

        // ---- steps

        void play() {
            for (Step step : history.steps()) {
                run(step.afterMs());
                perform(step);
                steps++;
            }
        }

        private void perform(Step step) {
            ToyWorld machine = machines[Math.floorMod(step.number("machine", step.number("daemon")), MACHINES)];
            switch (step.action()) {
                case "publish" -> publish(step.numbers("delays_ms"));
                case "roll_over" -> rollOver();
                case "unload" -> unload(step.number("to", owner));
                case "seek" -> seek(step.number("to"));
                case "clear_backlog" -> clearBacklog();
                case "skip" -> skip(step.number("count"));
                case "connect" -> connectAll();
                case "disconnect", "drop" -> drop(step);
                case "acknowledge", "negative_acknowledge", "acknowledge_late" -> answer(step);
                case "permits" -> topic().permits = step.number("permits");
                case "pace" -> ackAfterMs = step.number("ack_after_ms");
                case "kill_broker", "kill_at_send", "freeze_broker", "set_log_home" -> kill(step.number("broker") % MACHINES);
                case "kill_both" -> {
                    kill(step.number("broker") % MACHINES);
                    crash(machines[step.number("broker") % MACHINES], step);
                }
                case "power_cut" -> {
                    kill(Math.floorMod(step.number("machine"), MACHINES));
                    crash(machine, step);
                }
                case "kill_daemon", "kill_at_write", "stop_daemon", "freeze_daemon", "lose_log", "set_daemon" -> crash(machine, step);
                case "lose_data" -> {
                    machine.wipeDaemon();
                    crash(machine, step);
                }
                case "cut" -> machines[step.number("broker") % MACHINES].disconnect();
                case "rebuild" -> rebuild(step);
                case "at_log_request" -> trap = new Trap(step);
                case "clock" -> machine.clock.step(step.number("by_ms"));
                default -> assertTrue(BELOW.contains(step.action()), () -> "nobody here can " + step.action());
            }
        }

        private void publish(List<Long> delaysMs) {
            if (broker() == null) {
                return;
            }
            for (long delayMs : delaysMs) {
                Position position = new Position(ledger, entry++);
                broker().publish(position, delayMs < 0 ? -1 : ToyWorld.START_MS + passedMs + delayMs);
                due.put(position, 0);
            }
        }

        private void rollOver() {
            ledger++;
            entry = 0;
        }

        private void drop(Step step) {
            ToyBroker.ToyConsumer consumer = consumer(step);
            if (consumer != null) {
                broker().disconnect(consumer);
                in(LOAD_MS, this::connectAll);
            }
        }

        private void answer(Step step) {
            ToyBroker.ToyConsumer consumer = consumer(step);
            if (consumer == null) {
                return;
            }
            List<Position> pending = List.copyOf(consumer.pending);
            int from = Math.min(pending.size(), step.number("skip"));
            int to = Math.min(pending.size(), from + step.number("count"));
            for (Position position : pending.subList(from, to)) {
                if (step.action().equals("negative_acknowledge")) {
                    broker().negativeAcknowledge(consumer, position);
                } else {
                    broker().acknowledge(consumer, position);
                }
            }
            broker().readRequested = true;
        }

        private void seek(int thousandths) {
            ToyBroker seeking = broker();
            if (seeking == null || seeking.isResetting() || seeking.log.isEmpty()) {
                return;
            }
            List<Position> positions = List.copyOf(seeking.log.keySet());
            int at = positions.size() * thousandths / LATEST;
            if (at == positions.size()) {
                return; // the toy's seek goes to a message
            }
            seeking.beginReset(positions.get(at));
            in(history.setting("cursor_io_us", 2_000) / 1_000, () -> {
                if (seeking == broker() && seeking.isResetting()) {
                    seeking.completeReset();
                    takeBack(seeking.readPosition());
                    connectAll();
                }
            });
        }

        private void clearBacklog() {
            if (broker() == null || broker().isResetting() || broker().log.isEmpty()) {
                return;
            }
            due.keySet().removeIf(position -> position.compareTo(broker().log.lastKey()) <= 0);
            broker().clearBacklog();
            if (broker().core != null) {
                broker().core.queue().clear();
            }
        }

        private void skip(int count) {
            if (broker() == null || broker().isResetting()) {
                return;
            }
            List<Position> left = broker().log.keySet().stream()
                    .filter(position -> !broker().isDeleted(position.ledgerId(), position.entryId())).limit(count).toList();
            if (left.isEmpty()) {
                return;
            }
            Position last = left.get(left.size() - 1);
            due.keySet().removeIf(position -> position.compareTo(last) <= 0);
            broker().clearBacklog(last);
            broker().readRequested = true;
        }

        /** From now on, all messages from there on must come unless the cursor has them as deleted. */
        private void takeBack(Position from) {
            for (Position position : broker().log.keySet()) {
                if (position.compareTo(from) < 0) {
                    due.remove(position);
                } else if (!broker().isDeleted(position.ledgerId(), position.entryId())) {
                    due.put(position, broker().deliveries.size());
                }
            }
        }

        private void unload(int to) {
            if (broker() == null) {
                return;
            }
            // A topic that closes amid a seek is stored with the seek's target and the earlier acknowledgements.
            Position seeking = broker().resettingTo();
            homeless = world().unloadBroker(broker().persistedRanges);
            in(LOAD_MS, () -> load(to % MACHINES, seeking));
        }

        private void load(int to, Position seeking) {
            owner = to;
            world().takeOver(homeless);
            homeless = null;
            if (seeking != null) {
                takeBack(seeking);
            }
            connectAll();
        }

        private void kill(int number) {
            if (broker() == null || number != owner) {
                return;
            }
            Position seeking = broker().disk.markDelete.compareTo(broker().markDelete()) == 0 ? null : broker().resettingTo();
            if (seeking != null) {
                due.keySet().removeIf(position -> position.compareTo(broker().disk.markDelete) <= 0);
            }
            homeless = world().killBroker();
            in(history.setting("session_timeout_ms", 1_000), () -> load(1 - number, null));
        }

        /** Puts that percentage of the unacknowledged positions into the index, and makes it let go of so many of all. */
        private void rebuild(Step step) {
            if (broker() == null || !world().daemonUp) {
                return;
            }
            Random luck = new Random(step.luck());
            broker().log.forEach((position, deliverAtMs) -> {
                boolean letsGo = luck.nextInt(PERCENT) < step.number("let_go");
                boolean takesIn = luck.nextInt(PERCENT) < step.number("share", PERCENT);
                if (takesIn && deliverAtMs >= 0 && !broker().isDeleted(position.ledgerId(), position.entryId())) {
                    world().daemon.takeIn(ToyBroker.TOPIC, ToyBroker.SUBSCRIPTION, position, deliverAtMs);
                }
                if (letsGo) {
                    world().daemon.corrupt(ToyBroker.TOPIC, ToyBroker.SUBSCRIPTION, position);
                }
            });
        }

        private void crash(ToyWorld machine, Step step) {
            machine.daemonUp = false;
            machine.crashDaemon();
            in(step.number("down_ms", step.number("for_ms")), () -> machine.daemonUp = true);
        }

        // ---- the end

        void finish() {
            trap = null;
            run(history.setting("session_timeout_ms", 1_000) + 1_000);
            while (!later.isEmpty()) {
                run(later.firstKey() - passedMs);
            }
            for (ToyWorld machine : machines) {
                machine.clock.step(ToyWorld.START_MS + passedMs - machine.now());
            }
            ackAfterMs = 0;
            topic().permits = Math.max(50, topic().permits);
            connectAll();
            for (int i = 0; i < 200 && !broker().isFullyAcknowledged(); i++) {
                run(1_000);
            }
        }

        void check() {
            assertEquals(history.steps().size(), steps);
            for (ToyWorld machine : machines) {
                assertEquals(List.of(), machine.daemon.violations);
            }
            Map<Position, Integer> last = new HashMap<>();
            List<ToyBroker.Delivery> deliveries = broker().deliveries;
            for (int i = 0; i < deliveries.size(); i++) {
                ToyBroker.Delivery delivery = deliveries.get(i);
                assertTrue(delivery.deliverAtMs() <= delivery.atMs(), () -> "early: " + delivery);
                last.put(delivery.position(), i);
            }
            assertTrue(broker().isFullyAcknowledged(), () -> "lost: " + broker().log.keySet().stream()
                    .filter(position -> !broker().isDeleted(position.ledgerId(), position.entryId())).toList()
                    + " " + (broker().core == null ? "no tracker" : broker().core.stats()));
            due.forEach((position, from) -> assertTrue(last.getOrDefault(position, -1) >= from,
                    () -> position + " was lost: it did not come since delivery " + from + " of " + deliveries));
        }
    }

    @ParameterizedTest
    @MethodSource("histories")
    void holds(Path file) throws Exception {
        Play play = new Play(GoldenHistory.read(file));
        play.play();
        play.finish();
        play.check();
        assertFalse(play.broker().deliveries.isEmpty(), "nothing was ever delivered");
    }

    @ParameterizedTest
    @CsvSource({"OPEN, 1, 0", "OPEN, 2, 1", "APPEND, 2, 0", "APPEND, 9, 1"})
    void whatWaitsForALogHappensWhenADaemonWouldAskForIt(String op, long request, int owner) {
        Map<String, Object> then = Map.of("do", "unload", "to", 0L);
        Step waits = new Step(0, "at_log_request", Map.of("op", op, "request", request, "then", then));
        Step publish = new Step(100, "publish", Map.of("delays_ms", List.of(60_000L)));
        Step wait = new Step(500, "wait", Map.of());
        Play play = new Play(new GoldenHistory("made here", Map.of(), List.of(waits, publish, publish, wait)));

        play.play();

        assertEquals(owner, play.owner);
    }

    @Test
    void thereAreHistories() {
        assertFalse(GoldenHistory.files().isEmpty());
    }
}
