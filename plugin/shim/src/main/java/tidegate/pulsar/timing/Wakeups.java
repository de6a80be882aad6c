package tidegate.pulsar.timing;

import java.time.Clock;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The broker's millisecond timer: one thread for the wake-ups of all trackers. */
public final class Wakeups implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Wakeups.class);
    /** The longest sleep: the wall clock may be set while the timer's runs on. */
    private static final long MAX_DELAY_MS = 1000;

    private final Clock clock;
    private final ScheduledThreadPoolExecutor executor;

    public Wakeups(Clock clock) {
        this.clock = clock;
        executor = new ScheduledThreadPoolExecutor(1, task -> {
            Thread thread = new Thread(task, "tidegate-wake");
            thread.setDaemon(true);
            return thread;
        });
        executor.setRemoveOnCancelPolicy(true);
        executor.setExecuteExistingDelayedTasksAfterShutdownPolicy(false);
    }

    /** Runs the task at that wall-clock time, or earlier if it is far away; null after {@link #close}. */
    public ScheduledFuture<?> at(long timeMs, Runnable task) {
        if (executor.isShutdown()) {
            return null;
        }
        long delayMs = Math.max(0, Math.min(timeMs - clock.millis(), MAX_DELAY_MS));
        return executor.schedule(() -> run(task), delayMs, TimeUnit.MILLISECONDS);
    }

    /** The executor would hide a failure. */
    private static void run(Runnable task) {
        try {
            task.run();
        } catch (Throwable e) {
            LOG.error("Waking a dispatcher failed", e);
        }
    }

    @Override
    public void close() {
        executor.shutdownNow();
    }
}
