import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Clock;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Collection;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Stream;
import org.apache.bookkeeper.mledger.Position;
import org.apache.pulsar.broker.delayed.DelayedDeliveryTracker;
import org.apache.pulsar.broker.delayed.InMemoryDelayedDeliveryTracker;
import org.apache.pulsar.broker.delayed.bucket.BucketDelayedDeliveryTracker;
import org.apache.pulsar.broker.service.persistent.PersistentDispatcherMultipleConsumers;

/**
 * One of Pulsar's own trackers as a peer of the {@code peers} bench: {@code PEER PHASE DIR WORKLOAD COUNT}.
 *
 * <p>bench/peers/base.py describes the phases, their output and the standard input afterwards. The tracker classes are
 * Pulsar's, with its default settings; the broker around them is a stub. Bucket's snapshots and its cursor's properties are
 * files below DIR/data (SnapshotFiles, CursorFile).
 *
 * <p>An add is a call of addMessage for each entry, in reads of 100 under the dispatcher's lock; a pause is that of 10,000,
 * as with the other peers, and the longest read, during which the dispatcher stands still, is reported, too. A pop is a call
 * of getScheduledMessages. With Pulsar's defaults it also hands out entries due within the next tick (1 s): these count as
 * early. It answers a set of positions in the order of the topic, so only entries of different calls can be out of order in
 * time.
 */
public final class TrackerPeer implements AutoCloseable {
    private static final long TICK_MS = 1_000;
    private static final long FAST_TICK_MS = 10;
    private static final int READ = 100;
    private static final int POP_LIMIT = 8_192;
    private static final int BATCH = 10_000;
    private static final long HOUR_MS = 3_600_000;
    private static final long BACKLOG_AFTER_MS = 600_000;
    private static final int WARM_UP = 400_000;
    private static final int WARM_UP_LEDGER = 50_000;
    private static final int QUANTILES = 201;
    private static final ObjectMapper JSON = new ObjectMapper();

    private final String name;
    private final Workload workload;
    private final int count;
    private final SimulatedClock clock = new SimulatedClock();
    private final TickTimer timer = new TickTimer(TICK_MS, FAST_TICK_MS);
    private final Semaphore woken = new Semaphore(0);
    private final SnapshotFiles snapshots;
    private final PersistentDispatcherMultipleConsumers dispatcher;
    private final long budgetNs;
    /** Before the warm-up: the run reuses netty's allocations from there. */
    private final long directAtStart;
    private DelayedDeliveryTracker tracker;
    private long deadlineNs;
    /** The number of entries of the workload added, in this process or before. */
    private int known;

    private TrackerPeer(String name, Path data, Workload workload, long directAtStart) throws Exception {
        this.name = name;
        this.directAtStart = directAtStart;
        this.workload = workload;
        this.count = workload.size();
        known = workload.size();
        budgetNs = (long) (Double.parseDouble(System.getenv().getOrDefault("BENCH_BUDGET_S", "60")) * 1e9);
        beginPhase();
        Files.createDirectories(data);
        snapshots = new SnapshotFiles(data.resolve("buckets"));
        dispatcher = Stubs.dispatcher("bench", new CursorFile(data.resolve("cursor.properties")), woken::release);
    }

    public static void main(String[] arguments) throws Exception {
        String name = arguments[0];
        String phase = arguments[1];
        Path folder = Path.of(arguments[2]);
        int count = Integer.parseInt(arguments[4]);
        if (phase.equals("recover")) {
            recover(name, folder, Workload.earliest(folder, count));
            return;
        }
        long directAtStart = Usage.directBytes();
        warmUp(name, folder.resolve("warm-up"), Math.min(count, WARM_UP));
        Workload workload = Workload.read(folder, count);
        try (TrackerPeer peer = new TrackerPeer(name, folder.resolve("data"), workload, directAtStart)) {
            say(switch (phase) {
                case "fill" -> peer.fill();
                case "drain" -> peer.drain();
                case "lateness" -> peer.lateness();
                default -> throw new IllegalArgumentException("no phase " + phase);
            });
            peer.obey();
        }
        System.exit(0);
    }

    /**
     * Run the tracker until its code is compiled, on throwaway entries and files: a broker runs for days. Not where
     * the restart of a process is measured.
     */
    private static void warmUp(String name, Path folder, int count) throws Exception {
        try (TrackerPeer peer = new TrackerPeer(name, folder, Workload.uniform(count, WARM_UP_LEDGER), 0)) {
            peer.fill();
            peer.drain();
            peer.awaitSnapshots();
        }
        try (Stream<Path> files = Files.walk(folder)) {
            for (Path file : files.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(file);
            }
        }
    }

    /** Follow the standard input until its end. */
    private void obey() throws Exception {
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            switch (order.trim()) {
                case "settle" -> {
                    awaitSnapshots();
                    say(Map.of("settled", true));
                }
                case "drain" -> say(drain());
                default -> throw new IllegalArgumentException("no order " + order);
            }
        }
    }

    private void beginPhase() {
        deadlineNs = System.nanoTime() + budgetNs;
    }

    private boolean overdue() {
        return System.nanoTime() > deadlineNs;
    }

    private static void say(Map<String, ?> figures) throws IOException {
        System.out.println(JSON.writeValueAsString(figures));
        System.out.flush();
    }

    /** The tracker over the present data, read now, as of the clock's time. */
    private void open(Clock at) throws Exception {
        switch (name) {
            case "in-memory":
                // No look-ahead for fixed delays: it stops the dispatcher's reading at 50,000 of one delay.
                tracker = new InMemoryDelayedDeliveryTracker(dispatcher, timer, TICK_MS, at, false, 0);
                break;
            case "bucket":
                snapshots.start();
                tracker = new BucketDelayedDeliveryTracker(dispatcher, timer, TICK_MS, at, false, snapshots, 50_000,
                        TimeUnit.SECONDS.toMillis(300), 5_000, -1);
                break;
            default:
                throw new IllegalArgumentException("no tracker " + name);
        }
    }

    private Map<String, Object> fill() throws Exception {
        clock.set(workload.earliest() - HOUR_MS);
        open(clock);
        Usage.forgetPeak();
        long heapBefore = Usage.heapBytes();
        long residentBefore = Usage.residentBytes();
        double cpuBefore = Usage.cpuSeconds();
        beginPhase();
        long began = System.nanoTime();
        long longestNs = 0;
        long longestReadNs = 0;
        int added = 0;
        while (added < count && !overdue()) {
            int end = Math.min(added + BATCH, count);
            long batchNs = 0;
            while (added < end) {
                int read = Math.min(added + READ, end);
                long readNs = add(added, read, 0);
                batchNs += readNs;
                longestReadNs = Math.max(longestReadNs, readNs);
                added = read;
            }
            longestNs = Math.max(longestNs, batchNs);
        }
        known = added;
        double addingS = (System.nanoTime() - began) / 1e9;
        awaitSnapshots();
        double tookS = (System.nanoTime() - began) / 1e9;
        double cpuS = Usage.cpuSeconds() - cpuBefore;
        long peak = Usage.peakResidentBytes();
        Map<String, Object> remarks = new LinkedHashMap<>();
        remarks.put("heap after collection (B an entry)", (Usage.heapBytes() - heapBefore) / (double) added);
        remarks.put("direct memory (B an entry)", (Usage.directBytes() - directAtStart) / (double) added);
        remarks.put("longest read of 100 (ms)", longestReadNs / 1e6);
        remarks.put("last snapshot stored after the last add (s)", tookS - addingS);
        Map<String, Object> figures = new LinkedHashMap<>();
        figures.put("added", added);
        figures.put("took_s", tookS);
        figures.put("adds_per_s", added / tookS);
        figures.put("cpu_s", cpuS);
        figures.put("rss_before_bytes", residentBefore);
        figures.put("peak_rss_bytes", peak);
        figures.put("longest_pause_ms", longestNs / 1e6);
        figures.put("stopped", added < count);
        figures.put("remarks", remarks);
        return figures;
    }

    /** Add the workload's entries of one read; returns how long the dispatcher was held, in nanoseconds. */
    private long add(int from, int to, long shiftMs) {
        long began = System.nanoTime();
        synchronized (dispatcher) {
            for (int i = from; i < to; i++) {
                if (!tracker.addMessage(workload.ledger[i], workload.entry[i], workload.deliverAt[i] + shiftMs)) {
                    throw new IllegalStateException(name + " refused a message that is due in the future");
                }
            }
        }
        return System.nanoTime() - began;
    }

    /**
     * Open the present data and pop once. The topic must supply the entries that the tracker has lost. Nor does it know
     * acknowledgements: the cursor does, so entries popped here come again.
     */
    private static void recover(String name, Path folder, long earliestMs) throws Exception {
        try (TrackerPeer peer = new TrackerPeer(name, folder.resolve("data"), Workload.uniform(0, 1), 0)) {
            long nowMs = earliestMs + 1_000;
            peer.clock.set(nowMs);
            peer.open(peer.clock);
            long held = peer.tracker.getNumberOfDelayedMessages();
            int popped = 0;
            while (held > 0 && popped == 0) {
                popped = peer.pop(POP_LIMIT).size();
                // The earliest entry may be lost: go on to the next one still known.
                nowMs += 1_000;
                peer.clock.set(nowMs);
            }
            double startedMs = Long.parseLong(System.getenv("BENCH_STARTED_NS")) / 1e6;
            Map<String, Object> figures = new LinkedHashMap<>();
            figures.put("first_pop_s", popped > 0 ? (System.currentTimeMillis() - startedMs) / 1e3 : null);
            figures.put("popped", popped);
            figures.put("held_after", held);
            say(figures);
            peer.obey();
        }
        System.exit(0);
    }

    private Map<String, Object> drain() throws Exception {
        clock.set(workload.earliest() - HOUR_MS);
        if (tracker == null) {
            open(clock);
        }
        beginPhase();
        long[] times = workload.times(known, BATCH);
        BitSet seen = new BitSet(count);
        int popped = 0;
        int again = 0;
        int early = 0;
        int outOfOrder = 0;
        long latest = Long.MIN_VALUE;
        System.gc();
        Usage.forgetPeak();
        long residentBefore = Usage.residentBytes();
        double cpuBefore = Usage.cpuSeconds();
        double checkingCpuS = 0;
        long longestNs = 0;
        long tookNs = 0;
        boolean stopped = false;
        for (int step = 0; step < times.length && !stopped; step++) {
            clock.set(times[step]);
            while (!overdue()) {
                long began = System.nanoTime();
                Collection<Position> positions = pop(POP_LIMIT);
                long spent = System.nanoTime() - began;
                tookNs += spent;
                longestNs = Math.max(longestNs, spent);
                if (positions.isEmpty()) {
                    break;
                }
                double checkingFrom = Usage.cpuSeconds();
                long latestHere = latest;
                for (Position position : positions) {
                    int at = workload.find(position.getLedgerId(), position.getEntryId());
                    long deliverAt = workload.deliverAt[at];
                    if (seen.get(at)) {
                        again++;
                        continue;
                    }
                    seen.set(at);
                    popped++;
                    early += deliverAt > times[step] ? 1 : 0;
                    outOfOrder += deliverAt < latest ? 1 : 0;
                    latestHere = Math.max(latestHere, deliverAt);
                }
                latest = latestHere;
                checkingCpuS += Usage.cpuSeconds() - checkingFrom;
            }
            stopped = overdue();
        }
        Map<String, Object> figures = new LinkedHashMap<>();
        figures.put("popped", popped);
        figures.put("took_s", tookNs / 1e9);
        figures.put("pops_per_s", popped / (tookNs / 1e9));
        figures.put("cpu_s", Math.max(0, Usage.cpuSeconds() - cpuBefore - checkingCpuS));
        figures.put("rss_before_bytes", residentBefore);
        figures.put("peak_rss_bytes", Usage.peakResidentBytes());
        figures.put("longest_pause_ms", longestNs / 1e6);
        figures.put("early", early);
        figures.put("out_of_order", outOfOrder);
        figures.put("missing", stopped ? 0 : known - popped);
        figures.put("again", again);
        figures.put("stopped", stopped);
        return figures;
    }

    /**
     * One complete getScheduledMessages. Bucket answers nothing while it loads a segment in the background and asks to be
     * called again; here that is at once, in a broker at the next tick of a timer.
     */
    private Collection<Position> pop(int limit) {
        while (true) {
            synchronized (dispatcher) {
                if (!tracker.hasMessageAvailable()) {
                    return List.of();
                }
                Collection<Position> positions = tracker.getScheduledMessages(limit);
                if (!positions.isEmpty()) {
                    return positions;
                }
            }
            if (overdue()) {
                return List.of();
            }
            LockSupport.parkNanos(20_000);
        }
    }

    private Map<String, Object> lateness() throws Exception {
        open(Clock.systemUTC());
        long shiftMs = System.currentTimeMillis() + BACKLOG_AFTER_MS - workload.earliest();
        int backlog = 0;
        while (backlog < count && !overdue()) {
            int end = Math.min(backlog + READ, count);
            add(backlog, end, shiftMs);
            backlog = end;
        }
        awaitSnapshots();
        double seconds = Double.parseDouble(System.getenv().getOrDefault("BENCH_LATENESS_S", "10"));
        int live = (int) (seconds * RealTime.PER_S);
        double cpuBefore = Usage.cpuSeconds();
        RealTime realTime = new RealTime(dispatcher, tracker, woken);
        double[] late = realTime.run(workload.lastLedger() + 1, live);
        double cpuS = Usage.cpuSeconds() - cpuBefore;
        double emptyLookUs = realTime.emptyLookUs();
        timer.quicken();
        tracker.resetTickTime(FAST_TICK_MS);
        double[] fast = realTime.run(workload.lastLedger() + 2, live / 2);
        double[] quantiles = new double[late.length == 0 ? 0 : QUANTILES];
        Arrays.setAll(quantiles, i -> Math.round(RealTime.quantile(late, i / (QUANTILES - 1.0)) * 1e3) / 1e3);
        Map<String, Object> figures = RealTime.threeQuantiles(late);
        figures.put("handed_out", late.length);
        figures.put("missing", live - late.length);
        figures.put("early", Arrays.stream(late).filter(ms -> ms < 0).count());
        figures.put("quantiles_ms", quantiles);
        figures.put("cpu_s", cpuS);
        figures.put("backlog", backlog);
        figures.put("empty_look_us", emptyLookUs);
        figures.put("fast", RealTime.threeQuantiles(fast));
        figures.put("stopped", backlog < count);
        return figures;
    }

    /** Return once every begun snapshot is stored and merged. */
    private void awaitSnapshots() {
        while (snapshots.busy()) {
            LockSupport.parkNanos(200_000);
        }
    }

    @Override
    public void close() {
        timer.stop();
        if (tracker instanceof BucketDelayedDeliveryTracker) {
            snapshots.close();
        }
    }
}
