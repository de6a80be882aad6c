package tidegate.pulsar.cursor;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.bookkeeper.mledger.AsyncCallbacks.MarkDeleteCallback;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.ManagedLedgerException.CursorAlreadyClosedException;
import org.apache.bookkeeper.mledger.Position;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.wire.Ownership;

/**
 * Writes our properties into one cursor's metadata.
 *
 * <p>All metadata of a cursor share one version, so our write can make Pulsar refuse a concurrent reset ({@link
 * RefusedResets}): no write begins while a reset shows, and a look at the cursor follows each write. A new cursor shows no
 * reset, so it is stored first.
 */
public final class CursorProperties {
    private static final Logger LOG = LoggerFactory.getLogger(CursorProperties.class);
    private static final long ANSWER_TIMEOUT_MS = 60_000;

    /** Without consumers a reset may not show: try again with one. */
    public static final class UnattendedException extends ManagedLedgerException {
        private static final long serialVersionUID = 1;

        UnattendedException() {
            super("a reset may be under way");
        }
    }

    public static final class NotTriedException extends ManagedLedgerException {
        private static final long serialVersionUID = 1;

        NotTriedException(String message) {
            super(message);
        }
    }

    private final ManagedCursor cursor;
    private final RefusedResets.Subscription subscription;
    private final Executor background;
    private final RefusedResets resets;
    private final StoredDeletions storedDeletions;
    private final long answerTimeoutMs;

    public CursorProperties(ManagedCursor cursor, RefusedResets.Subscription subscription, Executor background) {
        this(cursor, subscription, background, ANSWER_TIMEOUT_MS);
    }

    public CursorProperties(ManagedCursor cursor, RefusedResets.Subscription subscription, Executor background, long answerTimeoutMs) {
        this.answerTimeoutMs = answerTimeoutMs;
        this.cursor = cursor;
        this.subscription = subscription;
        this.background = background;
        resets = new RefusedResets(cursor, subscription, background);
        storedDeletions = new StoredDeletions(cursor, resets, () -> LedgerThread.of(cursor));
    }

    /** For a cursor that nobody resets, as of a subscription being deleted. */
    public static CursorProperties withoutReset(ManagedCursor cursor) {
        return new CursorProperties(cursor, RefusedResets.Subscription.NONE, Runnable::run);
    }

    public ManagedCursor cursor() {
        return cursor;
    }

    public RefusedResets resets() {
        return resets;
    }

    /** Deletes positions in the cursor, until its record has them deleted. */
    public StoredDeletions storedDeletions() {
        return storedDeletions;
    }

    /**
     * Puts a property at its {@link PropertyWrites turn}, unless the cursor is closed or being reset then. Pulsar would
     * write to a closed cursor, too, and refuse all of the next owner's writes.
     */
    public CompletableFuture<Void> put(String key, String value) {
        return PropertyWrites.inTurn(cursor, background, () -> putNow(key, value));
    }

    /** As {@link #put}, if the condition holds at its turn; otherwise completes with false. */
    public CompletableFuture<Boolean> putIf(BooleanSupplier condition, String key, String value) {
        return PropertyWrites.inTurn(cursor, background, () -> condition.getAsBoolean()
                ? putNow(key, value).thenApply(done -> true) : CompletableFuture.completedFuture(false));
    }

    private CompletableFuture<Void> putNow(String key, String value) {
        if (cursor.isClosed()) {
            return CompletableFuture.failedFuture(new CursorAlreadyClosedException("the cursor is closed"));
        }
        if (resets.isUnderWay()) {
            // Our write may have made Pulsar refuse a reset, and nothing else would end that.
            resets.look();
            return failed("the cursor is being reset");
        }
        if (needsNoStore()) {
            // Callers try again after a failure; a lost answer would keep them waiting for ever.
            return cursor.putCursorProperty(key, value).copy().orTimeout(answerTimeoutMs, TimeUnit.MILLISECONDS)
                    .whenComplete((done, error) -> resets.look());
        }
        // In the background, because Pulsar may call back with a lock held.
        return store()
                .handleAsync((done, error) -> error == null && resets.wouldShow() ? putNow(key, value)
                        : error instanceof UnattendedException ? CompletableFuture.<Void>failedFuture(error)
                        : failed("the cursor is not stored"), background)
                .thenCompose(answer -> answer);
    }

    /** True if {@link #put} is worth trying: a new cursor must be stored first, while a consumer is connected. */
    public boolean mayPut() {
        return needsNoStore() || subscription.hasConsumers();
    }

    private boolean needsNoStore() {
        return resets.wouldShow() || subscription == RefusedResets.Subscription.NONE || !cursor.isDurable();
    }

    private static CompletableFuture<Void> failed(String reason) {
        return CompletableFuture.failedFuture(new NotTriedException(reason));
    }

    /** Stores the cursor's present position and properties. Fails during a reset, and if the cursor has moved meanwhile. */
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
        // At a reset's end Pulsar forgets the callbacks of pending stores.
        return stored.orTimeout(answerTimeoutMs, TimeUnit.MILLISECONDS);
    }

    /** Records in the ownership, if present, that acknowledgements are stored with a seal. */
    void noteSealed() {
        PropertyWrites.inTurn(cursor, background, () -> {
            Ownership there = CursorRecord.ownership(cursor);
            return there == null || there.sealed() ? CompletableFuture.<Void>completedFuture(null)
                    : putNow(CursorRecord.OWNERSHIP, there.withSeal().toString());
        }).exceptionally(error -> {
            LOG.debug("[{}] The next claim records the seal", cursor, error);
            return null;
        });
    }
}
