package tidegate.pulsar.position;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.StampedLock;
import java.util.function.LongSupplier;
import org.roaringbitmap.RoaringBitmap;

/**
 * Measures the cost of a position set to the dispatcher's thread, beside the alternatives that were weighed for it. Not a test:
 * run {@code java -cp target/classes:target/test-classes:$PULSAR_HOME/lib/* tidegate.pulsar.PositionSetBench [--json]}.
 *
 * <p>Adds come in ascending positions, as the dispatcher reads them, 50,000 entries a ledger. The look-ups are the read's skip
 * test over the same range, alone and while another thread adds. Alone it is the thread's CPU time, which other programs on the
 * machine disturb little; beside a writer it is wall time, because it measures waiting for a lock.
 */
public final class PositionSetBench {
    private static final int POSITIONS = 1_000_000;
    private static final int ENTRIES_PER_LEDGER = 50_000;
    private static final int ROUNDS = 9;
    private static final ThreadMXBean CPU = ManagementFactory.getThreadMXBean();

    private PositionSetBench() {}

    private interface Candidate {
        boolean add(long ledgerId, long entryId);

        boolean contains(long ledgerId, long entryId);
    }

    /** The set that the shim uses; adds under the owner's monitor, as in the core. */
    private static final class Pages implements Candidate {
        private final PositionSet set = new PositionSet();

        @Override
        public synchronized boolean add(long ledgerId, long entryId) {
            return set.add(ledgerId, entryId);
        }

        @Override
        public boolean contains(long ledgerId, long entryId) {
            return set.contains(ledgerId, entryId);
        }
    }

    /** A RoaringBitmap a ledger under one monitor. */
    private static final class RoaringMonitor implements Candidate {
        private final Map<Long, RoaringBitmap> ledgers = new HashMap<>();

        @Override
        public synchronized boolean add(long ledgerId, long entryId) {
            return ledgers.computeIfAbsent(ledgerId, id -> new RoaringBitmap()).checkedAdd((int) entryId);
        }

        @Override
        public synchronized boolean contains(long ledgerId, long entryId) {
            RoaringBitmap entries = ledgers.get(ledgerId);
            return entries != null && entries.contains((int) entryId);
        }
    }

    /** A RoaringBitmap a ledger under a read-write lock, so that readers do not exclude each other. */
    private static final class RoaringStamped implements Candidate {
        private final Map<Long, RoaringBitmap> ledgers = new HashMap<>();
        private final StampedLock lock = new StampedLock();

        @Override
        public boolean add(long ledgerId, long entryId) {
            long stamp = lock.writeLock();
            try {
                return ledgers.computeIfAbsent(ledgerId, id -> new RoaringBitmap()).checkedAdd((int) entryId);
            } finally {
                lock.unlockWrite(stamp);
            }
        }

        @Override
        public boolean contains(long ledgerId, long entryId) {
            long stamp = lock.readLock();
            try {
                RoaringBitmap entries = ledgers.get(ledgerId);
                return entries != null && entries.contains((int) entryId);
            } finally {
                lock.unlockRead(stamp);
            }
        }
    }

    private static Candidate make(String name) {
        return switch (name) {
            case "pages" -> new Pages();
            case "roaring_monitor" -> new RoaringMonitor();
            default -> new RoaringStamped();
        };
    }

    public static void main(String[] arguments) throws InterruptedException {
        StringBuilder json = new StringBuilder("{\"positions\":" + POSITIONS + ",\"unit\":\"ns\"");
        for (String name : new String[] {"pages", "roaring_monitor", "roaring_stamped"}) {
            double[] add = new double[ROUNDS];
            double[] contains = new double[ROUNDS];
            double[] contended = new double[ROUNDS];
            for (int round = 0; round < ROUNDS; round++) {
                Candidate set = make(name);
                add[round] = timeAdd(set);
                contains[round] = timeContains(set, CPU::getCurrentThreadCpuTime);
                contended[round] = timeContended(set);
            }
            json.append(String.format(Locale.ROOT,
                    ",\"%s\":{\"add\":%.1f,\"contains\":%.1f,\"contains_while_adding\":%.1f}", name, median(add),
                    median(contains), median(contended)));
            if (!Arrays.asList(arguments).contains("--json")) {
                System.out.printf(Locale.ROOT, "%-16s add %6.1f ns   contains %6.1f ns   while another thread adds %6.1f ns%n",
                        name, median(add), median(contains), median(contended));
            }
        }
        if (Arrays.asList(arguments).contains("--json")) {
            System.out.println(json.append('}'));
        }
    }

    private static double timeAdd(Candidate set) {
        long began = CPU.getCurrentThreadCpuTime();
        for (int i = 0; i < POSITIONS; i++) {
            set.add(i / ENTRIES_PER_LEDGER, i % ENTRIES_PER_LEDGER);
        }
        return (double) (CPU.getCurrentThreadCpuTime() - began) / POSITIONS;
    }

    private static double timeContains(Candidate set, LongSupplier clockNs) {
        int found = 0;
        long began = clockNs.getAsLong();
        for (int i = 0; i < POSITIONS; i++) {
            found += set.contains(i / ENTRIES_PER_LEDGER, i % ENTRIES_PER_LEDGER) ? 1 : 0;
        }
        long ns = clockNs.getAsLong() - began;
        if (found != POSITIONS) {
            throw new IllegalStateException(found + " of " + POSITIONS + " found");
        }
        return (double) ns / POSITIONS;
    }

    private static double timeContended(Candidate set) throws InterruptedException {
        AtomicBoolean running = new AtomicBoolean(true);
        Thread writer = new Thread(() -> {
            SplittableRandom random = new SplittableRandom(1);
            while (running.get()) {
                set.add(1000, random.nextInt(ENTRIES_PER_LEDGER));
            }
        });
        writer.start();
        double ns = timeContains(set, System::nanoTime);
        running.set(false);
        writer.join();
        return ns;
    }

    private static double median(double[] values) {
        double[] sorted = values.clone();
        Arrays.sort(sorted);
        return sorted[sorted.length / 2];
    }
}
