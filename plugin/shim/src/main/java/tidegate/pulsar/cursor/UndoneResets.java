package tidegate.pulsar.cursor;

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
import tidegate.pulsar.gate.Seal;
import tidegate.pulsar.wire.Ownership;

/**
 * Resets a cursor once more that was loaded from the record of a reset.
 *
 * <p>Pulsar stores a reset together with the acknowledgements that it takes back, clears them when that is written, and stores
 * the cleared ones with the next write. A broker that ends before that one has the next owner load the record: its position is
 * the reset's, and the acknowledgements are those from before it, so that messages do not come which the user was told will come
 * again. The {@link Seal} tells: a reset empties the properties of the mark-delete position. Where
 * acknowledgements have been stored with a seal, as the {@link Ownership} knows, and it is gone, the last record is a reset's.
 *
 * <p>Invariants: a cursor is looked at once, before any tracker of this broker can put a seal there; it is reset to where it was
 * then, wherever consumers who came first have moved it; as long as that is not done no seal is put, and it is tried again.
 *
 * <p>The same is seen where the broker ended right after something else that takes the seal, before {@link StoredSeals} had stored
 * another: what was acknowledged beyond the cursor's position comes again then.
 */
public final class UndoneResets {
    private static final Logger LOG = LoggerFactory.getLogger(UndoneResets.class);
    private static final long FIRST_PAUSE_MS = 400;
    private static final long MAX_PAUSE_MS = 60_000;

    /** What a cursor was loaded as. */
    private enum Found { NEW, SEALED, UNSEALED, UNDONE }

    /** A cursor as it was loaded. */
    record Loaded(boolean wasSealed, boolean isSealed, boolean mayHaveAcknowledgements) {
        /** Whether acknowledgements may be there that a reset has taken back. */
        boolean isUndone() {
            return wasSealed && !isSealed && mayHaveAcknowledgements;
        }
    }

    private final IndividualAcks individual;
    private final StoredSeals seals;
    private final Executor background;
    private final Map<ManagedCursor, Found> found = Collections.synchronizedMap(new WeakHashMap<>());

    /** {@code seals} keeps those of the cursors that had a tracker before, but not while one is to be reset once more. */
    public UndoneResets(IndividualAcks individual, StoredSeals seals, Executor background) {
        this.individual = individual;
        this.seals = seals;
        this.background = background;
    }

    /** Whether the cursor had a seal when it was loaded, so that what is stored of it from now on has one, but for a reset. */
    public boolean wasLoadedSealed(ManagedCursor cursor) {
        return found.get(cursor) == Found.SEALED;
    }

    /** Whether the cursor is to be reset once more, and that is not done. */
    public boolean isPending(ManagedCursor cursor) {
        return found.get(cursor) == Found.UNDONE;
    }

    /** Whether the cursor was made by this broker and has not been stored: nobody has claimed it before. */
    public boolean isNew(ManagedCursor cursor) {
        return found.get(cursor) == Found.NEW;
    }

    /** The cursor has a persisted position. */
    public void noteStored(ManagedCursor cursor) {
        found.replace(cursor, Found.NEW, Found.UNSEALED);
    }

    /** A topic was loaded, and consumers may not be there yet. */
    public void onLoaded(PersistentSubscription subscription) {
        look(subscription.getCursor(), subscription::resetCursor, Runnable::run);
    }

    /** A tracker is about to be made, perhaps before {@link #onLoaded}. Called with the dispatcher's lock held. */
    public void beforeTracker(PersistentSubscription subscription) {
        look(subscription.getCursor(), subscription::resetCursor, background);
    }

    /** Looks at a cursor that nobody has looked at. {@code reset} keeps consumers out and is begun by {@code executor}. */
    void look(ManagedCursor cursor, Function<Position, CompletableFuture<Void>> reset, Executor executor) {
        Ownership ownership = CursorRecord.ownership(cursor);
        boolean wasSealed = ownership != null && ownership.sealed();
        boolean isSealed = CursorRecord.seal(cursor) != Seal.NONE;
        Position loaded = cursor.getMarkDeletedPosition();
        boolean isUndone = new Loaded(wasSealed, isSealed, individual.mayBeIn(cursor)).isUndone();
        boolean isNew = ownership == null && cursor.getPersistentMarkDeletedPosition() == null;
        Found as = isUndone ? Found.UNDONE : isSealed ? Found.SEALED : isNew ? Found.NEW : Found.UNSEALED;
        if (found.putIfAbsent(cursor, as) != null) {
            return;
        }
        if (isSealed && ownership != null && !wasSealed) {
            // Not with the first claim: a reset may come before, and a crash after it.
            begin(background, () -> new CursorProperties(cursor, new OfTheLoaded(reset), background).noteSealed());
        }
        if (isUndone) {
            LOG.warn("[{}] The broker before was ended amid a reset of the cursor: it is reset once more, to {}; messages that "
                    + "were acknowledged in between come again", cursor, loaded);
            execute(executor, new Undone(cursor, loaded, reset), 1);
        } else if (ownership != null) {
            seals.keep(cursor);
        }
    }

    /** It is reset now, or somebody else has done it. */
    private void done(ManagedCursor cursor) {
        found.put(cursor, Found.UNSEALED);
        seals.keep(cursor);
    }

    /** A subscription whose cursor was loaded, so that it has been stored. */
    private record OfTheLoaded(Function<Position, CompletableFuture<Void>> reset) implements RefusedResets.Subscription {
        @Override
        public CompletableFuture<Void> reset(Position position) {
            return reset.apply(position);
        }
    }

    /** A cursor whose reset is to be done again: its mark-delete position as it was loaded, and what resets it. */
    private record Undone(ManagedCursor cursor, Position loaded, Function<Position, CompletableFuture<Void>> reset) {
        CompletableFuture<Void> begin() {
            try {
                return reset.apply(loaded.getNext());
            } catch (RuntimeException e) {
                return CompletableFuture.failedFuture(e);
            }
        }
    }

    private void execute(Executor executor, Undone one, int tries) {
        begin(executor, () -> reset(one, tries));
    }

    private static void begin(Executor executor, Runnable task) {
        try {
            executor.execute(task);
        } catch (RejectedExecutionException e) {
            LOG.debug("The broker stops; what is left is the next owner's", e);
        }
    }

    private void reset(Undone one, int tries) {
        if (one.cursor().isClosed()) {
            return;
        }
        // Also before the first try, which may have had to wait: to go to where it was loaded would take that one back.
        if (isDone(one)) {
            done(one.cursor());
            return;
        }
        one.begin().whenComplete((done, error) -> {
            if (error == null) {
                done(one.cursor());
                return;
            }
            long pauseMs = Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS << Math.min(tries - 1, 10));
            LOG.warn("[{}] The cursor could not be reset, it is tried again in {} ms; until then messages that the former reset was "
                    + "to bring back may not come: {}", one.cursor(), pauseMs, error.getMessage());
            execute(CompletableFuture.delayedExecutor(pauseMs, TimeUnit.MILLISECONDS, background), one, tries + 1);
        });
    }

    /** Whether somebody else has reset it meanwhile. Where it has gone on, acknowledgements may have moved it. */
    private boolean isDone(Undone one) {
        int moved = one.cursor().getMarkDeletedPosition().compareTo(one.loaded());
        return moved < 0 || moved == 0 && !individual.mayBeIn(one.cursor());
    }
}
