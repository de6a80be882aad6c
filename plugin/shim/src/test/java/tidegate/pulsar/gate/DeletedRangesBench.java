package tidegate.pulsar.gate;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.Arrays;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import org.apache.pulsar.common.util.collections.LongPairRangeSet;
import org.apache.pulsar.common.util.collections.OpenLongPairRangeSet;
import org.roaringbitmap.RoaringBitSet;
import tidegate.pulsar.position.PositionSet;
import tidegate.pulsar.position.TrackedPositions;
import tidegate.pulsar.wire.Ownership;
import tidegate.pulsar.wire.PositionBitmaps;

/**
 * The cost of noticing cancelled messages, beside the alternatives considered. Not a test: run
 * {@code java -cp target/classes:target/test-classes:$PULSAR_HOME/lib/* tidegate.pulsar.DeletedRangesBench [--json]}.
 *
 * <p>A million are contained, 50,000 entries a ledger; 100,000 of them, every tenth, are deleted in the set that Pulsar's
 * cursor keeps. CPU time of the thread, medians.
 */
public final class DeletedRangesBench {
    private static final int POSITIONS = 1_000_000;
    private static final int ENTRIES_PER_LEDGER = 50_000;
    private static final int STRIDE = 10;
    private static final int ROUNDS = 41;
    private static final ThreadMXBean CPU = ManagementFactory.getThreadMXBean();

    private DeletedRangesBench() {}

    /** The parts of a cursor that the benchmark uses. */
    private static final class Cursor extends ToyBroker {
        private final OpenLongPairRangeSet<LongPairRangeSet.LongPair> deleted =
                new OpenLongPairRangeSet<>(LongPairRangeSet.LongPair::new, RoaringBitSet::new);
        private long deletions;

        private Cursor() {
            super(new VirtualClock(0));
            connect();
        }

        @Override
        public long deletions() {
            return deletions;
        }

        @Override
        public Map<Long, long[]> deletedEntries() {
            return deleted.toRanges(Integer.MAX_VALUE);
        }

        @Override
        public boolean isDeleted(long ledgerId, long entryId) {
            return deleted.contains(ledgerId, entryId);
        }
    }

    private interface Work {
        void run();
    }

    public static void main(String[] arguments) {
        Cursor cursor = new Cursor();
        TrackerParts parts = new TrackerParts(cursor, new VirtualClock(0), new TrackerSettings("t", "s",
                Ownership.first(new Random(1)), 2000, 100, 100, 1000), new Random(1), new PendingBudget(POSITIONS));
        TrackedPositions positions = parts.positions;
        PositionSet deleted = new PositionSet();
        for (int i = 0; i < POSITIONS; i++) {
            positions.enter(1 + i / ENTRIES_PER_LEDGER, i % ENTRIES_PER_LEDGER);
            if (i % STRIDE == 1) {
                deleted.add(1 + i / ENTRIES_PER_LEDGER, i % ENTRIES_PER_LEDGER);
            }
        }
        DeletedRanges ranges = parts.deletedRanges;
        ranges.noteTold(ranges.look());
        boolean[] changed = {false};
        double idleNs = time(() -> {
            for (int i = 0; i < 1000; i++) {
                changed[0] |= ranges.hasChanged();
            }
        }) / 1000;
        if (changed[0]) {
            throw new IllegalStateException("nothing has changed");
        }
        deleted.forEach((ledgerId, entryId) -> cursor.deleted.addOpenClosed(ledgerId, entryId - 1, ledgerId, entryId));
        cursor.deletions = deleted.size();
        DeletedRanges.Look[] look = {null};
        double copyNs = time(cursor::deletedEntries);
        double lookNs = time(() -> look[0] = ranges.look());
        long[] found = {0};
        double walkNs = time(() -> cursor.deleted.forEachRawRange((lower, from, upper, to) -> {
            found[0] += to - from;
            return true;
        }));
        double askNs = time(() -> deleted.forEach((ledgerId, entryId) -> found[0] += cursor.isDeleted(ledgerId, entryId) ? 1 : 0))
                * STRIDE;
        long then = parts.seal.generation();
        double[] told = new double[look[0].parts().size()];
        for (int i = 0; i < told.length; i++) {
            PositionBitmaps part = look[0].parts().get(i);
            long began = CPU.getCurrentThreadCpuTime();
            synchronized (parts.lock) {
                parts.cursor.reportCancelled(part, then);
            }
            told[i] = CPU.getCurrentThreadCpuTime() - began;
        }
        if (positions.contained() != POSITIONS - deleted.size()) {
            throw new IllegalStateException(positions.contained() + " are left");
        }
        double nothingFoundNs = time(ranges::look);
        if (Arrays.asList(arguments).contains("--json")) {
            System.out.printf(Locale.ROOT, "{\"positions\":%d,\"ranges\":%d,\"unit\":\"us\",\"nothing_changed\":%.4f,"
                    + "\"look\":%.1f,\"look_finds_nothing\":%.1f,\"copy\":%.1f,\"told_part_median\":%.1f,\"told_part_max\":%.1f,"
                    + "\"walk_ranges\":%.1f,\"ask_each\":%.1f}%n", POSITIONS, deleted.size(), idleNs / 1e3, lookNs / 1e3,
                    nothingFoundNs / 1e3, copyNs / 1e3, median(told) / 1e3, Arrays.stream(told).max().orElse(0) / 1e3,
                    walkNs / 1e3, askNs / 1e3);
            return;
        }
        System.out.printf(Locale.ROOT, "nothing has changed:            %10.3f us%n", idleNs / 1e3);
        System.out.printf(Locale.ROOT, "%d found:                   %10.1f us%n", deleted.size(), lookNs / 1e3);
        System.out.printf(Locale.ROOT, "nothing found in as many:       %10.1f us, of which the copy %.1f%n", nothingFoundNs / 1e3,
                copyNs / 1e3);
        System.out.printf(Locale.ROOT, "a part of them told, lock held: %10.1f us, at most %.1f%n", median(told) / 1e3,
                Arrays.stream(told).max().orElse(0) / 1e3);
        System.out.printf(Locale.ROOT, "a walk over the ranges instead: %10.1f us%n", walkNs / 1e3);
        System.out.printf(Locale.ROOT, "asking about each instead:      %10.1f us%n", askNs / 1e3);
    }

    private static double time(Work work) {
        double[] ns = new double[ROUNDS];
        for (int i = 0; i < ROUNDS; i++) {
            long began = CPU.getCurrentThreadCpuTime();
            work.run();
            ns[i] = CPU.getCurrentThreadCpuTime() - began;
        }
        return median(ns);
    }

    private static double median(double[] values) {
        double[] sorted = values.clone();
        Arrays.sort(sorted);
        return sorted[sorted.length / 2];
    }
}
