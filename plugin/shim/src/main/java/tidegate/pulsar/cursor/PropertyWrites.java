package tidegate.pulsar.cursor;

import com.google.common.collect.MapMaker;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.bookkeeper.mledger.ManagedCursor;

/**
 * Writes each cursor's properties one after the other, for all callers: of two writes at once, Pulsar 4.0 and 4.2 may lose
 * the property of one. (They build the new properties before they take the version of the metadata.)
 *
 * <p>The next write begins once the one before has been answered, or has timed out. Any thread may call.
 */
final class PropertyWrites {
    private static final long LOST_AFTER_MS = 60_000;

    /** By identity: each completes at the end of the last requested write. */
    private static final ConcurrentMap<ManagedCursor, CompletableFuture<Void>> LAST = new MapMaker().weakKeys().makeMap();

    private PropertyWrites() {
    }

    /** Begins the write at once if none is under way, else on the executor after that one. */
    static <T> CompletableFuture<T> inTurn(ManagedCursor cursor, Executor executor, Supplier<CompletableFuture<T>> write) {
        CompletableFuture<Void> over = new CompletableFuture<>();
        CompletableFuture<Void> before = LAST.put(cursor, over);
        CompletableFuture<T> written = before == null || before.isDone() ? begun(write)
                : before.thenComposeAsync(done -> begun(write), executor);
        over.completeOnTimeout(null, LOST_AFTER_MS, TimeUnit.MILLISECONDS);
        written.whenComplete((done, error) -> {
            LAST.remove(cursor, over);
            over.complete(null);
        });
        return written;
    }

    private static <T> CompletableFuture<T> begun(Supplier<CompletableFuture<T>> write) {
        try {
            return write.get();
        } catch (RuntimeException e) {
            return CompletableFuture.failedFuture(e);
        }
    }
}
