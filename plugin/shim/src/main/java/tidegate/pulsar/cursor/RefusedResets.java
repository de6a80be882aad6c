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
 * Undoes resets of one cursor that Pulsar has refused.
 *
 * <p>Pulsar tells the user that such a reset is not done, but 4.0 keeps its position as the latest to store, and stores it with
 * the next acknowledgements or when the topic is closed: then a reset forwards is done behind the user's back, and the messages
 * before it never come. So the cursor is reset to where it is.
 *
 * <p>A reset that is under way, or was refused, shows in the persisted position, which is missing until the reset is stored. With
 * a cursor that has never been stored it does not show.
 */
public final class RefusedResets {
    private static final Logger LOG = LoggerFactory.getLogger(RefusedResets.class);
    /** A consumer may wait for the reset's end, and its first acknowledgements would be stored. */
    private static final long BUSY_PAUSE_MS = 5;
    private static final long FIRST_PAUSE_MS = 100;
    private static final long MAX_PAUSE_MS = 60_000;

    /** The subscription of the cursor. */
    public interface Subscription {
        /** Nobody's, as that of a subscription that is being deleted: nothing is undone, and nothing is stored. */
        Subscription NONE = new Subscription() { };

        /** True if this broker has made the cursor and has not stored it, so that it has no persisted position. */
        default boolean isNew() {
            return false;
        }

        /** The cursor has a persisted position. */
        default void stored() {
            // For a loaded cursor this is known.
        }

        /** True if there are consumers. A reset has them leave before it touches the cursor. */
        default boolean hasConsumers() {
            return false;
        }

        /** Keeps consumers out from before it returns; fails as busy, and at once, while another reset is under way. */
        default CompletableFuture<Void> reset(Position position) {
            return CompletableFuture.failedFuture(new IllegalStateException("nobody resets it"));
        }
    }

    private final ManagedCursor cursor;
    private final Subscription subscription;
    private final Executor background;
    private final AtomicBoolean undoing = new AtomicBoolean();
    /** True if the cursor has had a persisted position, or has been loaded with one. */
    private volatile boolean wasPersisted;

    RefusedResets(ManagedCursor cursor, Subscription subscription, Executor background) {
        this.cursor = cursor;
        this.subscription = subscription;
        this.background = background;
        wasPersisted = !subscription.isNew() && subscription != Subscription.NONE;
    }

    /** True if a reset of the cursor would be seen. */
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

    /** Undoes a refused reset, if there is one. */
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
     * While the reset is still under way, Pulsar refuses this one as busy, which changes nothing, and it is tried again.
     * {@code owed}: where a user's reset had ended that this one has undone; null if there is none.
     */
    private void undo(long pauseMs, Position owed) {
        Position position = owed == null ? cursor.getMarkDeletedPosition() : owed;
        if (cursor.isClosed() || owed == null && !isUnderWay()) {
            undoing.set(false);
            return;
        }
        CompletableFuture<Void> undone = reset(position);
        // If this one is done, nobody else's ends from here on. The position of one that ended just before is restored.
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
