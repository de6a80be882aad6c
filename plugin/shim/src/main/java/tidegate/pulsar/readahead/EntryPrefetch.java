package tidegate.pulsar.readahead;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import tidegate.pulsar.position.PositionPredicate;

/**
 * Reads the entries that a subscription will hand out next into the broker's cache, many at a time: Pulsar 4.0 replays each
 * position by its own read, at twice the processor time of all else. Why: docs/decisions/prefetch.md.
 *
 * <p>Where positions leave in the order of their ledger, as with bursts and constant delays, the next ones are near
 * positions behind the last one. The window read ahead has as many as leave within {@code aheadNs} at the present rate, so
 * that the cache still has them by then.
 *
 * <p>At most one read is under way; after one that fills nothing it rests, each time twice as long. The dispatcher reads
 * whatever the cache lacks. Any thread may call it.
 */
public final class EntryPrefetch implements AutoCloseable {
    /** Reads entries into a cache. */
    public interface Reader extends AutoCloseable {
        /**
         * Reads from {@code first} to {@code last} or less far. The future never fails: its value is the last entry in the
         * cache, or {@code first - 1}.
         */
        CompletableFuture<Long> read(long ledgerId, long first, long last);

        @Override
        void close();
    }

    /** Positions in a row, in the order of their ledger, before the first read. */
    static final int RUN_MIN = 16;
    /** Most other positions between two in a row. */
    static final int GAP_MAX = 4;
    /** Fewer are not worth a read. */
    static final int READ_MIN = 8;
    static final long REST_NS = TimeUnit.SECONDS.toNanos(1);
    private static final int RESTS_MAX = 6;
    /** The period for measuring the rate. */
    private static final long RATE_NS = TimeUnit.MILLISECONDS.toNanos(100);

    private final PositionPredicate near;
    private final Reader reader;
    private final LongSupplier nanoTime;
    private final int maxEntries;
    private final long aheadNs;
    private final Object lock = new Object();
    @GuardedBy("lock")
    private long ledgerId = -1;
    @GuardedBy("lock")
    private long lastEntryId;
    @GuardedBy("lock")
    private int inRow;
    /** Up to here all is read, or not worth it. */
    @GuardedBy("lock")
    private long aheadTo;
    @GuardedBy("lock")
    private boolean reading;
    @GuardedBy("lock")
    private double left;
    @GuardedBy("lock")
    private long leftSinceNs;
    @GuardedBy("lock")
    private int rests;
    @GuardedBy("lock")
    private long restsUntilNs;
    @GuardedBy("lock")
    private boolean closed;
    private volatile long prefetched;

    /**
     * @param near true for a position that this broker hands out soon
     * @param maxEntries of one window; 0: nothing is read
     * @param aheadNs less than the cache keeps an entry
     */
    public EntryPrefetch(PositionPredicate near, Reader reader, LongSupplier nanoTime, int maxEntries, long aheadNs) {
        this.near = near;
        this.reader = reader;
        this.nanoTime = nanoTime;
        this.maxEntries = maxEntries;
        this.aheadNs = aheadNs;
        leftSinceNs = restsUntilNs = nanoTime.getAsLong();
    }

    /** The entries read into the cache since the start. */
    public long prefetched() {
        return prefetched;
    }

    /** Notes a position given to the dispatcher, in reading order. */
    public void onHandedOut(long ledger, long entryId) {
        synchronized (lock) {
            left++;
            if (ledger == ledgerId && entryId > lastEntryId && entryId <= lastEntryId + 1 + GAP_MAX) {
                inRow++;
            } else {
                inRow = 0;
                aheadTo = -1;
                ledgerId = ledger;
            }
            lastEntryId = entryId;
        }
    }

    /** Reads, if that pays. Called after a batch of positions. */
    public void prefetch() {
        long ledger;
        long first;
        long last;
        synchronized (lock) {
            long nowNs = nanoTime.getAsLong();
            int window = window(nowNs);
            if (closed || reading || inRow < RUN_MIN || nowNs - restsUntilNs < 0 || aheadTo - lastEntryId > window / 2) {
                return;
            }
            ledger = ledgerId;
            first = Math.max(aheadTo, lastEntryId) + 1;
            last = lastOf(ledger, first, lastEntryId + window);
            if (last < first) {
                return;
            }
            reading = true;
        }
        reader.read(ledger, first, last).thenAccept(read -> onRead(ledger, first, read));
    }

    /** How many positions leave while the cache keeps them. */
    @GuardedBy("lock")
    private int window(long nowNs) {
        long sinceNs = Math.max(nowNs - leftSinceNs, 1);
        double window = left * aheadNs / sinceNs;
        if (sinceNs > RATE_NS) {
            left = left * RATE_NS / sinceNs;
            leftSinceNs = nowNs - RATE_NS;
        }
        return (int) Math.min(window, maxEntries);
    }

    /** The window's last near position, or one before {@code first} if reading it all does not pay. */
    @GuardedBy("lock")
    private long lastOf(long ledger, long first, long end) {
        long last = first - 1;
        int found = 0;
        for (long entryId = first; entryId <= end; entryId++) {
            if (near.test(ledger, entryId)) {
                last = entryId;
                found++;
            }
        }
        if (found >= READ_MIN && found * 2L > last - first) {
            return last;
        }
        if (found > 0) {
            aheadTo = last;
        }
        return first - 1;
    }

    private void onRead(long ledger, long first, long last) {
        synchronized (lock) {
            reading = false;
            if (last < first) {
                restsUntilNs = nanoTime.getAsLong() + (REST_NS << rests);
                rests = Math.min(rests + 1, RESTS_MAX);
                return;
            }
            rests = 0;
            prefetched += last - first + 1;
            if (ledger == ledgerId && inRow > 0) {
                aheadTo = Math.max(aheadTo, last);
            }
        }
    }

    @Override
    public void close() {
        synchronized (lock) {
            closed = true;
        }
        reader.close();
    }
}
