package tidegate.pulsar.readahead;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.time.Clock;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.gate.TopicReader;
import tidegate.pulsar.gate.TrackerCore;
import tidegate.pulsar.timing.Wait;
import tidegate.pulsar.timing.Worker;

/**
 * The broker's one thread that reads ahead of the dispatchers: it reads the parts of a topic that no index has, in large
 * batches, straight from BookKeeper, and passes them to the daemon before the dispatcher gets there.
 *
 * <p>Only an optimization: the dispatcher reads whatever it leaves. A few subscriptions take turns, a batch each; the others
 * wait. A {@link ReadAheadLimiter} sets the speed by live traffic's latency; reading stops while too much waits for the
 * daemon.
 */
public final class ReadAhead implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(ReadAhead.class);
    private static final int MAX_PASSES = 4;
    /** Reads under way, of all passes. */
    private static final int MAX_READS = 4;
    /** A pass's turn, whether it advances or not, before a waiting one takes its place. */
    private static final long TURN_MS = 500;
    private static final long HANGS_MS = 100;
    private static final long LOOK_NS = TimeUnit.MILLISECONDS.toNanos(50);
    /** A larger entry counts once for each part of this size: bytes take time, too. */
    private static final long ENTRY_BYTES = 256;
    private static final long IDLE_MS = 1000;
    /** The pause while a pass waits for room in the budget, which is not announced. */
    private static final long POLL_MS = 5;

    public static final ScanPass.Stride STRIDE = new ScanPass.Stride(1000, 4096, 64, 20_000, 100);

    private static final class Turn {
        final TrackerCore core;
        final ScanPass pass;
        final Wait sinceBegun = new Wait();
        /** The time since it last advanced, or began to read. */
        private final Wait sinceAdvance = new Wait();
        /** About the entries to read at its begin; the entries read since, and their count. */
        private final long entries;
        private long read;
        private long counted;

        Turn(TrackerCore core, ScanPass pass, long entries, long nowMs) {
            this.core = core;
            this.pass = pass;
            this.entries = entries;
            sinceBegun.begin(nowMs);
        }

        ScanPass.Progress step(int window, int entries, long nowMs) {
            boolean waits = pass.underWay() > 0;
            ScanPass.Progress progress = pass.step(window, entries);
            if (!waits || progress == ScanPass.Progress.ADVANCED) {
                sinceAdvance.begin(nowMs);
            }
            return progress;
        }

        /** Its reads under way; none if they hang, to spare the others. */
        int reads(long nowMs) {
            return sinceAdvance.isOver(nowMs, HANGS_MS) ? 0 : pass.underWay();
        }

        /** The last step's size in the limiter's count: bytes take time, too. */
        long count() {
            long step = Math.max(pass.stepRead(), pass.stepBytes() / ENTRY_BYTES);
            read += pass.stepRead();
            counted += step;
            return step;
        }

        /** About the rest to read, in the same count. A large pass stays large to its end: no part of it is hurried. */
        long left() {
            if (entries > ReadAheadLimiter.MOST_HURRIED) {
                return entries;
            }
            return (long) (Math.max(0, entries - read) * (read > 0 ? (double) counted / read : 1));
        }
    }

    private final Clock clock;
    private final LongSupplier nanoTime;
    private final ScanPass.Stride stride;
    private final ReadAheadLimiter limiter;
    private final LatencySampler live;
    private final long maxWaiting;
    private final Worker worker;
    @GuardedBy("this")
    private final Map<TrackerCore, TopicReader> readers = new LinkedHashMap<>();
    private final Deque<Turn> active = new ArrayDeque<>();
    @GuardedBy("this")
    private boolean signalled;
    private long lookedNs;

    /**
     * {@code nanoTime}: a monotonic time in ns; {@code maxWaiting}: the entries of a subscription that may wait for the
     * daemon during its pass.
     */
    public ReadAhead(Clock clock, LongSupplier nanoTime, ScanPass.Stride stride, ReadAheadLimiter limiter,
            LatencySampler live, long maxWaiting) {
        this.clock = clock;
        this.nanoTime = nanoTime;
        this.lookedNs = nanoTime.getAsLong();
        this.stride = stride;
        this.limiter = limiter;
        this.live = live;
        this.maxWaiting = maxWaiting;
        worker = new Worker("tidegate-read-ahead", this::run);
    }

    public void start() {
        worker.start();
    }

    public void add(TrackerCore core, TopicReader reader) {
        core.backlog().connect(reader, stride.worthwhile() / 2, stride.reach(), this::wake);
        synchronized (this) {
            readers.put(core, reader);
        }
    }

    private synchronized void wake() {
        signalled = true;
        notifyAll();
    }

    private void run() {
        while (worker.isRunning()) {
            try {
                if (!turn()) {
                    await(active.isEmpty() ? IDLE_MS : pollMs());
                }
            } catch (InterruptedException e) {
                break;
            } catch (Throwable e) {
                LOG.error("Reading ahead failed; the dispatchers read the rest", e);
                active.forEach(this::end);
                active.clear();
            }
        }
        active.forEach(this::end);
    }

    /** The time until the limiter allows a read, or a short while. */
    private long pollMs() {
        long restMs = TimeUnit.NANOSECONDS.toMillis(limiter.restNs(nanoTime.getAsLong()));
        return restMs < 0 ? POLL_MS : Math.max(1, Math.min(POLL_MS, restMs));
    }

    private synchronized void await(long waitMs) throws InterruptedException {
        if (!signalled) {
            wait(waitMs);
        }
        signalled = false;
    }

    /** Gives each pass a turn, and lets waiting ones begin; true if any did something. */
    public boolean turn() {
        look();
        admit();
        return round();
    }

    private void look() {
        long nowNs = nanoTime.getAsLong();
        if (nowNs - lookedNs >= LOOK_NS) {
            lookedNs = nowNs;
            limiter.look(live.sample());
        }
    }

    /** Starts waiting passes, perhaps of thousands, while there is room. */
    private void admit() {
        if (active.size() >= MAX_PASSES && !isLongestOver()) {
            return;
        }
        for (Map.Entry<TrackerCore, TopicReader> entry : wanting()) {
            if (active.size() >= MAX_PASSES) {
                if (!isLongestOver()) {
                    return;
                }
                makeRoom();
            }
            begin(entry.getKey(), entry.getValue());
        }
    }

    private List<Map.Entry<TrackerCore, TopicReader>> wanting() {
        List<Map.Entry<TrackerCore, TopicReader>> wanting = new ArrayList<>();
        synchronized (this) {
            readers.keySet().removeIf(TrackerCore::isFinished);
            for (Map.Entry<TrackerCore, TopicReader> entry : readers.entrySet()) {
                if (entry.getKey().backlog().isWanted() && active.stream().noneMatch(turn -> turn.core == entry.getKey())) {
                    wanting.add(Map.entry(entry.getKey(), entry.getValue()));
                }
            }
        }
        return wanting;
    }

    /** True if the longest-running pass, the first, has had its turn. */
    private boolean isLongestOver() {
        return active.getFirst().sinceBegun.isOver(clock.millis(), TURN_MS);
    }

    private void makeRoom() {
        Turn longest = active.removeFirst();
        end(longest);
        // It resumes there at its next turn: the tracker knows the entries read.
        longest.core.backlog().want();
        goesLast(longest.core);
    }

    /** Puts the core behind those that have waited. */
    private synchronized void goesLast(TrackerCore core) {
        TopicReader reader = readers.remove(core);
        if (reader != null) {
            readers.put(core, reader);
        }
    }

    private void begin(TrackerCore core, TopicReader reader) {
        long ticket = core.backlog().begin();
        if (!core.backlog().mayAdd(ticket) || !reader.isAllowed()) {
            return;
        }
        long entries = worthwhile(core, reader);
        if (entries >= stride.worthwhile()) {
            long nowMs = clock.millis();
            ScanPass pass = new ScanPass(core, reader, stride, ticket, nowMs, nanoTime, this::wake);
            active.add(new Turn(core, pass, entries, nowMs));
        }
    }

    /**
     * About the entries to read. A few without a holder, behind many held ones, the dispatcher reads at once, without a
     * pass.
     */
    private static long worthwhile(TrackerCore core, TopicReader reader) {
        long unknown = Math.min(reader.unreadEntries(), reader.unacknowledgedEntries() - core.backlog().contained());
        return Math.max(unknown, core.backlog().sought());
    }

    private boolean round() {
        boolean moved = false;
        limiter.want(active.stream().mapToLong(Turn::left).sum(), nanoTime.getAsLong());
        int part = Math.max(1, limiter.reads(MAX_READS) / Math.max(1, active.size()));
        for (Iterator<Turn> i = active.iterator(); i.hasNext(); ) {
            Turn turn = i.next();
            int window = Math.min(part, MAX_READS - readsOfOthers(turn));
            boolean mayRead = limiter.mayRead(nanoTime.getAsLong()) && turn.core.backlog().hasRoom(maxWaiting);
            ScanPass.Progress progress = turn.step(window, mayRead ? limiter.batch(stride.batch()) : 0, clock.millis());
            limiter.spend(turn.count(), turn.pass.stepTookNs(), nanoTime.getAsLong());
            if (progress == ScanPass.Progress.ENDED) {
                i.remove();
                end(turn);
            } else if (progress == ScanPass.Progress.ADVANCED) {
                moved = true;
            }
        }
        return moved;
    }

    /** The other passes' reads. A pass that was alone may still have more than its part. */
    private int readsOfOthers(Turn turn) {
        long nowMs = clock.millis();
        return active.stream().filter(other -> other != turn).mapToInt(other -> other.reads(nowMs)).sum();
    }

    private void end(Turn turn) {
        try {
            turn.pass.end(clock.millis());
        } catch (RuntimeException e) {
            LOG.error("[{}] Ending the reading ahead failed", turn.core.name(), e);
        }
    }

    @Override
    public void close() {
        worker.close();
    }
}
