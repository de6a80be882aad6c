package tidegate.pulsar.timing;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import java.util.function.LongSupplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One thread polls for events that nobody announces and that mostly come soon, if at all: often at first, then ever less
 * often, and not after {@link #PATIENCE_NS}.
 *
 * <p>It rests for a thousandth of the time since the youngest look began, and for nine times the duration of a round, so that
 * it never takes more than a tenth of a processor.
 */
public final class BackoffPoller implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(BackoffPoller.class);
    static final long PATIENCE_NS = TimeUnit.SECONDS.toNanos(30);
    static final long SHORTEST_REST_NS = TimeUnit.MICROSECONDS.toNanos(100);
    static final long LONGEST_REST_NS = TimeUnit.MILLISECONDS.toNanos(10);
    private static final int REST_PART = 1000;
    private static final int WORK_PART = 9;

    private record Wanted(BooleanSupplier isOver, long sinceNs) {}

    private final LongSupplier nanoTime;
    private final Worker worker;
    /** Looks that the thread has not taken yet. */
    @GuardedBy("fresh")
    private final List<Wanted> fresh = new ArrayList<>();
    /** Only for the thread itself. */
    private final List<Wanted> wanted = new ArrayList<>();

    /** {@code nanoTime}: a monotonic time in ns. */
    public BackoffPoller(LongSupplier nanoTime) {
        this.nanoTime = nanoTime;
        worker = new Worker("tidegate-poll", this::run);
    }

    public void start() {
        worker.start();
    }

    /** Looks from now on, until it is over. A look must be short and wait hardly at all. Any thread may call it. */
    public void pollUntil(BooleanSupplier isOver) {
        synchronized (fresh) {
            fresh.add(new Wanted(isOver, nanoTime.getAsLong()));
            fresh.notifyAll();
        }
    }

    private void run() {
        while (worker.isRunning()) {
            try {
                long restNs = round();
                if (restNs > 0) {
                    LockSupport.parkNanos(restNs);
                } else {
                    awaitFresh();
                }
            } catch (InterruptedException e) {
                return;
            }
        }
    }

    private void awaitFresh() throws InterruptedException {
        synchronized (fresh) {
            while (fresh.isEmpty()) {
                fresh.wait();
            }
        }
    }

    /** Does each look once; returns the rest that follows in ns, 0 if there is nothing to look for. */
    long round() {
        synchronized (fresh) {
            wanted.addAll(fresh);
            fresh.clear();
        }
        long beganNs = nanoTime.getAsLong();
        long youngestNs = Long.MAX_VALUE;
        for (Iterator<Wanted> i = wanted.iterator(); i.hasNext(); ) {
            Wanted one = i.next();
            long ageNs = beganNs - one.sinceNs();
            if (isOver(one) || ageNs >= PATIENCE_NS) {
                i.remove();
            } else {
                youngestNs = Math.min(youngestNs, ageNs);
            }
        }
        if (wanted.isEmpty()) {
            return 0;
        }
        long restNs = Math.max(SHORTEST_REST_NS, Math.min(LONGEST_REST_NS, youngestNs / REST_PART));
        return Math.max(restNs, (nanoTime.getAsLong() - beganNs) * WORK_PART);
    }

    private static boolean isOver(Wanted one) {
        try {
            return one.isOver().getAsBoolean();
        } catch (Throwable e) {
            // Survives any error: the other looks go on.
            LOG.error("A look failed and is dropped", e);
            return true;
        }
    }

    @Override
    public void close() {
        worker.close();
    }
}
