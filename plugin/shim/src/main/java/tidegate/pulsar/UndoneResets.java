package tidegate.pulsar;

import java.util.Collections;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.pulsar.broker.service.BrokerServiceException.SubscriptionBusyException;
import org.apache.pulsar.broker.service.persistent.PersistentSubscription;
import org.apache.pulsar.common.util.FutureUtil;
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
 * <p>The same is seen where messages were acknowledged after a reset, or were skipped, and no tracker has put a seal there since:
 * what was acknowledged beyond the cursor's position comes again then.
 */
final class UndoneResets {
    private static final Logger LOG = LoggerFactory.getLogger(UndoneResets.class);
    private static final int MAX_TRIES = 5;
    private static final long FIRST_PAUSE_MS = 200;

    /** A cursor as it was loaded. */
    record Loaded(boolean wasSealed, boolean isSealed, boolean hasBacklog, boolean mayHaveAcknowledgements) {
        /** Whether acknowledgements may be there that a reset has taken back. */
        boolean isUndone() {
            return wasSealed && !isSealed && hasBacklog && mayHaveAcknowledgements;
        }
    }

    private final boolean batchIndexes;
    private final Executor background;
    /** The cursors that had a seal when they were loaded. */
    private final Set<ManagedCursor> sealed = Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap<>()));

    /** {@code batchIndexes}: whether single messages of a batch are acknowledged, which a cursor does not tell of. */
    UndoneResets(boolean batchIndexes, Executor background) {
        this.batchIndexes = batchIndexes;
        this.background = background;
    }

    /** Whether the cursor had a seal when it was loaded, so that what is stored of it from now on has one, but for a reset. */
    boolean wasLoadedSealed(ManagedCursor cursor) {
        return sealed.contains(cursor);
    }

    /** Looks at a cursor that was just loaded; before its consumers are there, who would have a seal put. */
    void onLoaded(PersistentSubscription subscription) {
        ManagedCursor cursor = subscription.getCursor();
        Ownership ownership = CursorHost.ownership(cursor);
        if (ownership == null) {
            return;
        }
        boolean isSealed = CursorHost.seal(cursor) != Seal.NONE;
        if (isSealed) {
            sealed.add(cursor);
        }
        Loaded loaded = new Loaded(ownership.sealed(), isSealed, cursor.getNumberOfEntriesInBacklog(false) > 0,
                batchIndexes || cursor.getTotalNonContiguousDeletedMessagesRange() > 0);
        if (loaded.isUndone()) {
            LOG.warn("[{}] [{}] The broker before was ended amid a reset of the cursor: it is reset once more, to {}; messages that "
                    + "were acknowledged in between come again", subscription.getTopicName(), subscription.getName(),
                    cursor.getMarkDeletedPosition());
            reset(subscription, 1);
        }
    }

    private void reset(PersistentSubscription subscription, int tries) {
        subscription.resetCursor(subscription.getCursor().getMarkDeletedPosition().getNext())
                .whenComplete((done, error) -> onReset(subscription, tries, error));
    }

    private void onReset(PersistentSubscription subscription, int tries, Throwable error) {
        // Busy: somebody else resets it just now, or closes or deletes it.
        if (error == null || FutureUtil.unwrapCompletionException(error) instanceof SubscriptionBusyException) {
            return;
        }
        if (tries == MAX_TRIES) {
            LOG.error("[{}] [{}] The cursor could not be reset: messages that the former reset was to bring back may not come; "
                    + "reset it by hand", subscription.getTopicName(), subscription.getName(), error);
            return;
        }
        LOG.warn("[{}] [{}] The cursor could not be reset, it is tried again: {}", subscription.getTopicName(),
                subscription.getName(), error.getMessage());
        CompletableFuture.delayedExecutor(FIRST_PAUSE_MS << tries, TimeUnit.MILLISECONDS, background).execute(() -> {
            if (!subscription.getCursor().isClosed()) {
                reset(subscription, tries + 1);
            }
        });
    }
}
