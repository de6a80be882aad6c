package tidegate.pulsar;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.cursor.StoredSeals;
import tidegate.pulsar.gate.TrackerCore;
import tidegate.pulsar.timing.Worker;

/**
 * One thread polls every tracker's cursor, because Pulsar announces no acknowledgements: busy trackers' at each poll, the
 * others once a second. It also checks the seals at each poll, or once a second where that would take more than a tenth of
 * its time. A crash of the broker loses at most the acknowledgements of one poll interval.
 */
final class AckWatch implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(AckWatch.class);
    private static final int SEALS_REST_PART = 9;
    private static final long SLOW_NS = TimeUnit.SECONDS.toNanos(1);

    private final Set<TrackerCore> cores = ConcurrentHashMap.newKeySet();
    private final long pollNs;
    private final StoredSeals seals;
    private final Runnable eachSecond;
    private final Worker worker;

    /** {@code eachSecond} runs once a second, for all other checks. */
    AckWatch(int pollMs, StoredSeals seals, Runnable eachSecond) {
        this.seals = seals;
        this.eachSecond = eachSecond;
        pollNs = TimeUnit.MILLISECONDS.toNanos(pollMs);
        worker = new Worker("tidegate-ack-watch", this::run);
    }

    void start() {
        worker.start();
    }

    void add(TrackerCore core) {
        cores.add(core);
    }

    private void run() {
        long nextSlowNs = System.nanoTime();
        long nextSealsNs = nextSlowNs;
        while (worker.isRunning()) {
            long startNs = System.nanoTime();
            boolean slow = startNs - nextSlowNs >= 0;
            if (slow) {
                nextSlowNs = startNs + SLOW_NS;
            }
            for (TrackerCore core : cores) {
                watch(core, slow);
            }
            if (slow) {
                runEachSecond();
            }
            long sealsNs = System.nanoTime();
            if (sealsNs - nextSealsNs >= 0) {
                lookAtSeals();
                long nowNs = System.nanoTime();
                // A busy machine stretches a look, so the seals are checked once a second anyway.
                nextSealsNs = nowNs + Math.min(SLOW_NS, (nowNs - sealsNs) * SEALS_REST_PART);
            }
            try {
                TimeUnit.NANOSECONDS.sleep(Math.max(0, startNs + pollNs - System.nanoTime()));
            } catch (InterruptedException e) {
                return;
            }
        }
    }

    private void runEachSecond() {
        try {
            eachSecond.run();
        } catch (Throwable e) {
            LOG.error("A look failed; trying again in a second", e);
        }
    }

    private void watch(TrackerCore core, boolean slow) {
        try {
            if (core.isFinished()) {
                cores.remove(core);
            } else if (slow || core.monitor().isBusy()) {
                core.monitor().look();
            }
        } catch (Throwable e) {
            // Survives any error: only this thread notices acknowledgements.
            LOG.error("[{}] Looking at the cursor failed; trying again at the next poll", core.name(), e);
        }
    }

    private void lookAtSeals() {
        try {
            seals.look();
        } catch (Throwable e) {
            LOG.error("Looking at the cursors' seals failed; trying again at the next poll", e);
        }
    }

    @Override
    public void close() {
        worker.close();
    }
}
