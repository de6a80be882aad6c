package tidegate.pulsar;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.mledger.AsyncCallbacks.MarkDeleteCallback;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.ManagedLedgerException.CursorAlreadyClosedException;
import org.apache.bookkeeper.mledger.Position;

/**
 * Writes our properties into the metadata of one cursor.
 *
 * <p>Pulsar has one version for all metadata, so our write can make Pulsar refuse a concurrent reset, which does harm
 * ({@link RefusedResets}). So no write begins while a reset is seen in progress, and each write is followed by a look at the
 * cursor. A new cursor shows no reset, so it is stored first, as its first acknowledgement would have done.
 */
final class CursorProperties {
    private static final long STORE_TIMEOUT_MS = 60_000;

    /** Nobody is connected, so a cursor that does not show its resets may be in one: try again with a consumer. */
    static final class UnattendedException extends ManagedLedgerException {
        private static final long serialVersionUID = 1;

        UnattendedException() {
            super("a reset may be under way");
        }
    }

    private final ManagedCursor cursor;
    private final RefusedResets.Subscription subscription;
    private final Executor background;
    private final RefusedResets resets;
    private final long storeTimeoutMs;

    CursorProperties(ManagedCursor cursor, RefusedResets.Subscription subscription, Executor background) {
        this(cursor, subscription, background, STORE_TIMEOUT_MS);
    }

    CursorProperties(ManagedCursor cursor, RefusedResets.Subscription subscription, Executor background, long storeTimeoutMs) {
        this.storeTimeoutMs = storeTimeoutMs;
        this.cursor = cursor;
        this.subscription = subscription;
        this.background = background;
        resets = new RefusedResets(cursor, subscription, background);
    }

    /** For a cursor that nobody resets, such as that of a subscription being deleted. */
    static CursorProperties withoutReset(ManagedCursor cursor) {
        return new CursorProperties(cursor, RefusedResets.Subscription.NONE, Runnable::run);
    }

    ManagedCursor cursor() {
        return cursor;
    }

    RefusedResets resets() {
        return resets;
    }

    /**
     * Puts a property, unless the cursor is closed or a reset is in progress. Pulsar would write those of a closed cursor all
     * the same, behind the back of the next owner, which has read them and whose own writes would all be refused from then on.
     */
    CompletableFuture<Void> put(String key, String value) {
        if (cursor.isClosed()) {
            return CompletableFuture.failedFuture(new CursorAlreadyClosedException("the cursor is closed"));
        }
        if (resets.isUnderWay()) {
            // Our write may have made Pulsar refuse a reset: nothing else would end that.
            resets.look();
            return failed("the cursor is being reset");
        }
        if (needsNoStore()) {
            return cursor.putCursorProperty(key, value).whenComplete((done, error) -> resets.look());
        }
        // In the background, because Pulsar may call back with a lock held.
        return store()
                .handleAsync((done, error) -> error == null && resets.wouldShow() ? put(key, value)
                        : error instanceof UnattendedException ? CompletableFuture.<Void>failedFuture(error)
                        : failed("the cursor is not stored"), background)
                .thenCompose(answer -> answer);
    }

    /** True if {@link #put} is worth trying: a new cursor must be stored first, and only while a consumer is connected. */
    boolean mayPut() {
        return needsNoStore() || subscription.hasConsumers();
    }

    private boolean needsNoStore() {
        return resets.wouldShow() || subscription == RefusedResets.Subscription.NONE || !cursor.isDurable();
    }

    /**
     * Stores the cursor as {@link #store} does; false if that is impossible just now, or Pulsar has postponed it. Pulsar writes
     * at most one record a second. It confirms a postponed one within the call, and a written one from another thread.
     */
    CompletableFuture<Boolean> storeNow() {
        if (cursor.isClosed() || resets.isUnderWay()) {
            return CompletableFuture.completedFuture(false);
        }
        CompletableFuture<Void> stored = store();
        boolean putOff = stored.isDone();
        return stored.handle((done, error) -> error == null && !putOff);
    }

    private static CompletableFuture<Void> failed(String reason) {
        return CompletableFuture.failedFuture(new ManagedLedgerException(reason));
    }

    /** Stores the cursor's present position and properties. Refused during a reset, and if the cursor has moved meanwhile. */
    private CompletableFuture<Void> store() {
        Position position = cursor.getMarkDeletedPosition();
        if (!subscription.hasConsumers()) {
            return CompletableFuture.failedFuture(new UnattendedException());
        }
        CompletableFuture<Void> stored = new CompletableFuture<>();
        cursor.asyncMarkDelete(position, cursor.getProperties(), new MarkDeleteCallback() {
            @Override
            public void markDeleteComplete(Object ctx) {
                stored.complete(null);
            }

            @Override
            public void markDeleteFailed(ManagedLedgerException e, Object ctx) {
                stored.completeExceptionally(e);
            }
        }, null);
        // At the end of a reset Pulsar forgets the callbacks of pending stores.
        return stored.orTimeout(storeTimeoutMs, TimeUnit.MILLISECONDS);
    }
}
