package tidegate.pulsar.cursor;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.Position;
import org.apache.pulsar.broker.service.BrokerServiceException.SubscriptionBusyException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Undoes resets of one cursor that Pulsar has refused: 4.0 keeps such a reset's position, and stores it with the next
 * acknowledgements or when the topic closes, so messages before it would never come. The cursor is reset to its own
 * position.
 *
 * <p>A reset under way or refused shows as a missing persisted position, until the reset is stored. A cursor never stored
 * does not show it.
 */
public final class RefusedResets {
    private static final Logger LOG = LoggerFactory.getLogger(RefusedResets.class);
    /** A consumer may wait for the reset's end. */
    private static final long BUSY_PAUSE_MS = 5;
    private static final long FIRST_PAUSE_MS = 100;
    private static final long MAX_PAUSE_MS = 60_000;

    public interface Subscription {
        /** A subscription with a cursor being deleted: nothing is undone or stored. */
        Subscription NONE = new Subscription() { };

        /** True if this broker has made the cursor and not stored it: it has no persisted position. */
        default boolean isNew() {
            return false;
        }

        /** Notes that the cursor has a persisted position. */
        default void stored() {
            // A loaded cursor is known to have one.
        }

        /** True if there are consumers. A reset disconnects them before it touches the cursor. */
        default boolean hasConsumers() {
            return false;
        }

        /** Resets the cursor. Keeps consumers out from before it returns; fails at once as busy during another reset. */
        default CompletableFuture<Void> reset(Position position) {
            return CompletableFuture.failedFuture(new IllegalStateException("nobody resets it"));
        }
    }

    private final ManagedCursor cursor;
    private final Subscription subscription;
    private final Executor background;
    private final AtomicBoolean undoing = new AtomicBoolean();
    /** True if the cursor has had a persisted position, or was loaded with one. */
    private volatile boolean wasPersisted;

    RefusedResets(ManagedCursor cursor, Subscription subscription, Executor background) {
        this.cursor = cursor;
        this.subscription = subscription;
        this.background = background;
        wasPersisted = !subscription.isNew() && subscription != Subscription.NONE;
    }

    boolean wouldShow() {
        return isUnderWay() || wasPersisted;
    }

    /** True if a reset is under way, or was refused. */
    public boolean isUnderWay() {
        boolean isPersisted = cursor.getPersistentMarkDeletedPosition() != null;
        if (isPersisted && !wasPersisted) {
            wasPersisted = true;
            subscription.stored();
        }
        return wasPersisted && !isPersisted;
    }

    /** Undoes a refused reset, if any. */
    public void look() {
        if (subscription != Subscription.NONE && !cursor.isClosed() && isUnderWay() && undoing.compareAndSet(false, true)) {
            try {
                background.execute(() -> undo(FIRST_PAUSE_MS, null));
            } catch (RejectedExecutionException e) {
                LOG.debug("[{}] The broker stops", cursor, e);
            }
        }
    }

    /**
     * Undoes the reset. While it is still under way, Pulsar refuses this one as busy, and the attempt is repeated.
     * {@code owed}: the end of a user's reset undone by this one; null without one.
     */
    private void undo(long pauseMs, Position owed) {
        Position position = owed == null ? cursor.getMarkDeletedPosition() : owed;
        if (cursor.isClosed() || owed == null && !isUnderWay()) {
            undoing.set(false);
            return;
        }
        CompletableFuture<Void> undone = reset(position);
        // No other can end any more. Restores the position of one that ended just before.
        Position there = owed == null ? cursor.getMarkDeletedPosition() : owed;
        undone.whenComplete((done, error) -> {
            if (error == null && there.equals(position)) {
                undoing.set(false);
                LOG.warn("[{}] A refused reset could still happen later, so the cursor was reset to its own position, {}: messages "
                        + "acknowledged beyond it come again", cursor, position);
            } else if (error == null) {
                undo(FIRST_PAUSE_MS, there);
            } else {
                // Busy: another reset is under way, newer than the owed position, or the topic closes.
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
