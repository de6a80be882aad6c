package tidegate.pulsar;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.apache.bookkeeper.mledger.AsyncCallbacks.MarkDeleteCallback;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.ManagedLedgerException.CursorAlreadyClosedException;
import org.apache.bookkeeper.mledger.Position;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Writes our properties into the metadata of one cursor.
 *
 * <p>Pulsar has one version for all of that, so a reset that meets such a write can be refused. It tells the user so, but keeps
 * the position of the refused reset as the latest that is to be stored, and stores that with the next acknowledgements or when
 * the topic is closed: a reset forwards is done then, behind the user's back, and the messages before it never come. So nothing
 * is written while a reset is under way, and after each write the cursor is looked at: if a reset began meanwhile and ends
 * refused, the cursor is reset to where it is.
 *
 * <p>That a reset is under way, or was refused, is seen by the persisted position, which it takes away until it is stored. A new
 * cursor has none, so it is stored first, as its first acknowledgement would have done.
 */
final class CursorProperties {
    private static final Logger LOG = LoggerFactory.getLogger(CursorProperties.class);
    /** Shorter than it takes consumers to come back after a reset: what they acknowledge first would be stored. */
    private static final long FIRST_PAUSE_MS = 20;
    private static final long MAX_PAUSE_MS = 1_000;

    private final ManagedCursor cursor;
    private final Function<Position, CompletableFuture<Void>> reset;
    private final Executor background;
    /** Whether the cursor has had a persisted position, or has been loaded with one. */
    private volatile boolean wasPersisted;

    /**
     * {@code isNew}: whether the cursor was made by this broker, so that it has no persisted position until it is stored;
     * {@code reset} keeps consumers out and fails at once while another reset is under way.
     */
    CursorProperties(ManagedCursor cursor, boolean isNew, Function<Position, CompletableFuture<Void>> reset, Executor background) {
        this.cursor = cursor;
        this.reset = reset;
        this.background = background;
        wasPersisted = !isNew || cursor.getPersistentMarkDeletedPosition() != null;
    }

    /** Of a cursor that nobody resets, as that of a subscription that is being deleted. */
    static CursorProperties withoutReset(ManagedCursor cursor, Executor background) {
        CompletableFuture<Void> refused = CompletableFuture.failedFuture(new ManagedLedgerException("nobody resets it"));
        return new CursorProperties(cursor, true, position -> refused, background);
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
            return failedFuture("the cursor is being reset");
        }
        if (wasPersisted || !cursor.isDurable()) {
            return cursor.putCursorProperty(key, value).whenComplete((done, error) -> look(FIRST_PAUSE_MS));
        }
        return store().thenCompose(done -> wasPersisted ? put(key, value) : failedFuture("the cursor is not stored"));
    }

    private static CompletableFuture<Void> failedFuture(String reason) {
        return CompletableFuture.failedFuture(new ManagedLedgerException(reason));
    }

    /** Where it is and with what it has. Refused while a reset is under way, and where it has moved on meanwhile. */
    private CompletableFuture<Void> store() {
        CompletableFuture<Void> stored = new CompletableFuture<>();
        cursor.asyncMarkDelete(cursor.getMarkDeletedPosition(), cursor.getProperties(), new MarkDeleteCallback() {
            @Override
            public void markDeleteComplete(Object ctx) {
                isBeingReset();
                stored.complete(null);
            }

            @Override
            public void markDeleteFailed(ManagedLedgerException e, Object ctx) {
                stored.completeExceptionally(e);
            }
        }, null);
        return stored;
    }

    private boolean isBeingReset() {
        boolean isPersisted = cursor.getPersistentMarkDeletedPosition() != null;
        wasPersisted |= isPersisted;
        return wasPersisted && !isPersisted;
    }

    private void look(long pauseMs) {
        if (!cursor.isClosed() && isBeingReset()) {
            try {
                background.execute(() -> undo(pauseMs));
            } catch (RejectedExecutionException e) {
                LOG.debug("[{}] The broker stops", cursor, e);
            }
        }
    }

    /** Where the reset is still under way this one is refused, which changes nothing, and is tried again. */
    private void undo(long pauseMs) {
        Position position = cursor.getMarkDeletedPosition();
        if (cursor.isClosed() || !isBeingReset()) {
            return;
        }
        CompletableFuture<Void> undone;
        try {
            undone = reset.apply(position.getNext());
        } catch (RuntimeException e) {
            undone = CompletableFuture.failedFuture(e);
        }
        undone.whenComplete((done, error) -> {
            if (error == null) {
                LOG.warn("[{}] A reset was refused, as it met a write of the cursor's metadata. So that it is not done later all the "
                        + "same, the cursor was reset to where it is, {}: what was acknowledged beyond comes again", cursor, position);
                return;
            }
            CompletableFuture.delayedExecutor(pauseMs, TimeUnit.MILLISECONDS)
                    .execute(() -> look(Math.min(MAX_PAUSE_MS, 2 * pauseMs)));
        });
    }
}
