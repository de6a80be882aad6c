package tidegate.pulsar;

import java.util.Collections;
import java.util.Map;
import java.util.WeakHashMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.Position;
import org.apache.pulsar.broker.service.persistent.PersistentSubscription;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Resets a cursor once more that was loaded from the record of a reset.
 *
 * <p>Pulsar stores a reset together with the acknowledgements that it takes back, clears them when that is written, and stores
 * the cleared ones with the next write. A broker that ends before that one has the next owner load the record: its position is
 * the reset's, and the acknowledgements are those from before it, so that messages do not come which the user was told will come
 * again. The {@link Seal} tells: a reset empties the properties of the mark-delete position. Where
 * acknowledgements have been stored with a seal, as the {@link Ownership} knows, and it is gone, the last record is a reset's.
 *
 * <p>Invariants: a cursor is looked at once, before any tracker of this broker can put a seal there; as long as its reset is not
 * done none is put, so that whoever loads it next sees the same.
 *
 * <p>The same is seen where messages were acknowledged after a reset, or were skipped, and no tracker has put a seal there since:
 * what was acknowledged beyond the cursor's position comes again then.
 */
final class UndoneResets {
    private static final Logger LOG = LoggerFactory.getLogger(UndoneResets.class);
    private static final int MAX_TRIES = 5;
    private static final long FIRST_PAUSE_MS = 200;

    /** What a cursor was loaded as. */
    private enum Found { SEALED, UNSEALED, UNDONE }

    /** A cursor as it was loaded. */
    record Loaded(boolean wasSealed, boolean isSealed, boolean mayHaveAcknowledgements) {
        /** Whether acknowledgements may be there that a reset has taken back. */
        boolean isUndone() {
            return wasSealed && !isSealed && mayHaveAcknowledgements;
        }
    }

    private final boolean batchIndexes;
    private final Executor background;
    private final Map<ManagedCursor, Found> found = Collections.synchronizedMap(new WeakHashMap<>());

    /** {@code batchIndexes}: whether single messages of a batch are acknowledged, which a cursor does not tell of. */
    UndoneResets(boolean batchIndexes, Executor background) {
        this.batchIndexes = batchIndexes;
        this.background = background;
    }

    /** Whether the cursor had a seal when it was loaded, so that what is stored of it from now on has one, but for a reset. */
    boolean wasLoadedSealed(ManagedCursor cursor) {
        return found.get(cursor) == Found.SEALED;
    }

    /** Whether the cursor is to be reset once more, and that is not done. */
    boolean isPending(ManagedCursor cursor) {
        return found.get(cursor) == Found.UNDONE;
    }

    /** A topic was loaded, and consumers may not be there yet. */
    void onLoaded(PersistentSubscription subscription) {
        look(subscription.getCursor(), subscription::resetCursor, Runnable::run);
    }

    /** A tracker is about to be made, perhaps before {@link #onLoaded}. Called with the dispatcher's lock held. */
    void beforeTracker(PersistentSubscription subscription) {
        look(subscription.getCursor(), subscription::resetCursor, background);
    }

    /** Looks at a cursor that nobody has looked at. {@code reset} keeps consumers out and is begun by {@code executor}. */
    void look(ManagedCursor cursor, Function<Position, CompletableFuture<Void>> reset, Executor executor) {
        Ownership ownership = CursorHost.ownership(cursor);
        boolean wasSealed = ownership != null && ownership.sealed();
        boolean isSealed = CursorHost.seal(cursor) != Seal.NONE;
        boolean isUndone = new Loaded(wasSealed, isSealed, mayHaveAcknowledgements(cursor)).isUndone();
        if (found.putIfAbsent(cursor, isUndone ? Found.UNDONE : isSealed ? Found.SEALED : Found.UNSEALED) == null && isUndone) {
            LOG.warn("[{}] The broker before was ended amid a reset of the cursor: it is reset once more, to {}; messages that "
                    + "were acknowledged in between come again", cursor, cursor.getMarkDeletedPosition());
            try {
                executor.execute(() -> reset(cursor, reset, 1));
            } catch (RejectedExecutionException e) {
                LOG.debug("[{}] The broker stops; the next one resets the cursor", cursor, e);
            }
        }
    }

    /** Not by the backlog alone: where all beyond the position was acknowledged it is 0, and all of that is to come again. */
    private boolean mayHaveAcknowledgements(ManagedCursor cursor) {
        return cursor.getTotalNonContiguousDeletedMessagesRange() > 0
                || batchIndexes && cursor.getNumberOfEntriesInBacklog(false) > 0;
    }

    private void reset(ManagedCursor cursor, Function<Position, CompletableFuture<Void>> reset, int tries) {
        reset.apply(cursor.getMarkDeletedPosition().getNext()).whenComplete((done, error) -> {
            if (error == null) {
                found.put(cursor, Found.UNSEALED);
            } else if (tries == MAX_TRIES) {
                LOG.error("[{}] The cursor could not be reset: messages that the former reset was to bring back may not come "
                        + "before the topic is loaded again; reset it by hand", cursor, error);
            } else {
                LOG.warn("[{}] The cursor could not be reset, it is tried again: {}", cursor, error.getMessage());
                CompletableFuture.delayedExecutor(FIRST_PAUSE_MS << tries, TimeUnit.MILLISECONDS, background)
                        .execute(() -> again(cursor, reset, tries + 1));
            }
        });
    }

    /** Somebody else may have reset it meanwhile: the first try is refused then as well. */
    private void again(ManagedCursor cursor, Function<Position, CompletableFuture<Void>> reset, int tries) {
        if (cursor.isClosed()) {
            return;
        }
        if (CursorHost.seal(cursor) == Seal.NONE && mayHaveAcknowledgements(cursor)) {
            reset(cursor, reset, tries);
        } else {
            found.put(cursor, Found.UNSEALED);
        }
    }
}
