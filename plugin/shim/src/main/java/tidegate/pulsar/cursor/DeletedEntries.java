package tidegate.pulsar.cursor;

import java.util.BitSet;
import java.util.HashMap;
import java.util.Map;
import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.impl.ManagedCursorImpl;
import org.apache.pulsar.common.util.collections.LongPairRangeSet;

/**
 * Copies a Pulsar cursor's deleted entries beyond its mark-delete position: for each ledger the words of a {@link BitSet}.
 *
 * <p>Pulsar keeps a bitmap for each ledger, but shows it only by range or by position, both slow; its set has no lock of its
 * own. {@code process…} walks over the set under the cursor's lock, so the bitmaps are copied within that walk's first step.
 * Without bitmaps (managedLedgerUnackedRangesOpenCacheSetEnabled=false) the walk continues over the ranges.
 */
public final class DeletedEntries implements LongPairRangeSet.RangeProcessor<Position> {
    private final ManagedCursorImpl cursor;
    private final Map<Long, BitSet> ranges = new HashMap<>();
    private Map<Long, long[]> copy;

    private DeletedEntries(ManagedCursorImpl cursor) {
        this.cursor = cursor;
    }

    public static Map<Long, long[]> copyOf(ManagedCursorImpl cursor) {
        DeletedEntries entries = new DeletedEntries(cursor);
        cursor.processIndividuallyDeletedMessagesAndGetMarkDeletedPosition(entries);
        return entries.copy();
    }

    /** Numbers of entries kept as bitmaps: those of the lowest ledger, of all but the highest one, and of all. */
    record Count(long ofFirstLedger, long beforeLastLedger, long ofAll) {
        private static final Count NONE = new Count(0, 0, 0);

        /** Of at least one entry. */
        static Count of(LongPairRangeSet<Position> entries) {
            long first = entries.firstRange().upperEndpoint().getLedgerId();
            long last = entries.lastRange().upperEndpoint().getLedgerId();
            return new Count(upTo(first, entries), upTo(last - 1, entries), upTo(last, entries));
        }

        private static long upTo(long ledgerId, LongPairRangeSet<Position> entries) {
            return entries.cardinality(-1, 0, ledgerId, Integer.MAX_VALUE);
        }
    }

    /** Counts under the cursor's lock. */
    static Count count(ManagedCursorImpl cursor) {
        Count[] count = {Count.NONE};
        cursor.processIndividuallyDeletedMessagesAndGetMarkDeletedPosition(first -> {
            count[0] = Count.of(cursor.getIndividuallyDeletedMessagesSet());
            return false;
        });
        return count[0];
    }

    private Map<Long, long[]> copy() {
        if (copy == null) {
            copy = new HashMap<>();
            ranges.forEach((ledgerId, entries) -> copy.put(ledgerId, entries.toLongArray()));
        }
        return copy;
    }

    /** True to continue the walk. */
    @Override
    public boolean process(com.google.common.collect.Range<Position> range) {
        if (ranges.isEmpty()) {
            try {
                copy = cursor.getIndividuallyDeletedMessagesSet().toRanges(Integer.MAX_VALUE);
                return false;
            } catch (UnsupportedOperationException e) {
                // No bitmaps: range by range.
            }
        }
        add(range.lowerEndpoint(), range.upperEndpoint());
        return true;
    }

    /** Adds a range. One from an earlier ledger begins with that ledger's last entry: only the last ledger has any of it. */
    private void add(Position lowerOpen, Position upper) {
        long from = lowerOpen.getLedgerId() == upper.getLedgerId() ? lowerOpen.getEntryId() + 1 : 0;
        ranges.computeIfAbsent(upper.getLedgerId(), id -> new BitSet()).set((int) from, (int) upper.getEntryId() + 1);
    }
}
