package tidegate.pulsar.cursor;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.function.LongSupplier;
import java.util.random.RandomGenerator;
import org.apache.bookkeeper.mledger.AsyncCallbacks.MarkDeleteCallback;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.Position;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.gate.Seal;

/**
 * Keeps a {@link Seal} stored with a cursor's acknowledgements beyond its mark-delete position, for any consumers, type and
 * tracker: then only a reset's record lacks one. Skips, quotas and cumulative acknowledgements remove the seal, too, while
 * the acknowledgements beyond stay; so such a cursor is soon stored again.
 *
 * <p>A seal must not be put during a reset: Pulsar then has removed the seal, but not yet the acknowledgements. It begins a
 * reset on the {@link LedgerThread} alone, and refuses to move mark-delete until that is done. So a mark-delete to the
 * cursor's own position, requested on that thread, carries the seal: either Pulsar refuses it, or no reset begins before it
 * is queued.
 *
 * <p>Cost: one write of the cursor where a seal is missing and acknowledgements lie beyond.
 */
public final class StoredSeals {
    private static final Logger LOG = LoggerFactory.getLogger(StoredSeals.class);
    /** The pause after a write: Pulsar's own limit of one a second may be off. */
    private static final long WRITE_PAUSE_NS = TimeUnit.MILLISECONDS.toNanos(250);
    private static final long FAILED_PAUSE_NS = TimeUnit.SECONDS.toNanos(1);
    /** At a reset's end Pulsar forgets the callbacks of waiting writes. */
    private static final long LOST_AFTER_NS = TimeUnit.SECONDS.toNanos(5);

    private final RandomGenerator random;
    private final IndividualAcks individual;
    private final Function<ManagedCursor, Executor> threads;
    private final LongSupplier nanoTime;
    private final Map<ManagedCursor, Kept> cursors = new ConcurrentHashMap<>();

    /** {@code threads}: executors on which no reset of the cursor begins meanwhile; null without one. */
    public StoredSeals(RandomGenerator random, IndividualAcks individual, Function<ManagedCursor, Executor> threads,
            LongSupplier nanoTime) {
        this.random = random;
        this.individual = individual;
        this.threads = threads;
        this.nanoTime = nanoTime;
    }

    /** Keeps a seal stored from now on. The seal at the first call is stored: the cursor was loaded with it. */
    public void keep(ManagedCursor cursor) {
        keep(cursor, CursorRecord.seal(cursor), individual.mayBeIn(cursor));
    }

    /**
     * As {@link #keep}, for a cursor just reset: its record still has the acknowledgements taken back, so a record without
     * them follows soon.
     */
    void keepReset(ManagedCursor cursor) {
        keep(cursor, Seal.NONE, true);
    }

    private void keep(ManagedCursor cursor, long stored, boolean beyond) {
        Executor thread = cursor.isDurable() ? threads.apply(cursor) : null;
        if (thread != null) {
            cursors.computeIfAbsent(cursor, each -> new Kept(each, thread, nanoTime.getAsLong(), stored, beyond));
        }
    }

    /** Checks all cursors. One thread at a time. */
    public void look() {
        for (Kept each : cursors.values()) {
            look(each);
        }
    }

    /** Checks one cursor, perhaps beside others. */
    public void look(ManagedCursor cursor) {
        Kept kept = cursors.get(cursor);
        if (kept != null) {
            look(kept);
        }
    }

    private void look(Kept kept) {
        if (kept.cursor.isClosed()) {
            cursors.remove(kept.cursor);
        } else if (kept.isDue(nanoTime.getAsLong())) {
            kept.begin();
        }
    }

    int size() {
        return cursors.size();
    }

    private final class Kept {
        private final ManagedCursor cursor;
        private final Executor thread;
        /** The seal stored with every acknowledgement since; {@link Seal#NONE} if unknown. */
        private volatile long stored;
        /** True after an acknowledgement beyond mark-delete under the stored seal. */
        private volatile boolean beyond;
        private volatile long dueNs;

        Kept(ManagedCursor cursor, Executor thread, long nowNs, long stored, boolean beyond) {
            this.cursor = cursor;
            this.thread = thread;
            this.stored = stored;
            this.beyond = beyond;
            dueNs = nowNs;
        }

        boolean isDue(long nowNs) {
            if (nowNs - dueNs < 0) {
                return false;
            }
            long there = CursorRecord.seal(cursor);
            boolean isMissing = there == Seal.NONE || there != stored;
            if (!beyond) {
                beyond = individual.mayBeIn(cursor);
            }
            // Also after a reset has removed the acknowledgements beyond: its record still has them.
            return isMissing && beyond;
        }

        synchronized void begin() {
            dueNs = nanoTime.getAsLong() + LOST_AFTER_NS;
            try {
                thread.execute(this::store);
            } catch (RejectedExecutionException e) {
                LOG.debug("[{}] The broker stops", cursor, e);
            }
        }

        private void store() {
            Position there = cursor.getMarkDeletedPosition();
            Position persisted = cursor.getPersistentMarkDeletedPosition();
            // None: a reset is under way or was refused, or the cursor is new. Ahead: Pulsar stores nothing now.
            if (cursor.isClosed() || persisted == null || persisted.compareTo(there) > 0) {
                pause(WRITE_PAUSE_NS);
                return;
            }
            Map<String, Long> properties = new HashMap<>(cursor.getProperties());
            long seal = CursorRecord.seal(cursor);
            // Never an earlier seal: a reset may have come since.
            long put = seal == Seal.NONE ? Seal.draw(random) : seal;
            CursorRecord.putSeal(properties, put);
            Asked asked = new Asked(put);
            cursor.asyncMarkDelete(there, properties, asked, null);
            asked.isOver = true;
        }

        private void pause(long ns) {
            dueNs = nanoTime.getAsLong() + ns;
        }

        private final class Asked implements MarkDeleteCallback {
            private final long seal;
            private volatile boolean isOver;

            Asked(long seal) {
                this.seal = seal;
            }

            @Override
            public void markDeleteComplete(Object ctx) {
                if (!isOver) {
                    // Within the call: in memory only, because Pulsar limits its writes. An orderly close writes it.
                    pause(0);
                } else if (CursorRecord.seal(cursor) == seal) {
                    stored = seal;
                    beyond = individual.mayBeIn(cursor);
                    pause(WRITE_PAUSE_NS);
                } else {
                    pause(0);
                }
            }

            @Override
            public void markDeleteFailed(ManagedLedgerException e, Object ctx) {
                LOG.debug("[{}] No seal could be stored; trying again", cursor, e);
                pause(FAILED_PAUSE_NS);
            }
        }
    }
}
