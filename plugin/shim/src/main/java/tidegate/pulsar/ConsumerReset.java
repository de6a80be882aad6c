package tidegate.pulsar;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Disconnects the consumers of a subscription, once for however many requests come meanwhile, so that they connect again and
 * the cursor rewinds.
 *
 * <p>On a thread of its own: Pulsar locks the subscription, then the dispatcher, and this may wait for both.
 */
final class ConsumerReset {
    private static final Logger LOG = LoggerFactory.getLogger(ConsumerReset.class);

    private final String name;
    private final Object subscription;
    private final Supplier<CompletableFuture<Void>> disconnect;
    private final Runnable disconnected;
    private final Executor executor;
    private final AtomicBoolean requested = new AtomicBoolean();

    /**
     * @param subscription the object whose monitor Pulsar takes before the dispatcher's
     * @param disconnect disconnects every consumer; done when the last one is gone
     * @param disconnected called once that is done
     */
    ConsumerReset(String name, Object subscription, Supplier<CompletableFuture<Void>> disconnect, Runnable disconnected,
            Executor executor) {
        this.name = name;
        this.subscription = subscription;
        this.disconnect = disconnect;
        this.disconnected = disconnected;
        this.executor = executor;
    }

    /** Asks for it; returns at once. */
    void request() {
        if (requested.compareAndSet(false, true)) {
            try {
                executor.execute(this::run);
            } catch (RejectedExecutionException e) {
                LOG.debug("[{}] The broker stops; whoever loads the topic reads it again", name, e);
            }
        }
    }

    private void run() {
        requested.set(false);
        try {
            // One lock around both: whoever closes the subscription meanwhile must not lose the future it waits for.
            synchronized (subscription) {
                CompletableFuture<Void> done = disconnect.get();
                if (done.isDone()) {
                    disconnected.run();
                }
                done.exceptionally(error -> {
                    warn(error);
                    return null;
                });
            }
        } catch (RuntimeException e) {
            warn(e);
        }
    }

    private void warn(Throwable error) {
        LOG.warn("[{}] Disconnecting the consumers failed; the positions are read again at the next rewind", name, error);
    }
}
