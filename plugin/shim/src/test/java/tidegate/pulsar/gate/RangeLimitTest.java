package tidegate.pulsar.gate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.BitSet;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import tidegate.pulsar.gate.RangeLimit.Unit;
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
        if (limit.unit() == Unit.ENTRY_OF_WHOLE_LEDGER) {
            return beyondWholeLedgers(deleted, limit.max());
        }
        TreeSet<Position> beyond = new TreeSet<>();
        long taken = 0;
        Position last = new Position(-1, -1);
        for (Position each : deleted) {
            boolean goesOn = each.ledgerId() == last.ledgerId() && each.entryId() == last.entryId() + 1;
            taken += limit.unit() == Unit.ENTRY || !goesOn ? 1 : 0;
            last = each;
            if (taken > limit.max()) {
                beyond.add(each);
            }
        }
        return beyond;
    }

    /** As {@code PositionRangeSet.toRanges} of Pulsar 5.0.1 does, which a write of ranges follows if it has nothing. */
    private static TreeSet<Position> beyondWholeLedgers(TreeSet<Position> deleted, int max) {
        TreeSet<Position> beyond = new TreeSet<>(deleted);
        long taken = 0;
        for (long ledgerId : deleted.stream().map(Position::ledgerId).distinct().toList()) {
            taken += deleted.stream().filter(one -> one.ledgerId() == ledgerId).count();
            if (taken <= max) {
                beyond.removeIf(one -> one.ledgerId() == ledgerId);
            }
        }
        return beyond.size() < deleted.size() ? beyond : beyond(deleted, new RangeLimit(max, Unit.ROW));
    }

    @ParameterizedTest
    @EnumSource(Unit.class)
    void itLeavesWhatAWalkOverThePositionsLeaves(Unit unit) {
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
            RangeLimit limit = new RangeLimit(random.nextInt(120), unit);
            Map<Long, long[]> words = words(deleted);
            long taken = limit.taken(words);
            limit.leaveBeyond(words);
            TreeSet<Position> expected = beyond(deleted, limit);
            assertEquals(expected, positions(words));
            boolean exceeds = taken > limit.max();
            // Rows in the place of a first ledger may fit, though its entries do not.
            assertTrue(unit == Unit.ENTRY_OF_WHOLE_LEDGER && exceeds || exceeds != expected.isEmpty(), taken + " of " + limit);
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
        assertEquals(2, new RangeLimit(1, Unit.ROW).taken(words));
        new RangeLimit(1, Unit.ROW).leaveBeyond(words);
        assertEquals(new TreeSet<>(Set.of(new Position(1, 201))), positions(words));
    }
}
