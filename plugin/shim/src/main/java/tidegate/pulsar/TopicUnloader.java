package tidegate.pulsar;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Closes a topic with outdated cursor metadata; its clients reconnect and have it loaded anew. Pulsar reads the metadata's
 * version when it loads a cursor, and hardly ever again: after a late write by a paused former owner, it refuses every write
 * by this one. A topic is rarely closed twice in a row, because that disturbs its clients.
 */
final class TopicUnloader {
    private static final Logger LOG = LoggerFactory.getLogger(TopicUnloader.class);
    private static final long REST_NS = TimeUnit.MINUTES.toNanos(1);
    private static final int MAX_TOPICS = 10_000;

    private final Executor background;
    private final LongSupplier nanoTime;
    /** When each topic was closed; the oldest first. */
    @GuardedBy("this")
    private final Map<String, Long> closedNs = new LinkedHashMap<>();

    /** {@code nanoTime}: a monotonic time in ns. */
    TopicUnloader(Executor background, LongSupplier nanoTime) {
        this.background = background;
        this.nanoTime = nanoTime;
    }

    /** Closes the topic with {@code close} in the background, unless that happened a short while ago. */
    void unload(String topic, Supplier<CompletableFuture<Void>> close) {
        if (!mayClose(topic)) {
            return;
        }
        LOG.warn("[{}] The cursor's metadata have been written behind this broker's back, by a former owner perhaps: the topic is "
                + "closed, so that it is loaded anew", topic);
        try {
            background.execute(() -> close.get().exceptionally(error -> {
                LOG.warn("[{}] The topic could not be closed; unload it by hand", topic, error);
                return null;
            }));
        } catch (RejectedExecutionException e) {
            LOG.debug("[{}] The broker stops; the next one loads the topic", topic, e);
        }
    }

    private synchronized boolean mayClose(String topic) {
        long nowNs = nanoTime.getAsLong();
        closedNs.values().removeIf(then -> nowNs - then >= REST_NS);
        if (closedNs.containsKey(topic) || closedNs.size() >= MAX_TOPICS) {
            return false;
        }
        closedNs.put(topic, nowNs);
        return true;
    }
}
