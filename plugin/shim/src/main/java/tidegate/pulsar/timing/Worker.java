package tidegate.pulsar.timing;

/**
 * A thread of the shim's own that runs its loop until closed. It never keeps the broker's process alive; closing interrupts
 * it, and waits at most a second.
 */
public final class Worker implements AutoCloseable {
    private static final long CLOSE_MS = 1000;

    private final Thread thread;
    private volatile boolean running = true;

    /** {@code loop} must return soon once {@link #isRunning} is false, or when interrupted. */
    public Worker(String name, Runnable loop) {
        thread = new Thread(loop, name);
        thread.setDaemon(true);
    }

    public void start() {
        thread.start();
    }

    public boolean isRunning() {
        return running;
    }

    @Override
    public void close() {
        running = false;
        thread.interrupt();
        try {
            thread.join(CLOSE_MS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
