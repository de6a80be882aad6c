package tidegate.pulsar.gate;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.BitSet;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import tidegate.pulsar.wire.Position;

/** The part of a cursor's deletions that is surely stored. */
class RangeLimitTest {
    private static Map<Long, long[]> words(TreeSet<Position> positions) {
        Map<Long, BitSet> entries = new TreeMap<>();
        positions.forEach(one -> entries.computeIfAbsent(one.ledgerId(), id -> new BitSet()).set((int) one.entryId()));
        // In no order, as Pulsar's.
        Map<Long, long[]> words = new HashMap<>();
        entries.forEach((ledgerId, bits) -> words.put(ledgerId, bits.toLongArray()));
        return words;
    }

    private static TreeSet<Position> positions(Map<Long, long[]> words) {
        TreeSet<Position> positions = new TreeSet<>();
        words.forEach((ledgerId, of) ->
                BitSet.valueOf(of).stream().forEach(entryId -> positions.add(new Position(ledgerId, entryId))));
        return positions;
    }

    /** By a walk over the positions: a row ends where an entry is missing, and with its ledger. */
    private static TreeSet<Position> beyond(TreeSet<Position> deleted, RangeLimit limit) {
        TreeSet<Position> beyond = new TreeSet<>();
        long taken = 0;
        Position last = new Position(-1, -1);
        for (Position each : deleted) {
            boolean goesOn = each.ledgerId() == last.ledgerId() && each.entryId() == last.entryId() + 1;
            taken += limit.countsEntries() || !goesOn ? 1 : 0;
            last = each;
            if (taken > limit.max()) {
                beyond.add(each);
            }
        }
        return beyond;
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void itLeavesWhatAWalkOverThePositionsLeaves(boolean countsEntries) {
        Random random = new Random(3);
        for (int round = 0; round < 500; round++) {
            TreeSet<Position> deleted = new TreeSet<>();
            for (int row = random.nextInt(30); row > 0; row--) {
                long ledgerId = 1_000 + random.nextInt(3);
                int from = random.nextInt(400);
                for (int entry = from; entry < from + 1 + random.nextInt(row % 5 == 0 ? 150 : 3); entry++) {
                    deleted.add(new Position(ledgerId, entry));
                }
            }
            RangeLimit limit = new RangeLimit(random.nextInt(40), countsEntries);
            Map<Long, long[]> words = words(deleted);
            long taken = limit.taken(words);
            limit.leaveBeyond(words);
            TreeSet<Position> expected = beyond(deleted, limit);
            assertEquals(expected, positions(words));
            assertEquals(!expected.isEmpty(), taken > limit.max(), taken + " of " + limit);
        }
    }

    @Test
    void aRowGoesOnOverTheEndOfAWord() {
        TreeSet<Position> deleted = new TreeSet<>();
        for (int entry = 60; entry < 200; entry++) {
            deleted.add(new Position(1, entry));
        }
        deleted.add(new Position(1, 201));
        Map<Long, long[]> words = words(deleted);
        assertEquals(2, new RangeLimit(1, false).taken(words));
        new RangeLimit(1, false).leaveBeyond(words);
        assertEquals(new TreeSet<>(Set.of(new Position(1, 201))), positions(words));
    }
}
