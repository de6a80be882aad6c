package tidegate.pulsar.gate;

import java.util.concurrent.CompletableFuture;
import tidegate.pulsar.wire.Position;

/**
 * A topic as a {@code ScanPass} sees it: its ledgers and their entries, read beside the dispatcher, without Pulsar's types.
 *
 * <p>Nothing blocks. One thread uses it, but any thread may ask {@link #readPosition}.
 */
public interface TopicReader {
    /** The entries of one read, in order and without a gap. Must be closed. */
    interface Batch extends AutoCloseable {
        /** The number of entries, delayed or not; 0 if there was nothing to read yet. */
        int size();

        /** In bytes, as stored. */
        long sizeBytes();

        /** Visits the entries that the dispatcher would certainly only track. */
        void forEachDelayed(Outbox.EntryVisitor visitor);

        @Override
        void close();
    }

    /** True if there are consumers, and entries of this topic may be decided without the dispatcher. */
    boolean isAllowed();

    Position readPosition();

    /** The number of entries before the dispatcher, held and acknowledged ones included. */
    long unreadEntries();

    /** About the number of unacknowledged entries, held ones and those with consumers included. */
    long unacknowledgedEntries();

    /** The last position that the dispatcher may read at present. */
    Position lastReadable();

    /** The first ledger of the topic with that id or a greater one; null without one. */
    Long ledgerFrom(long ledgerId);

    /** The last entry of the ledger that can be read now, -1 if it is empty or not here; fails if unknown. */
    CompletableFuture<Long> lastEntry(long ledgerId);

    /** Reads entries of the ledger from that one on: at least one, at most {@code maxEntries}. */
    CompletableFuture<Batch> read(long ledgerId, long firstEntryId, int maxEntries);

    /** Closes everything open; the reader may be used again. */
    void close();
}
