package tidegate.pulsar;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.bookkeeper.mledger.AsyncCallbacks.MarkDeleteCallback;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.ManagedLedgerException.CursorAlreadyClosedException;
import org.apache.bookkeeper.mledger.Position;
import org.apache.pulsar.broker.service.BrokerServiceException.SubscriptionBusyException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Writes our properties into the metadata of one cursor.
 *
 * <p>Pulsar has one version for all of that, so a reset that meets such a write can be refused. It tells the user so, but 4.0
 * keeps the position of the refused reset as the latest that is to be stored, and stores that with the next acknowledgements or
 * when the topic is closed: a reset forwards is done then, behind the user's back, and the messages before it never come. So no
 * write is begun while a reset is seen to be under way, and after each the cursor is looked at: if a reset began meanwhile and
 * ends refused, the cursor is reset to where it is.
 *
 * <p>That a reset is under way, or was refused, is seen by the persisted position, which it takes away until it is stored. A new
 * cursor has none, so it is stored first, as its first acknowledgement would have done.
 */
final class CursorProperties {
    private static final Logger LOG = LoggerFactory.getLogger(CursorProperties.class);
    /** A consumer may wait for the reset's end, and what it acknowledges first would be stored. */
    private static final long BUSY_PAUSE_MS = 5;
    private static final long FIRST_PAUSE_MS = 100;
    private static final long MAX_PAUSE_MS = 60_000;

    /** Whose cursor it is. */
    interface Subscription {
        /** Whether this broker has made the cursor and has not stored it, so that it has no persisted position. */
        boolean isNew();

        /** The cursor has a persisted position. */
        void stored();

        /** Whether there are consumers. A reset has them leave before it touches the cursor. */
        boolean hasConsumers();

        /** Keeps consumers out from before it returns; fails as busy, and at once, while another reset is under way. */
        CompletableFuture<Void> reset(Position position);
    }

    private final ManagedCursor cursor;
    private final Subscription subscription;
    private final Executor background;
    private final AtomicBoolean undoing = new AtomicBoolean();
    /** Whether the cursor has had a persisted position, or has been loaded with one. */
    private volatile boolean wasPersisted;

    CursorProperties(ManagedCursor cursor, Subscription subscription, Executor background) {
        this.cursor = cursor;
        this.subscription = subscription;
        this.background = background;
        wasPersisted = subscription != null && !subscription.isNew();
    }

    /** Of a cursor that nobody resets, as that of a subscription that is being deleted. */
    static CursorProperties withoutReset(ManagedCursor cursor, Executor background) {
        return new CursorProperties(cursor, null, background);
    }

    ManagedCursor cursor() {
        return cursor;
    }

    /**
     * Puts a property, unless the cursor is closed or is being reset. Pulsar writes those of a closed one all the same: behind
     * the back of the next owner, which has read them, and whose own writes are refused from then on.
     */
    CompletableFuture<Void> put(String key, String value) {
        if (cursor.isClosed()) {
            return CompletableFuture.failedFuture(new CursorAlreadyClosedException("the cursor is closed"));
        }
        if (isBeingReset()) {
            // Perhaps it was refused, for somebody else's write: nothing else would end that.
            look();
            return failed("the cursor is being reset");
        }
        if (wasPersisted || subscription == null || !cursor.isDurable()) {
            return cursor.putCursorProperty(key, value).whenComplete((done, error) -> look());
        }
        // In the background: Pulsar may tell with a lock held.
        return store()
                .handleAsync((done, error) -> error == null && !isBeingReset() && wasPersisted ? put(key, value)
                        : failed("the cursor is not stored"), background)
                .thenCompose(answer -> answer);
    }

    private static CompletableFuture<Void> failed(String reason) {
        return CompletableFuture.failedFuture(new ManagedLedgerException(reason));
    }

    /** Whether a reset is under way, or was refused. Of a cursor that has never been stored this is not seen. */
    boolean isBeingReset() {
        boolean isPersisted = cursor.getPersistentMarkDeletedPosition() != null;
        if (isPersisted && !wasPersisted) {
            wasPersisted = true;
            if (subscription != null) {
                subscription.stored();
            }
        }
        return wasPersisted && !isPersisted;
    }

    /** Where it is and with what it has. Refused while a reset is under way, and where it has moved on meanwhile. */
    private CompletableFuture<Void> store() {
        Position position = cursor.getMarkDeletedPosition();
        if (!subscription.hasConsumers()) {
            return failed("a reset may be under way");
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
        return stored;
    }

    /** Has a reset undone that was refused, if there is one. */
    void look() {
        if (subscription != null && !cursor.isClosed() && isBeingReset() && undoing.compareAndSet(false, true)) {
            try {
                background.execute(() -> undo(FIRST_PAUSE_MS, null));
            } catch (RejectedExecutionException e) {
                LOG.debug("[{}] The broker stops", cursor, e);
            }
        }
    }

    /**
     * Where the reset is still under way this one is refused as busy, which changes nothing, and is tried again. {@code owed}: where
     * a user's reset had ended that this has undone; null if none.
     */
    private void undo(long pauseMs, Position owed) {
        Position position = owed == null ? cursor.getMarkDeletedPosition() : owed;
        if (cursor.isClosed() || owed == null && !isBeingReset()) {
            undoing.set(false);
            return;
        }
        CompletableFuture<Void> undone = reset(position);
        // If this one is done, nobody else's ends from here on. One that ended just before is put back.
        Position there = owed == null ? cursor.getMarkDeletedPosition() : owed;
        undone.whenComplete((done, error) -> {
            if (error == null && there.equals(position)) {
                undoing.set(false);
                LOG.warn("[{}] A reset was refused. So that it is not done later all the same, the cursor was reset to where it is, "
                        + "{}: what was acknowledged beyond comes again", cursor, position);
            } else if (error == null) {
                undo(FIRST_PAUSE_MS, there);
            } else {
                // Busy: another one is under way, which is newer than what is owed, or the topic closes.
                boolean isBusy = error instanceof SubscriptionBusyException;
                long nextMs = isBusy ? FIRST_PAUSE_MS : Math.min(MAX_PAUSE_MS, 2 * pauseMs);
                CompletableFuture.delayedExecutor(isBusy ? BUSY_PAUSE_MS : pauseMs, TimeUnit.MILLISECONDS, background)
                        .execute(() -> undo(nextMs, isBusy ? null : owed));
            }
        });
    }

    private CompletableFuture<Void> reset(Position position) {
        try {
            return subscription.reset(position.getNext());
        } catch (RuntimeException e) {
            return CompletableFuture.failedFuture(e);
        }
    }
}
