package tidegate.pulsar.cursor;

import com.google.common.collect.MapMaker;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.bookkeeper.mledger.ManagedCursor;

/**
 * Writes of each cursor's properties, one after the other, whoever asks for them.
 *
 * <p>Pulsar 4.0 and 4.2 make the new properties from those that they know, and then take the version of the metadata. A write
 * that ends between the two has given the version, and its property is missing: the later write takes it away, with a version
 * that fits. Pulsar 5.0 takes the version first.
 *
 * <p>The next write begins when the one before has an answer, or waits for it in vain. Any thread may call.
 */
final class PropertyWrites {
    private static final long LOST_AFTER_MS = 60_000;

    /** By identity: each completes when the last write that was asked for is over. */
    private static final ConcurrentMap<ManagedCursor, CompletableFuture<Void>> LAST = new MapMaker().weakKeys().makeMap();

    private PropertyWrites() {
    }

    /** Begins the write at once if none is under way, else on the executor once that is over. */
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
