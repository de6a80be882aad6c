import io.netty.util.HashedWheelTimer;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.pulsar.broker.delayed.DelayedDeliveryTracker;
import org.apache.pulsar.broker.delayed.DelayedDeliveryTrackerFactory;
import org.apache.pulsar.broker.delayed.InMemoryDelayedDeliveryTracker;
import org.apache.pulsar.broker.delayed.bucket.BucketDelayedDeliveryTracker;
import org.apache.pulsar.broker.delayed.bucket.BucketSnapshotStorage;
import org.apache.pulsar.broker.delayed.proto.SnapshotMetadata;
import org.apache.pulsar.broker.delayed.proto.SnapshotSegment;
import org.apache.pulsar.broker.service.persistent.PersistentDispatcherMultipleConsumers;

/**
 * Nanoseconds per addMessage on the dispatcher's thread, for each tracker's own class in one JVM.
 *
 * <p>Every tracker gets the same positions and deliver_at in the same order, in batches of one read of the dispatcher (100
 * entries), each under a lock as in the broker. Only the adds are timed, one clock reading a batch (and the thread's CPU time
 * over a round, which leaves out other processes); between batches the thread honours shouldPauseAllDeliveries as the
 * dispatcher does. The broker around the tracker is a stub without cost. Bucket's snapshot storage answers at once: building
 * a snapshot is timed, storing it is not, in its favour.
 *
 * <p>Ours is there twice: "tidegate", and "tidegate-log" with an index log at its daemon.
 *
 * <p>Arguments: daemon socket or "-", messages a round, warm-up rounds, measured rounds, trackers (comma separated), and for
 * "tidegate-log" an empty folder. Prints one line a round:
 * {@code round TRACKER WORKLOAD NUMBER MEAN_NS CPU_NS P50_NS P99_NS MAX_MS PAUSED_MS}, where median and p99 are of a batch
 * divided by its size and MAX_MS is of a whole batch.
 */
public final class AddBench {
    private static final int BATCH = 100;
    private static final int ENTRIES_PER_LEDGER = 50_000;
    private static final long HOUR_MS = 3_600_000L;
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    private static final AtomicLong NAMES = new AtomicLong();

    private AddBench() {
    }

    public static void main(String[] arguments) throws Exception {
        String socket = arguments[0];
        int messages = Integer.parseInt(arguments[1]);
        int warmUps = Integer.parseInt(arguments[2]);
        int rounds = Integer.parseInt(arguments[3]);
        List<String> trackers = Arrays.asList(arguments[4].split(","));
        try (Makers makers = new Makers(socket, Path.of(arguments.length > 5 ? arguments[5] : ""))) {
            for (int number = -warmUps; number < rounds; number++) {
                for (String workload : List.of("uniform", "fixed")) {
                    long[] deliverAt = workload.equals("uniform") ? uniform(messages) : fixed(messages);
                    // Another order each round, so that a disturbance does not always hit the same tracker.
                    List<String> order = new ArrayList<>(trackers);
                    Collections.rotate(order, number);
                    for (String tracker : order) {
                        measure(makers, tracker, workload, number, deliverAt);
                    }
                }
            }
        }
        System.exit(0);
    }

    /** Due evenly over the day that begins in an hour, in random order. */
    private static long[] uniform(int count) {
        SplittableRandom random = new SplittableRandom(1);
        long start = System.currentTimeMillis() + HOUR_MS;
        return random.longs(count, start, start + 24 * HOUR_MS).toArray();
    }

    /** One delay of 30 minutes for messages that come 50 a millisecond. */
    private static long[] fixed(int count) {
        long start = System.currentTimeMillis() + HOUR_MS / 2;
        long[] deliverAt = new long[count];
        for (int i = 0; i < count; i++) {
            deliverAt[i] = start + i / 50;
        }
        return deliverAt;
    }

    private static void measure(Makers makers, String name, String workload, int number, long[] deliverAt)
            throws Exception {
        PersistentDispatcherMultipleConsumers dispatcher = makers.dispatcher(name);
        DelayedDeliveryTracker tracker = makers.make(name, dispatcher);
        // The first delayed message makes the tracker; that cost is no add's.
        tracker.addMessage(0, 0, deliverAt[0]);
        makers.awaitOpen(name, tracker);
        System.gc();
        long firstLedger = 1;
        int batches = deliverAt.length / BATCH;
        long[] batchNs = new long[batches];
        long pausedNs = 0;
        long cpuFrom = THREADS.getCurrentThreadCpuTime();
        for (int batch = 0; batch < batches; batch++) {
            long pausedFrom = System.nanoTime();
            while (paused(dispatcher, tracker)) {
                LockSupport.parkNanos(100_000);
            }
            long began = System.nanoTime();
            pausedNs += began - pausedFrom;
            synchronized (dispatcher) {
                for (int i = batch * BATCH; i < (batch + 1) * BATCH; i++) {
                    boolean tracked =
                            tracker.addMessage(firstLedger + i / ENTRIES_PER_LEDGER, i % ENTRIES_PER_LEDGER, deliverAt[i]);
                    if (!tracked) {
                        throw new IllegalStateException(name + " refused a message that is due in the future");
                    }
                }
            }
            batchNs[batch] = System.nanoTime() - began;
        }
        double cpuNs = (THREADS.getCurrentThreadCpuTime() - cpuFrom) / (double) deliverAt.length;
        long held = tracker.getNumberOfDelayedMessages();
        if (held != deliverAt.length + 1L) {
            throw new IllegalStateException(name + " holds " + held + " of " + (deliverAt.length + 1) + " messages");
        }
        tracker.clear().get(60, TimeUnit.SECONDS);
        tracker.close();
        if (number >= 0) {
            double mean = (double) Arrays.stream(batchNs).sum() / batches / BATCH;
            Arrays.sort(batchNs);
            System.out.printf("round %s %s %d %.2f %.2f %.2f %.2f %.3f %.1f%n", name, workload, number, mean, cpuNs,
                    batchNs[batches / 2] / (double) BATCH, batchNs[batches * 99 / 100] / (double) BATCH,
                    batchNs[batches - 1] / 1e6, pausedNs / 1e6);
        }
    }

    private static boolean paused(PersistentDispatcherMultipleConsumers dispatcher, DelayedDeliveryTracker tracker) {
        synchronized (dispatcher) {
            return tracker.shouldPauseAllDeliveries();
        }
    }

    /** Makes a tracker of each kind with Pulsar's default settings. */
    private static final class Makers implements AutoCloseable {
        private static final long TICK_MS = 1_000;
        private final HashedWheelTimer timer = new HashedWheelTimer();
        private static final String OURS = "tidegate";
        private static final String LOGGED = "tidegate-log";
        private final String socket;
        private final Path folder;
        private final Map<String, DelayedDeliveryTrackerFactory> ours = new HashMap<>();

        Makers(String socket, Path folder) {
            this.socket = socket;
            this.folder = folder;
        }

        /** A new subscription; its cursor keeps the pointer to an index log, if any. */
        PersistentDispatcherMultipleConsumers dispatcher(String tracker) throws Exception {
            String subscription = tracker + "-" + NAMES.incrementAndGet();
            return tracker.equals(LOGGED)
                    ? Stubs.dispatcher(subscription, new CursorFile(folder.resolve(subscription)), null)
                    : Stubs.dispatcher(subscription);
        }

        DelayedDeliveryTracker make(String name, PersistentDispatcherMultipleConsumers dispatcher) throws Exception {
            switch (name) {
                case "in-memory":
                    // No look-ahead for fixed delays: with it this tracker stops at 50,000 messages of one delay.
                    return new InMemoryDelayedDeliveryTracker(dispatcher, timer, TICK_MS,
                            java.time.Clock.systemUTC(), false, 0);
                case "bucket":
                    return new BucketDelayedDeliveryTracker(dispatcher, timer, TICK_MS, false,
                            new ForgetfulSnapshots(), 50_000, TimeUnit.SECONDS.toMillis(300), 5_000, -1);
                case OURS, LOGGED:
                    return factory(name).newTracker(dispatcher);
                default:
                    throw new IllegalArgumentException("no tracker " + name);
            }
        }

        private DelayedDeliveryTrackerFactory factory(String name) throws Exception {
            DelayedDeliveryTrackerFactory known = ours.get(name);
            if (known != null) {
                return known;
            }
            DelayedDeliveryTrackerFactory made = (DelayedDeliveryTrackerFactory) Class
                    .forName("tidegate.pulsar.TrackerFactory").getDeclaredConstructor().newInstance();
            String log = name.equals(LOGGED) ? "file://" + Files.createDirectories(folder.resolve("logs")) : "none";
            made.initialize(Stubs.pulsar(socket, name, log));
            ours.put(name, made);
            return made;
        }

        /** Ours answers before the daemon has: wait for the daemon, as all adds but the first in a broker do. */
        void awaitOpen(String name, DelayedDeliveryTracker tracker) {
            if (!ours.containsKey(name)) {
                return;
            }
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
            while (!Stubs.open(tracker)) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("the daemon did not answer the tracker's OPEN");
                }
                LockSupport.parkNanos(1_000_000);
            }
        }

        @Override
        public void close() throws Exception {
            timer.stop();
            for (DelayedDeliveryTrackerFactory factory : ours.values()) {
                factory.close();
            }
        }
    }

    /** A snapshot storage that finishes at once and keeps nothing. */
    private static final class ForgetfulSnapshots implements BucketSnapshotStorage {
        private final AtomicLong ids = new AtomicLong();

        @Override
        public CompletableFuture<Long> createBucketSnapshot(SnapshotMetadata metadata, List<SnapshotSegment> segments,
                String bucketKey, String topicName, String cursorName) {
            return CompletableFuture.completedFuture(ids.incrementAndGet());
        }

        @Override
        public CompletableFuture<SnapshotMetadata> getBucketSnapshotMetadata(long bucketId) {
            return CompletableFuture.failedFuture(new UnsupportedOperationException("nothing is kept"));
        }

        @Override
        public CompletableFuture<List<SnapshotSegment>> getBucketSnapshotSegment(long bucketId, long first, long last) {
            return CompletableFuture.failedFuture(new UnsupportedOperationException("nothing is kept"));
        }

        @Override
        public CompletableFuture<Long> getBucketSnapshotLength(long bucketId) {
            return CompletableFuture.completedFuture(0L);
        }

        @Override
        public CompletableFuture<Void> deleteBucketSnapshot(long bucketId) {
            return CompletableFuture.completedFuture(null);
        }

        @Override
        public void start() {
        }

        @Override
        public void close() {
        }
    }
}
