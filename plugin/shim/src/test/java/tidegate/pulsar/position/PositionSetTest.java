package tidegate.pulsar.position;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.NavigableSet;
import java.util.Random;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.PositionBitmaps;

class PositionSetTest {
    /** Rows, many and few in a container, at its borders, and beside positions that are there already. */
    @ParameterizedTest
    @ValueSource(longs = {1, 2, 3, 4, 5, 6, 7, 8})
    void takesWhatAFrameCarries(long seed) {
        Random random = new Random(seed);
        PositionSet set = new PositionSet();
        NavigableSet<Position> oracle = new TreeSet<>();
        for (int frame = 0; frame < 6; frame++) {
            PositionBitmaps positions = new PositionBitmaps();
            for (int row = 0; row < 4; row++) {
                long ledgerId = random.nextInt(3);
                int first = random.nextInt(3) * 65_536 + random.nextInt(5_000);
                int length = 1 << random.nextInt(17);
                int step = 1 + random.nextInt(3);
                for (int entry = first; entry < first + length; entry += step) {
                    positions.add(ledgerId, entry);
                    oracle.add(new Position(ledgerId, entry));
                }
            }
            set.addAll(random.nextBoolean() ? positions.optimized() : positions);
            assertEquals(oracle.size(), set.size());
        }
        List<Position> visited = new ArrayList<>();
        set.forEach((ledgerId, entryId) -> visited.add(new Position(ledgerId, entryId)));
        assertEquals(new ArrayList<>(oracle), visited);
    }

    /** The same random operations on a sorted set of objects. */
    @ParameterizedTest
    @ValueSource(longs = {1, 2, 3, 4, 5, 6, 7, 8})
    void behavesLikeASortedSet(long seed) {
        Random random = new Random(seed);
        PositionSet set = new PositionSet();
        NavigableSet<Position> oracle = new TreeSet<>();
        int entries = 1 << (4 + random.nextInt(14));
        for (int step = 0; step < 20_000; step++) {
            Position position = new Position(random.nextInt(6) * 3, random.nextInt(entries));
            switch (random.nextInt(100)) {
                case 0 -> {
                    set.discardUpTo(position.ledgerId(), position.entryId());
                    oracle.headSet(position, true).clear();
                }
                case 1 -> set.trim();
                case 2 -> {
                    PositionSet other = new PositionSet();
                    for (int i = 0; i < 100; i++) {
                        Position more = new Position(random.nextInt(20), random.nextInt(entries));
                        other.add(more.ledgerId(), more.entryId());
                        oracle.add(more);
                    }
                    set.addAll(other);
                }
                case 4 -> {
                    PositionSet other = new PositionSet();
                    for (int i = 0; i < 100; i++) {
                        Position less = new Position(random.nextInt(20), random.nextInt(2 * entries));
                        other.add(less.ledgerId(), less.entryId());
                        oracle.remove(less);
                    }
                    set.removeAll(other);
                }
                case 3 -> {
                    if (random.nextInt(50) == 0) {
                        set.clear();
                        oracle.clear();
                    }
                }
                default -> {
                    if (random.nextBoolean()) {
                        assertEquals(oracle.add(position), set.add(position.ledgerId(), position.entryId()));
                    } else {
                        assertEquals(oracle.remove(position), set.remove(position.ledgerId(), position.entryId()));
                    }
                }
            }
            assertEquals(oracle.size(), set.size());
            assertEquals(oracle.contains(position), set.contains(position.ledgerId(), position.entryId()));
            long absent = position.entryId();
            while (oracle.contains(new Position(position.ledgerId(), absent))) {
                absent++;
            }
            assertEquals(absent, set.firstAbsent(position.ledgerId(), position.entryId()));
        }
        List<Position> visited = new ArrayList<>();
        set.forEach((ledgerId, entryId) -> visited.add(new Position(ledgerId, entryId)));
        assertEquals(new ArrayList<>(oracle), visited);
        if (oracle.isEmpty()) {
            assertNull(set.last());
        } else {
            assertArrayEquals(new long[] {oracle.last().ledgerId(), oracle.last().entryId()}, set.last());
        }
        PositionSet again = new PositionSet();
        again.addAll(set.toPositions());
        assertEquals(oracle.size(), again.size());
        oracle.forEach(position -> assertTrue(again.contains(position.ledgerId(), position.entryId())));
    }

    @Test
    void discardsUpToAWordsLastBit() {
        PositionSet set = new PositionSet();
        for (int entry = 0; entry < 5000; entry++) {
            set.add(1, entry);
        }
        set.discardUpTo(1, 63);
        assertFalse(set.contains(1, 63));
        assertTrue(set.contains(1, 64));
        set.discardUpTo(1, 4095);
        assertFalse(set.contains(1, 4095));
        assertTrue(set.contains(1, 4096));
        set.discardUpTo(1, -1);
        assertEquals(5000 - 4096, set.size());
        set.discardUpTo(2, -1);
        assertEquals(0, set.size());
        assertTrue(set.add(1, 4096));
    }

    @Test
    void emptyPagesAreGivenBack() {
        PositionSet set = new PositionSet();
        for (int entry = 0; entry < 1_000_000; entry++) {
            set.add(1 + entry / 50_000, entry % 50_000);
        }
        long full = set.memoryBytes();
        for (int entry = 0; entry < 1_000_000; entry++) {
            set.remove(1 + entry / 50_000, entry % 50_000);
        }
        set.trim();
        assertEquals(0, set.size());
        assertTrue(set.memoryBytes() < full / 10, set.memoryBytes() + " of " + full);
    }

    /** A reader without a lock never misses a position that was added before it looked, whatever else happens. */
    @Test
    void readersNeedNoLock() throws InterruptedException {
        PositionSet set = new PositionSet();
        set.add(7, 3);
        AtomicBoolean running = new AtomicBoolean(true);
        AtomicReference<String> wrong = new AtomicReference<>();
        List<Thread> readers = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            Thread reader = new Thread(() -> {
                while (running.get()) {
                    if (!set.contains(7, 3)) {
                        wrong.set("7:3 is missing");
                    }
                    if (set.contains(7, 4)) {
                        wrong.set("7:4 was never added");
                    }
                }
            });
            reader.start();
            readers.add(reader);
        }
        Random random = new Random(1);
        for (int step = 0; step < 300_000; step++) {
            int ledger = random.nextInt(14);
            int entry = 100 + random.nextInt(100_000);
            if (random.nextInt(3) > 0) {
                set.add(ledger, entry);
            } else {
                set.remove(ledger, entry);
            }
            if (step % 1000 == 0) {
                set.discardUpTo(5, 50_000);
                set.trim();
            }
        }
        running.set(false);
        for (Thread reader : readers) {
            reader.join();
        }
        assertNull(wrong.get());
    }

    @Test
    void whatIsUpToAPositionIsTheSameAsOneByOne() {
        Random random = new Random(11);
        for (int round = 0; round < 50; round++) {
            PositionSet set = new PositionSet();
            PositionBitmaps all = new PositionBitmaps();
            for (int i = 0; i < 3_000; i++) {
                long ledgerId = random.nextInt(3);
                long entryId = random.nextInt(100) < 90 ? random.nextInt(9_000) : random.nextInt(200_000);
                set.add(ledgerId, entryId);
            }
            long ledgerId = random.nextInt(4);
            long entryId = random.nextInt(round % 2 == 0 ? 10_000 : 300_000) - 1;
            if (round % 3 == 0) {
                set.discardUpTo(ledgerId, entryId / 2);
            }
            set.forEach((ledger, entry) -> {
                if (ledger < ledgerId || ledger == ledgerId && entry <= entryId) {
                    all.add(ledger, entry);
                }
            });
            assertEquals(all, set.upTo(ledgerId, entryId));
        }
    }

    @Test
    void whatIsInBothIsTheSameAsOneByOne() {
        Random random = new Random(12);
        PositionSet set = new PositionSet();
        BitSet words = new BitSet();
        List<Long> both = new ArrayList<>();
        for (int i = 0; i < 20_000; i++) {
            set.add(random.nextInt(2), random.nextInt(30_000));
            words.set(random.nextInt(25_000));
        }
        set.forEach((ledgerId, entryId) -> {
            if (ledgerId == 1 && words.get((int) entryId)) {
                both.add(entryId);
            }
        });
        List<Long> found = new ArrayList<>();
        set.forEachIn(1, words.toLongArray(), (ledgerId, entryId) -> found.add(entryId));
        set.forEachIn(7, words.toLongArray(), (ledgerId, entryId) -> found.add(-1L));
        assertEquals(both, found);
    }

    @Test
    void thoseBeforeAPositionComeInDescendingOrder() {
        PositionSet set = new PositionSet();
        for (long entryId : new long[] {0, 63, 64, 4_095, 4_096, 9_000}) {
            set.add(3, entryId);
            set.add(5, entryId);
        }
        List<Position> before = new ArrayList<>();
        set.forWhileBefore(5, 4_096, (ledgerId, entryId) -> before.add(new Position(ledgerId, entryId)) && before.size() < 7);
        assertEquals(List.of(new Position(5, 4_095), new Position(5, 64), new Position(5, 63), new Position(5, 0),
                new Position(3, 9_000), new Position(3, 4_096), new Position(3, 4_095)), before);
        before.clear();
        set.forWhileBefore(4, 0, (ledgerId, entryId) -> !before.add(new Position(ledgerId, entryId)));
        set.forWhileBefore(3, 0, (ledgerId, entryId) -> before.add(new Position(ledgerId, entryId)));
        assertEquals(List.of(new Position(3, 9_000)), before);
    }
}
