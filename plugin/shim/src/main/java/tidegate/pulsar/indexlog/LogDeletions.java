package tidegate.pulsar.indexlog;

import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Deletes the index log and the overrides of each subscription that is gone.
 *
 * <p>Pulsar makes a tracker forget everything before it deletes a subscription, but also when it clears a backlog, and before
 * a reset (apache/pulsar#26420). Only the managed ledger tells these apart: it lists a deleted cursor no longer. So an index
 * log is deleted once its cursor is gone and the daemon has said its last word; else it stays, and records an empty index. A
 * broker that ends in between leaves the log for {@code tidegate verify --logs} to find. Any thread may call.
 */
public final class LogDeletions {
    private static final Logger LOG = LoggerFactory.getLogger(LogDeletions.class);
    /** Far longer than Pulsar takes from forgetting to deletion. */
    private static final long KEPT_NS = TimeUnit.MINUTES.toNanos(10);

    private record Waiting(LogLedgers log, OverrideLedgers overrides, CompletableFuture<?> lastWord, long sinceNs) {}

    private final LongSupplier nanoTime;
    private final Map<ManagedCursor, Waiting> waiting = new ConcurrentHashMap<>();

    public LogDeletions(LongSupplier nanoTime) {
        this.nanoTime = nanoTime;
    }

    /** Expects a cursor to go; {@code lastWord} completes when the daemon writes no more into its log. */
    public void expect(ManagedCursor cursor, LogLedgers log, OverrideLedgers overrides, CompletableFuture<?> lastWord) {
        waiting.put(cursor, new Waiting(log, overrides, lastWord, nanoTime.getAsLong()));
    }

    /** Deletes the logs of cursors that are gone. Called once a second. */
    public void look() {
        long nowNs = nanoTime.getAsLong();
        waiting.forEach((cursor, one) -> {
            if (!isGone(cursor)) {
                if (nowNs - one.sinceNs() > KEPT_NS) {
                    waiting.remove(cursor, one);
                }
            } else if (one.lastWord().isDone() && waiting.remove(cursor, one)) {
                LOG.info("[{}] The subscription is gone, and its index log with it", cursor.getName());
                one.log().deleteAll();
                one.overrides().deleteAll();
            }
        });
    }

    private static boolean isGone(ManagedCursor cursor) {
        for (ManagedCursor one : cursor.getManagedLedger().getCursors()) {
            if (one == cursor) {
                return false;
            }
        }
        return true;
    }
}
