package tidegate.pulsar.cursor;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.Supplier;
import org.apache.bookkeeper.mledger.AsyncCallbacks.DeleteCallback;
import org.apache.bookkeeper.mledger.AsyncCallbacks.MarkDeleteCallback;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.PositionFactory;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.gate.TrackerContext.Stored;

/**
 * Deletes positions in one cursor and reports when the cursor's record has them. Pulsar's callbacks do not: they come at
 * once while its limit postpones the write ({@link MarkDeleteLimiter}), during a write of a later position, and for
 * deletions without room in the record ({@link RecordCapacity}). So a write of the cursor follows each request, and then a
 * check of the position persisted since.
 *
 * <p>Deletions and writes are requested on the {@link LedgerThread}, where no reset begins meanwhile. Requests during a
 * write share the next one. Invariant: one write at a time, and each request gets an answer.
 */
public final class StoredDeletions {
    private static final Logger LOG = LoggerFactory.getLogger(StoredDeletions.class);
    /** At a reset's end Pulsar forgets the callbacks of pending writes. */
    private static final long LOST_AFTER_MS = 5_000;
    /** Spaces writes of large records: a pause of 1 ms for each 100 acknowledgements in the record. */
    private static final long PER_PAUSE_MS = 100;
    private static final long PAUSE_MAX_MS = 100;

    private record Request(List<tidegate.pulsar.wire.Position> positions, long seal, Consumer<Stored> done) {}

    private final ManagedCursor cursor;
    private final RefusedResets resets;
    private final Supplier<Executor> thread;
    private final long lostAfterMs;
    @GuardedBy("this")
    private List<Request> waiting = new ArrayList<>();
    @GuardedBy("this")
    private boolean writing;
    /** The room used by the last record. */
    private volatile long lastUsed;

    /** {@code thread}: an executor on which no reset of the cursor begins meanwhile; null without one. */
    StoredDeletions(ManagedCursor cursor, RefusedResets resets, Supplier<Executor> thread) {
        this(cursor, resets, thread, LOST_AFTER_MS);
    }

    StoredDeletions(ManagedCursor cursor, RefusedResets resets, Supplier<Executor> thread, long lostAfterMs) {
        this.cursor = cursor;
        this.resets = resets;
        this.thread = thread;
        this.lostAfterMs = lostAfterMs;
    }

    /** As {@link tidegate.pulsar.gate.TrackerContext#deleteAndStore}. */
    public void store(List<tidegate.pulsar.wire.Position> positions, long seal, Consumer<Stored> done) {
        synchronized (this) {
            waiting.add(new Request(positions, seal, done));
            if (writing) {
                return;
            }
            writing = true;
        }
        begin(0);
    }

    private void begin(long pauseMs) {
        Executor on = thread.get();
        try {
            if (on == null) {
                end(take(), Stored.NOT_NOW);
            } else if (pauseMs > 0) {
                CompletableFuture.delayedExecutor(pauseMs, TimeUnit.MILLISECONDS, on).execute(this::write);
            } else {
                on.execute(this::write);
            }
        } catch (RejectedExecutionException e) {
            LOG.debug("[{}] The broker stops", cursor, e);
            end(take(), Stored.NOT_NOW);
        }
    }

    private synchronized List<Request> take() {
        List<Request> taken = waiting;
        waiting = new ArrayList<>();
        return taken;
    }

    private void write() {
        List<Request> requests = take();
        CompletableFuture<Stored> written = new CompletableFuture<>();
        written.completeOnTimeout(Stored.NOT_NOW, lostAfterMs, TimeUnit.MILLISECONDS)
                .whenComplete((stored, error) -> end(requests, error == null ? stored : Stored.NOT_NOW));
        try {
            write(requests, written);
        } catch (RuntimeException e) {
            LOG.warn("[{}] The cursor could not be stored", cursor, e);
            written.complete(Stored.NOT_NOW);
        }
    }

    /** Answers, and continues with the requests that have come since. */
    private void end(List<Request> requests, Stored stored) {
        for (Request each : requests) {
            each.done().accept(stored == Stored.YES && CursorRecord.seal(cursor) != each.seal() ? Stored.NOT_NOW : stored);
        }
        synchronized (this) {
            writing = !waiting.isEmpty();
            if (!writing) {
                return;
            }
        }
        begin(Math.min(PAUSE_MAX_MS, lastUsed / PER_PAUSE_MS));
    }

    private void write(List<Request> requests, CompletableFuture<Stored> written) {
        if (cursor.isClosed() || resets.isUnderWay()) {
            resets.look();
            written.complete(Stored.NOT_NOW);
            return;
        }
        Position persisted = cursor.getPersistentMarkDeletedPosition();
        if (persisted == null) {
            // A new cursor does not show a reset, but refuses to be stored amid one.
            store(written, false);
            return;
        }
        if (persisted.compareTo(cursor.getMarkDeletedPosition()) > 0) {
            // Pulsar stores nothing before that.
            written.complete(Stored.NOT_NOW);
            return;
        }
        if (requests.stream().allMatch(this::delete)) {
            store(written, true);
        } else {
            written.complete(Stored.NOT_NOW);
        }
    }

    /** Deletes; false if the cursor refuses. The walk over the positions ends within the call. */
    private boolean delete(Request request) {
        if (CursorRecord.seal(cursor) != request.seal()) {
            // This one gets that answer in the end; the others continue.
            return true;
        }
        boolean[] refused = {false};
        Iterable<Position> walk = () -> new SealedWalk(request.positions().iterator(),
                () -> CursorRecord.seal(cursor) != request.seal() || resets.isUnderWay());
        cursor.asyncDelete(walk, new DeleteCallback() {
            @Override
            public void deleteComplete(Object ctx) {
                // Or only kept in memory.
            }

            @Override
            public void deleteFailed(ManagedLedgerException e, Object ctx) {
                LOG.debug("[{}] The cursor deletes nothing now", cursor, e);
                refused[0] = true;
            }
        }, null);
        return !refused[0];
    }

    private void store(CompletableFuture<Stored> written, boolean hasDeletions) {
        RecordCapacity capacity = new RecordCapacity(cursor);
        lastUsed = capacity.usedBefore();
        Position there = cursor.getMarkDeletedPosition();
        // A separate instance tells this write from any other.
        Position asked = PositionFactory.create(there.getLedgerId(), there.getEntryId());
        boolean[] isOver = {false};
        MarkDeleteLimiter.liftOnce(cursor);
        cursor.asyncMarkDelete(asked, cursor.getProperties(), new MarkDeleteCallback() {
            @Override
            public void markDeleteComplete(Object ctx) {
                Position persisted = cursor.getPersistentMarkDeletedPosition();
                // A later position was set later, so its record has the deletions, too.
                boolean isStored = isOver[0] && persisted != null && (persisted == asked || persisted.compareTo(asked) > 0);
                written.complete(isStored && hasDeletions ? capacity.outcome() : Stored.NOT_NOW);
            }

            @Override
            public void markDeleteFailed(ManagedLedgerException e, Object ctx) {
                LOG.debug("[{}] The cursor is not stored", cursor, e);
                written.complete(Stored.NOT_NOW);
            }
        }, null);
        isOver[0] = true;
    }
}
