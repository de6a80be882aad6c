import java.time.Instant;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.mledger.Position;
import org.apache.pulsar.broker.delayed.DelayedDeliveryTracker;
import org.apache.pulsar.broker.service.persistent.PersistentDispatcherMultipleConsumers;

/** Entries that fall due in real time, and the dispatcher's loop around a tracker that hands them out. */
final class RealTime {
    static final int PER_S = 2_000;
    private static final int READ = 100;
    /** More than a tick: a tracker takes nothing due within the next one. */
    private static final long LEAD_MS = 2_500;
    private static final long PATIENCE_MS = 5_000;
    private static final long LOOK_MS = 1_000;
    private static final int EMPTY_LOOKS = 1_000;
    private final PersistentDispatcherMultipleConsumers dispatcher;
    private final DelayedDeliveryTracker tracker;
    private final Semaphore woken;

    /** {@code woken} gets a permit whenever the tracker wakes the dispatcher. */
    RealTime(PersistentDispatcherMultipleConsumers dispatcher, DelayedDeliveryTracker tracker, Semaphore woken) {
        this.dispatcher = dispatcher;
        this.tracker = tracker;
        this.woken = woken;
    }

    /**
     * Add entries of a ledger, due at PER_S from soon on, and run the dispatcher's loop: the tracker's timer wakes it, and it
     * reads until nothing is left. Returns the lateness of each in ms, ascending.
     */
    double[] run(long ledger, int live) throws InterruptedException {
        long firstMs = System.currentTimeMillis() + LEAD_MS;
        for (int i = 0; i < live; i += READ) {
            synchronized (dispatcher) {
                for (int entry = i; entry < Math.min(i + READ, live); entry++) {
                    if (!tracker.addMessage(ledger, entry, firstMs + entry * 1_000L / PER_S)) {
                        throw new IllegalStateException("the machine is too busy: what was added is due by now");
                    }
                }
            }
        }
        double[] late = new double[live];
        BitSet seen = new BitSet(live);
        long endMs = firstMs + live * 1_000L / PER_S + PATIENCE_MS;
        int handedOut = 0;
        while (handedOut < live && System.currentTimeMillis() < endMs) {
            if (!woken.tryAcquire(LOOK_MS, TimeUnit.MILLISECONDS)) {
                continue;
            }
            woken.drainPermits();
            for (Collection<Position> positions = read(); !positions.isEmpty(); positions = read()) {
                Instant now = Instant.now();
                double nowMs = now.getEpochSecond() * 1e3 + now.getNano() / 1e6;
                for (Position position : positions) {
                    int at = (int) position.getEntryId();
                    if (position.getLedgerId() != ledger || seen.get(at)) {
                        throw new IllegalStateException("handed out " + position + ", which nobody waits for");
                    }
                    seen.set(at);
                    late[handedOut++] = nowMs - (firstMs + at * 1_000L / PER_S);
                }
            }
        }
        double[] sorted = Arrays.copyOf(late, handedOut);
        Arrays.sort(sorted);
        return sorted;
    }

    static Map<String, Object> threeQuantiles(double[] late) {
        Map<String, Object> figures = new LinkedHashMap<>();
        figures.put("p50_ms", quantile(late, 0.5));
        figures.put("p99_ms", quantile(late, 0.99));
        figures.put("max_ms", quantile(late, 1));
        return figures;
    }

    /** One dispatcher read: at most so many entries. */
    private Collection<Position> read() {
        synchronized (dispatcher) {
            return tracker.hasMessageAvailable() ? tracker.getScheduledMessages(READ) : List.of();
        }
    }

    double emptyLookUs() {
        long began = System.nanoTime();
        for (int i = 0; i < EMPTY_LOOKS; i++) {
            read();
        }
        return (System.nanoTime() - began) / 1e3 / EMPTY_LOOKS;
    }

    static double quantile(double[] sorted, double probability) {
        if (sorted.length == 0) {
            return 0;
        }
        double place = probability * (sorted.length - 1);
        int below = (int) place;
        int above = Math.min(below + 1, sorted.length - 1);
        return sorted[below] + (place - below) * (sorted[above] - sorted[below]);
    }
}
