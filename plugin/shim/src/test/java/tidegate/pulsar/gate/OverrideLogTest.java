package tidegate.pulsar.gate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import tidegate.pulsar.position.MovedTimes;
import tidegate.pulsar.position.NearTier;
import tidegate.pulsar.position.Overrides;
import tidegate.pulsar.position.SoughtPositions;
import tidegate.pulsar.position.TrackedPositions;
import tidegate.pulsar.wire.OverrideEntry;
import tidegate.pulsar.wire.Ownership;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.ProtocolException;
import tidegate.pulsar.wire.Records;

/** One tracker's times of moved messages; the test plays BookKeeper and answers at any time. */
class OverrideLogTest {
    private static final Position MESSAGE = new Position(1, 2);

    /** Requests wait in order. */
    private static final class PlayedHome implements OverrideHome {
        private final Map<Long, List<ByteBuffer>> ledgers = new TreeMap<>();
        private final Deque<CompletableFuture<List<ByteBuffer>>> reads = new ArrayDeque<>();
        private final Deque<Long> asked = new ArrayDeque<>();
        private final Deque<CompletableFuture<Void>> appends = new ArrayDeque<>();
        private final Deque<CompletableFuture<Pointed>> points = new ArrayDeque<>();
        private final List<Long> deleted = new ArrayList<>();
        private final List<Long> left = new ArrayList<>();
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
        public List<Long> leftBehind() {
            return List.copyOf(left);
        }

        @Override
        public void delete(long ledgerId) {
            deleted.add(ledgerId);
            left.remove(ledgerId);
        }

        @Override
        public void close() {
            // Nothing is open.
        }

        void appended() {
            for (int i = appends.size(); i > 0; i--) {
                appends.remove().complete(null);
            }
        }

        /** Completes everything, and its consequences. */
        void settle() {
            while (!appends.isEmpty() || !points.isEmpty()) {
                appended();
                if (!points.isEmpty()) {
                    pointed();
                }
            }
        }

        void pointed() {
            pointer = next;
            points.remove().complete(Pointed.DONE);
        }
    }

    private final VirtualClock clock = new VirtualClock(ToyWorld.START_MS);
    private final PlayedHome home = new PlayedHome();
    private final ToyBroker context = new ToyBroker(clock) {
        @Override
        public OverrideHome overrides() {
            return home;
        }

        @Override
        public void reopenTopic() {
            reopened++;
        }
    };
    private int reopened;
    private final Object lock = new Object();
    private final Overrides overrides = new Overrides();
    private final TrackedPositions positions = new TrackedPositions(new NearTier(), new SoughtPositions(), overrides);
    private final Claim claim = new Claim(context, Ownership.first(new Random(1)), new Random(2));
    private final List<OverrideLog.Stored> fates = new ArrayList<>();

    @BeforeEach
    void owned() {
        claim.take();
        positions.decide();
    }

    private OverrideLog log() {
        OverrideLog log = new OverrideLog(lock, context, clock, claim, positions, overrides);
        log.connect(records -> {
            for (int i = 0; i < records.size(); i++) {
                positions.settleMove(records.ledgerId(i), records.entryId(i), records.deliverAtMs(i));
            }
        }, () -> { });
        return log;
    }

    private static Records to(long timeMs, Position... messages) {
        Records records = new Records();
        for (Position message : messages) {
            records.add(message.ledgerId(), message.entryId(), timeMs);
        }
        return records;
    }

    private static Records to(long timeMs) {
        return to(timeMs, MESSAGE);
    }

    private void move(OverrideLog log, long timeMs) {
        move(log, to(timeMs));
    }

    private void move(OverrideLog log, Records records) {
        for (int i = 0; i < records.size(); i++) {
            positions.enter(records.ledgerId(i), records.entryId(i));
        }
        positions.move(records);
        log.store(records, fates::add);
    }

    /** So many messages of ledger 2, stored at that time. */
    private OverrideLog storedMany(int count, long timeMs) {
        Position[] many = new Position[count];
        for (int i = 0; i < count; i++) {
            many[i] = new Position(2, i);
        }
        OverrideLog log = log();
        move(log, to(timeMs, many));
        log.go();
        home.settle();
        assertEquals(List.of(OverrideLog.Stored.YES), fates);
        fates.clear();
        return log;
    }

    private void acknowledge(int count) {
        for (int i = 0; i < count; i++) {
            positions.acknowledge(2, i);
        }
    }

    /** The positions of entries that no longer hold. */
    private static long leftIn(List<ByteBuffer> entries) throws ProtocolException {
        long[] left = {0};
        for (ByteBuffer entry : entries) {
            OverrideEntry.read(entry, new OverrideEntry.Reader() {
                @Override
                public void moved(long ledgerId, long entryId, long deliverAtMs) {
                    // Not counted.
                }

                @Override
                public void left(long ledgerId, long entryId) {
                    left[0]++;
                }
            });
        }
        return left[0];
    }

    /** A log with its message moved to that time, and stored in a ledger that the pointer names. */
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
    void aMessageThatMovesOnInVainHasTheTimeThatWasAnsweredMeanwhile() {
        long then = clock.millis() + 5_000;
        OverrideLog log = stored(then);
        Position[] often = new Position[1_002];
        Arrays.fill(often, MESSAGE);
        move(log, to(then + 1, often));
        log.go();
        move(log, then + 2);
        home.appended();
        assertEquals(List.of(OverrideLog.Stored.YES), fates);
        assertEquals(2, home.ledgers.size(), "it is written anew");
        home.appends.remove().completeExceptionally(new IllegalStateException("no bookies"));
        assertEquals(List.of(OverrideLog.Stored.YES, OverrideLog.Stored.NO), fates);
        assertEquals(then + 1, overrides.timeOf(MESSAGE.ledgerId(), MESSAGE.entryId(), 0));
        assertEquals(Map.of(MESSAGE, then + 1), read());
    }

    /** As while the bookies do not store the cursor: loading the topic anew would only disturb its clients. */
    @Test
    void aPointerThatTakesNothingLeavesTheTopicOpen() {
        OverrideLog log = log();
        for (int i = 0; i < 10; i++) {
            move(log, clock.millis() + 60_000);
            log.go();
            home.appended();
            home.points.remove().complete(OverrideHome.Pointed.REFUSED);
            clock.advance(20_000);
        }
        assertEquals(Collections.nCopies(10, OverrideLog.Stored.NO), fates);
        assertEquals(0, reopened);
        move(log, clock.millis() + 60_000);
        log.go();
        home.appended();
        for (int i = 0; i < 4; i++) {
            assertEquals(0, reopened);
            home.points.remove().completeExceptionally(new OverrideHome.ConflictException("another version"));
            clock.advance(20_000);
            log.go();
        }
        assertEquals(1, reopened);
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

    @Test
    void acknowledgedMessagesThatStayStoredHaveNoLedgerWrittenAnew() {
        OverrideLog log = storedMany(3_000, clock.millis() + 3_600_000);
        acknowledge(3_000);
        for (int i = 0; i < 5; i++) {
            move(log, clock.millis() + 5_000 + i);
            log.go();
            home.settle();
        }
        assertEquals(1, home.ledgers.size());
        assertEquals(3_001, read().size());
    }

    @Test
    void aFloodLeavesInBoundedWrites() throws ProtocolException {
        int count = 2 * OverrideLog.LEFT_MAX + 20_000;
        OverrideLog log = storedMany(count + 130_000, clock.millis() + 1_000);
        acknowledge(count);
        clock.advance(2_000);
        log.look(clock.millis());
        List<ByteBuffer> entries = home.ledgers.get(home.lastLedger);
        long left = 0;
        while (!home.appends.isEmpty()) {
            long more = leftIn(entries) - left;
            assertTrue(more > 0 && more <= OverrideLog.LEFT_MAX, more + " leave in one write");
            left += more;
            home.appended();
        }
        assertEquals(count, left);
        assertEquals(130_000, read().size());
        assertEquals(130_000, overrides.stored());
        overrides.check();
    }

    @Test
    void aLargeSnapshotIsAppendedAPartAtATime() {
        Position[] many = new Position[200_000];
        for (int i = 0; i < many.length; i++) {
            many[i] = new Position(2, i);
        }
        OverrideLog log = log();
        move(log, to(clock.millis() + 5_000, many));
        log.go();
        while (home.points.isEmpty()) {
            assertTrue(home.appends.size() <= OverrideLedger.APPENDS_MAX, home.appends.size() + " appends under way");
            home.appended();
        }
        home.pointed();
        assertEquals(many.length, read().size());
    }

    @Test
    void whatLeavesIsWrittenAgainAfterAFailedRewriting() {
        Position back = new Position(1, 3);
        Position stays = new Position(1, 4);
        OverrideLog log = log();
        move(log, to(clock.millis() + 1_000, back, stays));
        log.go();
        home.settle();
        for (int i = 0; i < 1_005; i++) {
            move(log, clock.millis() + 1_000 + i);
            log.go();
            home.settle();
        }
        assertEquals(1, home.ledgers.size());
        positions.acknowledge(MESSAGE.ledgerId(), MESSAGE.entryId());
        positions.acknowledge(back.ledgerId(), back.entryId());
        overrides.comeBack(back.ledgerId(), back.entryId());
        clock.advance(5_000);
        log.look(clock.millis());
        assertEquals(2, home.ledgers.size());
        home.appends.remove().completeExceptionally(new IllegalStateException("no bookies"));
        assertEquals(3, read().size());
        log.go();
        assertEquals(2, home.ledgers.size(), "not at once");
        clock.advance(2_000);
        log.look(clock.millis());
        home.settle();
        assertEquals(Map.of(stays, overrides.get(1, 4)), read());
    }

    @Test
    void aLedgerInDoubtIsNamedAgainUntilThatIsSure() {
        long then = clock.millis() + 60_000;
        OverrideLog log = log();
        move(log, then);
        log.go();
        home.appended();
        for (int i = 0; i < 3; i++) {
            home.points.remove().completeExceptionally(new OverrideHome.ConflictException("another version"));
            clock.advance(10_000);
            log.go();
        }
        assertEquals(1, home.ledgers.size());
        home.points.remove().complete(OverrideHome.Pointed.REFUSED);
        clock.advance(20_000);
        log.go();
        assertEquals(List.of(), home.deleted, "it may be named");
        home.pointed();
        assertEquals(Map.of(MESSAGE, then), read());
        assertEquals(List.of(), home.deleted);
        move(log, then + 1);
        log.go();
        home.appended();
        assertEquals(Map.of(MESSAGE, then + 1), read());
    }

    @Test
    void aLedgerInDoubtIsNotNamedAgainWhenItsTimesAreNotThoseThatHold() {
        long then = clock.millis() + 60_000;
        Position other = new Position(1, 3);
        OverrideLog log = log();
        move(log, to(then, MESSAGE, other));
        log.go();
        home.appended();
        home.points.remove().completeExceptionally(new IllegalStateException("ConnectionLoss"));
        positions.acknowledge(other.ledgerId(), other.entryId());
        overrides.comeBack(other.ledgerId(), other.entryId());
        clock.advance(10_000);
        log.go();
        home.settle();
        assertEquals(Map.of(MESSAGE, then), read());
        assertEquals(List.of(11L), home.deleted);
    }

    /** The pointer names another ledger, or the one in doubt. */
    @ParameterizedTest
    @ValueSource(strings = {"1;20,11", "1;12,11"})
    void aLedgerInDoubtIsDeletedOnceTheNextPointerIsThere(String text) {
        long then = clock.millis() + 60_000;
        OverrideLog log = stored(then);
        move(log, then + 1);
        log.go();
        home.appends.remove().completeExceptionally(new IllegalStateException("fenced"));
        clock.advance(10_000);
        log.go();
        home.appended();
        home.points.remove().completeExceptionally(new IllegalStateException("ConnectionLoss"));
        clock.advance(10_000);
        log.go();
        assertEquals("1;12,11", home.next);
        home.pointer = text;
        home.points.remove().complete(OverrideHome.Pointed.STALE);
        assertEquals(List.of(), home.deleted);
        clock.advance(10_000);
        log.look(clock.millis());
        assertEquals(OverrideHome.ledgersOf(text).get(0), home.asked.getLast());
        home.reads.remove().complete(List.of(OverrideEntry.moved(to(then), 0, 1)));
        log.go();
        home.appended();
        assertEquals(List.of(), home.deleted);
        home.pointed();
        assertEquals(Map.of(MESSAGE, then + 1), read());
        Set<Long> over = new TreeSet<>(OverrideHome.ledgersOf(text));
        over.add(12L);
        assertEquals(over, new TreeSet<>(home.deleted));
        assertEquals(home.lastLedger, (long) OverrideHome.ledgersOf(home.pointer).get(0));
    }

    /** A former tracker ended with the pointer to ledger 5 on its way. {@code isThere}: it has come. */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void aLedgerThatAFormerTrackerLeftInDoubtIsDeleted(boolean isThere) {
        home.left.add(5L);
        home.pointer = isThere ? "1;5" : "";
        OverrideLog log = log();
        log.look(clock.millis());
        if (isThere) {
            home.reads.remove().complete(List.of(OverrideEntry.moved(to(clock.millis() + 60_000), 0, 1)));
            clock.advance(2_000);
            log.look(clock.millis());
            assertEquals(0, home.points.size(), "it counts");
            move(log, clock.millis() + 70_000);
            log.go();
        }
        home.appended();
        home.points.remove().complete(OverrideHome.Pointed.REFUSED);
        home.deleted.remove(11L);
        assertEquals(List.of(), home.deleted, "it may still be named");
        clock.advance(20_000);
        if (isThere) {
            move(log, clock.millis() + 70_000);
        }
        log.look(clock.millis());
        home.appended();
        home.pointed();
        assertEquals(List.of(5L), home.deleted);
        clock.advance(2_000);
        log.look(clock.millis());
        assertEquals(0, home.points.size());
    }

    /** The tracker that has moved messages meanwhile has its own ledger. */
    @Test
    void aLedgerThatIsLeftLateIsDeleted() {
        long then = clock.millis() + 60_000;
        OverrideLog log = stored(then);
        home.left.add(5L);
        clock.advance(2_000);
        log.look(clock.millis());
        home.settle();
        assertEquals(List.of(5L, 11L), home.deleted.stream().sorted().toList());
        assertEquals(Map.of(MESSAGE, then), read());
    }

    @Test
    void nothingIsAppendedToALedgerThatThePointerNamesNoMore() {
        OverrideLog log = stored(clock.millis() + 60_000);
        long then = clock.millis() + 70_000;
        for (int i = 0; i < 1_003; i++) {
            move(log, then + i);
            log.go();
            home.appended();
        }
        assertEquals(2, home.ledgers.size());
        home.appended();
        home.pointer = "1;20,11";
        home.points.remove().complete(OverrideHome.Pointed.STALE);
        clock.advance(10_000);
        log.look(clock.millis());
        Position[] others = new Position[20];
        for (int i = 0; i < others.length; i++) {
            others[i] = new Position(2, i);
        }
        home.reads.remove().complete(List.of(OverrideEntry.moved(to(then, others), 0, others.length)));
        fates.clear();
        move(log, then + 5_000);
        log.go();
        home.settle();
        assertEquals(List.of(OverrideLog.Stored.YES), fates);
        assertEquals(21, read().size());
        assertEquals(then + 5_000, read().get(MESSAGE));
    }

    @Test
    void whatIsKnownToLeaveStaysKnownWhenTheLedgerIsReadAgain() {
        Position back = new Position(1, 3);
        long then = clock.millis() + 60_000;
        OverrideLog log = log();
        move(log, to(then, MESSAGE, back));
        log.go();
        home.settle();
        // Settling: not deleted in the cursor.
        positions.settle(MESSAGE.ledgerId(), MESSAGE.entryId());
        positions.acknowledge(back.ledgerId(), back.entryId());
        overrides.comeBack(back.ledgerId(), back.entryId());
        move(log, to(then, new Position(1, 4)));
        log.go();
        home.appends.remove().completeExceptionally(new IllegalStateException("fenced"));
        home.appended();
        clock.advance(10_000);
        log.go();
        home.appended();
        home.pointer = "1;20,11";
        home.points.remove().complete(OverrideHome.Pointed.STALE);
        clock.advance(10_000);
        log.look(clock.millis());
        home.reads.remove().complete(List.of(OverrideEntry.moved(to(then, MESSAGE, back), 0, 2)));
        assertEquals(MovedTimes.NONE, overrides.get(back.ledgerId(), back.entryId()));
        assertTrue(overrides.isLeaving(MESSAGE.ledgerId(), MESSAGE.entryId()));
        log.go();
        home.settle();
        assertEquals(Map.of(MESSAGE, then, new Position(1, 4), then), read());
    }
}
