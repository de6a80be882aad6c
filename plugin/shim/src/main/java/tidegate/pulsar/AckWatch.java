package tidegate.pulsar;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One thread that has every tracker look at its cursor: the busy ones at each poll, the others once a second.
 *
 * <p>Polling, because Pulsar tells a tracker of no acknowledgement. A look-up costs tens of ns; the poll interval bounds how
 * many acknowledgements a crash of the broker forgets.
 */
final class AckWatch implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(AckWatch.class);
    private static final long SLOW_NS = TimeUnit.SECONDS.toNanos(1);

    private final Set<TrackerCore> cores = ConcurrentHashMap.newKeySet();
    private final long pollNs;
    private final Worker worker;

    AckWatch(int pollMs) {
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
        while (worker.isRunning()) {
            long startNs = System.nanoTime();
            boolean slow = startNs - nextSlowNs >= 0;
            if (slow) {
                nextSlowNs = startNs + SLOW_NS;
            }
            for (TrackerCore core : cores) {
                watch(core, slow);
            }
            try {
                TimeUnit.NANOSECONDS.sleep(Math.max(0, startNs + pollNs - System.nanoTime()));
            } catch (InterruptedException e) {
                return;
            }
        }
    }

    private void watch(TrackerCore core, boolean slow) {
        try {
            if (core.isFinished()) {
                cores.remove(core);
            } else if (slow || core.watch().isBusy()) {
                core.watch().look();
            }
        } catch (Throwable e) {
            // Whatever it is: without this thread no acknowledgement would ever be noticed again.
            LOG.error("[{}] Looking at the cursor failed; trying again at the next poll", core.name(), e);
        }
    }

    @Override
    public void close() {
        worker.close();
    }
}
