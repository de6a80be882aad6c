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
 * Resets a cursor once more if it was loaded from a reset's record: Pulsar stores a reset with the acknowledgements that it
 * takes back, and clears these only with the next write. If a broker ends in between, the next owner has both, and those
 * messages stay away. A missing {@link Seal} shows this, if the {@link Ownership} says that acknowledgements were stored
 * with one. Why: docs/decisions/acknowledgement-seal.md.
 *
 * <p>Example: 5:1 to 5:9 are acknowledged under a seal, a user resets to 5:0, and the broker dies. The next owner loads
 * mark-delete 5:0, 5:1 to 5:9 deleted, no seal: it resets to 5:0 once more, and the messages come.
 *
 * <p>Invariants: each cursor is checked once, before any tracker of this broker can put a seal there. It is reset to its
 * position at that time, even if early consumers have moved it. Until then no seal is put, and failed resets are repeated.
 * Then {@link StoredSeals} stores it once more, because this reset's record is like the former.
 *
 * <p>An operation that removed the seal just before a broker ended looks the same: messages acknowledged beyond the cursor's
 * position come again.
 */
public final class UndoneResets {
    private static final Logger LOG = LoggerFactory.getLogger(UndoneResets.class);
    private static final long FIRST_PAUSE_MS = 400;
    private static final long MAX_PAUSE_MS = 60_000;

    /** The state of a loaded cursor. */
    private enum Found { NEW, SEALED, UNSEALED, UNDONE }

    record Loaded(boolean wasSealed, boolean isSealed, boolean mayHaveAcknowledgements) {
        /** True if the cursor may have acknowledgements taken back by a reset. */
        boolean isUndone() {
            return wasSealed && !isSealed && mayHaveAcknowledgements;
        }
    }

    private final IndividualAcks individual;
    private final StoredSeals seals;
    private final Executor background;
    private final Map<ManagedCursor, Found> found = Collections.synchronizedMap(new WeakHashMap<>());

    /** {@code seals} keeps the seals of cursors with an earlier tracker, except one still to be reset. */
    public UndoneResets(IndividualAcks individual, StoredSeals seals, Executor background) {
        this.individual = individual;
        this.seals = seals;
        this.background = background;
    }

    /** True if the cursor had a seal when loaded, so that only a reset's later record lacks one. */
    public boolean wasLoadedSealed(ManagedCursor cursor) {
        return found.get(cursor) == Found.SEALED;
    }

    public boolean isPending(ManagedCursor cursor) {
        return found.get(cursor) == Found.UNDONE;
    }

    /** True if this broker made the cursor and has not stored it: nobody has claimed it before. */
    public boolean isNew(ManagedCursor cursor) {
        return found.get(cursor) == Found.NEW;
    }

    public void noteStored(ManagedCursor cursor) {
        found.replace(cursor, Found.NEW, Found.UNSEALED);
    }

    /** Checks a loaded topic's cursor, perhaps before its consumers come. */
    public void onLoaded(PersistentSubscription subscription) {
        look(subscription.getCursor(), subscription::resetCursor, Runnable::run);
    }

    /** Checks the cursor before a tracker is made, perhaps before {@link #onLoaded}. Needs the dispatcher's lock. */
    public void beforeTracker(PersistentSubscription subscription) {
        look(subscription.getCursor(), subscription::resetCursor, background);
    }

    /** Checks an unchecked cursor. {@code executor} runs {@code reset}, which keeps consumers out. */
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
            LOG.warn("[{}] The former broker ended during a reset of the cursor: resetting it again, to {}; messages acknowledged "
                    + "in between come again", cursor, loaded);
            execute(executor, new Undone(cursor, loaded, reset), 1);
        } else if (ownership != null) {
            seals.keep(cursor);
        }
    }

    /** Notes a reset of the cursor, by this object or another. */
    private void done(ManagedCursor cursor) {
        seals.keepReset(cursor);
        found.put(cursor, Found.UNSEALED);
    }

    /** A subscription with a loaded, and so stored, cursor. */
    private record OfTheLoaded(Function<Position, CompletableFuture<Void>> reset) implements RefusedResets.Subscription {
        @Override
        public CompletableFuture<Void> reset(Position position) {
            return reset.apply(position);
        }
    }

    /** A cursor to reset again: its mark-delete position when loaded, and its reset function. */
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
            LOG.debug("The broker stops; the next owner resets the rest", e);
        }
    }

    private void reset(Undone one, int tries) {
        if (one.cursor().isClosed()) {
            return;
        }
        // Also before the first try, which may have waited: a reset to the loaded position would undo a newer one.
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
            LOG.warn("[{}] The cursor could not be reset; trying again in {} ms. Until then messages that the former reset was to "
                    + "bring back may not come: {}", one.cursor(), pauseMs, error.getMessage());
            execute(CompletableFuture.delayedExecutor(pauseMs, TimeUnit.MILLISECONDS, background), one, tries + 1);
        });
    }

    /** True if another reset has come meanwhile. Forward moves may come from acknowledgements. */
    private boolean isDone(Undone one) {
        int moved = one.cursor().getMarkDeletedPosition().compareTo(one.loaded());
        return moved < 0 || moved == 0 && !individual.mayBeIn(one.cursor());
    }
}
