package tidegate.pulsar.indexlog;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;

/**
 * Reads one ledger of an index log from beginning to end, an answer at a time, while a topic waits: it reads the next answer
 * from the bookie while the daemon receives the one before, and asks for as many entries as fit into one answer. It releases
 * entries read ahead in vain. Takes no lock but its own.
 */
final class LogReader {
    private static final int MAX_ANSWER_BYTES = 1 << 20;
    private static final int MAX_ENTRIES = 1024;
    /** The largest growth factor of the number of requested entries. */
    private static final int GROWTH = 4;

    private final ReadHandle handle;
    @GuardedBy("this")
    private int entries = GROWTH;
    @GuardedBy("this")
    private long aheadFirst;
    /** The read that begins at {@code aheadFirst}; null without one. */
    @GuardedBy("this")
    private CompletableFuture<LedgerEntries> ahead;
    @GuardedBy("this")
    private boolean closed;

    LogReader(ReadHandle handle) {
        this.handle = handle;
    }

    /** The ledger's last entry, -1 if it is empty. */
    long lastEntry() {
        return handle.getLastAddConfirmed();
    }

    /** The entries from {@code first} to at most {@code last}, at least one: as many as fit into an answer. */
    synchronized CompletableFuture<List<ByteBuffer>> read(long first, long last) {
        CompletableFuture<LedgerEntries> reading = ahead != null && aheadFirst == first ? ahead : null;
        if (reading == null) {
            giveBack();
            reading = begin(first, last);
        }
        ahead = null;
        return reading.thenApply(read -> take(read, first, last));
    }

    /**
     * Begins a read. Where BookKeeper does not read in batches (striped ledgers), only the number of entries bounds the
     * bytes.
     */
    @GuardedBy("this")
    private CompletableFuture<LedgerEntries> begin(long first, long last) {
        return handle.batchReadAsync(first, (int) Math.min(last - first + 1, entries), MAX_ANSWER_BYTES);
    }

    private List<ByteBuffer> take(LedgerEntries read, long first, long last) {
        List<ByteBuffer> answer = new ArrayList<>();
        long sizeBytes;
        try (read) {
            sizeBytes = fill(answer, read);
        }
        synchronized (this) {
            entries = next(entries, answer.size(), sizeBytes);
            long following = first + answer.size();
            if (ahead == null && !closed && following <= last) {
                aheadFirst = following;
                ahead = begin(following, last);
            }
        }
        return answer;
    }

    /** Copies as many of the entries as fit into an answer, at least one; returns the number of bytes. */
    static long fill(List<ByteBuffer> answer, LedgerEntries read) {
        long sizeBytes = 0;
        for (LedgerEntry entry : read) {
            // Not the entry's length: that is the whole ledger's, up to this entry.
            byte[] bytes = entry.getEntryBytes();
            if (!answer.isEmpty() && sizeBytes + bytes.length > MAX_ANSWER_BYTES) {
                break;
            }
            sizeBytes += bytes.length;
            answer.add(ByteBuffer.wrap(bytes));
        }
        return sizeBytes;
    }

    /** The number of entries to ask for next, after {@code asked}, of which {@code taken} had {@code sizeBytes}. */
    static int next(int asked, int taken, long sizeBytes) {
        long fitting = Math.max(1, (long) MAX_ANSWER_BYTES * taken / Math.max(1, sizeBytes));
        return (int) Math.min(Math.min(fitting, (long) asked * GROWTH), MAX_ENTRIES);
    }

    @GuardedBy("this")
    private void giveBack() {
        if (ahead != null) {
            ahead.thenAccept(LedgerEntries::close);
            ahead = null;
        }
    }

    CompletableFuture<Void> closeAsync() {
        synchronized (this) {
            closed = true;
            giveBack();
        }
        return handle.closeAsync();
    }
}
