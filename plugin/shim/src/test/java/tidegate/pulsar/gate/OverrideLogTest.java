package tidegate.pulsar.gate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import tidegate.pulsar.position.NearTier;
import tidegate.pulsar.position.Overrides;
import tidegate.pulsar.position.PositionStates;
import tidegate.pulsar.position.SoughtPositions;
import tidegate.pulsar.wire.OverrideEntry;
import tidegate.pulsar.wire.Ownership;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.ProtocolException;
import tidegate.pulsar.wire.Records;

/** One tracker's times of moved messages; the test plays BookKeeper and answers when it likes. */
class OverrideLogTest {
    private static final Position MESSAGE = new Position(1, 2);

    /** Requests wait in the order of their coming. */
    private static final class PlayedHome implements OverrideHome {
        private final Map<Long, List<ByteBuffer>> ledgers = new TreeMap<>();
        private final Deque<CompletableFuture<List<ByteBuffer>>> reads = new ArrayDeque<>();
        private final Deque<Long> asked = new ArrayDeque<>();
        private final Deque<CompletableFuture<Void>> appends = new ArrayDeque<>();
        private final Deque<CompletableFuture<Pointed>> points = new ArrayDeque<>();
        private final List<Long> deleted = new ArrayList<>();
        private String pointer = "";
        private String next = "";
        private long lastLedger = 10;

        @Override
        public boolean isAvailable() {
            return true;
        }

        @Override
        public String pointer() {
            return pointer;
        }

        @Override
        public CompletableFuture<Long> create() {
            ledgers.put(++lastLedger, new ArrayList<>());
            return CompletableFuture.completedFuture(lastLedger);
        }

        @Override
        public CompletableFuture<Void> append(long ledgerId, ByteBuffer entry) {
            ledgers.get(ledgerId).add(entry);
            appends.add(new CompletableFuture<>());
            return appends.getLast();
        }

        @Override
        public CompletableFuture<List<ByteBuffer>> read(long ledgerId) {
            asked.add(ledgerId);
            reads.add(new CompletableFuture<>());
            return reads.getLast();
        }

        @Override
        public CompletableFuture<Pointed> point(String former, String wanted) {
            assertEquals(pointer, former);
            next = wanted;
            points.add(new CompletableFuture<>());
            return points.getLast();
        }

        @Override
        public void delete(long ledgerId) {
            deleted.add(ledgerId);
        }

        @Override
        public void close() {
            // Nothing is open.
        }

        void appended() {
            List.copyOf(appends).forEach(append -> append.complete(null));
            appends.clear();
        }

        void pointed() {
            pointer = next;
            points.remove().complete(Pointed.DONE);
        }
    }

    private final VirtualClock clock = new VirtualClock(ToyWorld.START_MS);
    private final PlayedHome home = new PlayedHome();
    private final ToyBroker host = new ToyBroker(clock) {
        @Override
        public OverrideHome overrides() {
            return home;
        }
    };
    private final Object lock = new Object();
    private final Overrides overrides = new Overrides();
    private final PositionStates positions = new PositionStates(new NearTier(), new SoughtPositions(), overrides);
    private final Claim claim = new Claim(host, Ownership.first(new Random(1)), new Random(2));
    private final List<OverrideLog.Stored> fates = new ArrayList<>();

    @BeforeEach
    void owned() {
        claim.take();
        positions.decide();
    }

    private OverrideLog log() {
        OverrideLog log = new OverrideLog(lock, host, clock, claim, positions, overrides);
        log.connect(records -> {
            for (int i = 0; i < records.size(); i++) {
                positions.settleMove(records.ledgerId(i), records.entryId(i), records.deliverAtMs(i));
            }
        }, () -> { });
        return log;
    }

    private static Records to(long timeMs) {
        Records records = new Records();
        records.add(MESSAGE.ledgerId(), MESSAGE.entryId(), timeMs);
        return records;
    }

    private void move(OverrideLog log, long timeMs) {
        positions.enter(MESSAGE.ledgerId(), MESSAGE.entryId());
        positions.move(to(timeMs));
        log.store(to(timeMs), fates::add);
    }

    /** A log whose message is moved to that time, and stored in a ledger that the pointer names. */
    private OverrideLog stored(long timeMs) {
        OverrideLog log = log();
        move(log, timeMs);
        log.go();
        home.appended();
        home.pointed();
        assertEquals(List.of(OverrideLog.Stored.YES), fates);
        fates.clear();
        return log;
    }

    /** The stored times, as the next owner reads them. */
    private Map<Position, Long> read() {
        Map<Position, Long> times = new TreeMap<>();
        home.ledgers.get(OverrideHome.ledgersOf(home.pointer).get(0)).forEach(entry -> {
            try {
                OverrideEntry.read(entry, new OverrideEntry.Reader() {
                    @Override
                    public void moved(long ledgerId, long entryId, long deliverAtMs) {
                        times.put(new Position(ledgerId, entryId), deliverAtMs);
                    }

                    @Override
                    public void left(long ledgerId, long entryId) {
                        times.remove(new Position(ledgerId, entryId));
                    }
                });
            } catch (ProtocolException e) {
                throw new AssertionError(e);
            }
        });
        return times;
    }

    @Test
    void aLedgerThatAnEndingTrackerDeletesIsNotLost() {
        home.pointer = "1;5";
        OverrideLog log = log();
        log.read();
        home.pointer = "1;6,5";
        home.reads.remove().completeExceptionally(new OverrideHome.NoLedgerException("no ledger 5"));
        assertFalse(log.isReady());
        log.look(clock.millis());
        assertEquals(List.of(5L, 6L), List.copyOf(home.asked));
        home.reads.remove().complete(List.of(OverrideEntry.moved(to(9_000), 0, 1)));
        assertTrue(log.isReady());
        assertEquals(9_000, overrides.get(MESSAGE.ledgerId(), MESSAGE.entryId()));
    }

    @Test
    void aTrackerThatEndsNamesNoNewLedger() {
        OverrideLog log = log();
        move(log, clock.millis() + 5_000);
        log.go();
        log.end();
        home.appended();
        assertEquals(0, home.points.size());
        assertEquals(List.of(home.lastLedger), home.deleted);
        assertEquals(List.of(OverrideLog.Stored.PERHAPS), fates);
    }

    @Test
    void aMessageThatLeavesAndMovesInOneWriteMoves() {
        OverrideLog log = stored(clock.millis() + 1_000);
        positions.acknowledge(MESSAGE.ledgerId(), MESSAGE.entryId());
        clock.advance(2_000);
        long then = clock.millis() + 5_000;
        move(log, then);
        log.look(clock.millis());
        home.appended();
        assertEquals(List.of(OverrideLog.Stored.YES), fates);
        assertEquals(Map.of(MESSAGE, then), read());
    }

    @Test
    void nothingIsTakenAtOnceAfterAFailure() {
        OverrideLog log = log();
        move(log, clock.millis() + 5_000);
        log.go();
        home.appends.remove().completeExceptionally(new IllegalStateException("no bookies"));
        assertEquals(List.of(OverrideLog.Stored.NO), fates);
        assertFalse(log.takes());
        clock.advance(200);
        assertTrue(log.takes());
    }
}
