package tidegate.pulsar.gate;

import java.util.concurrent.CompletableFuture;
import tidegate.pulsar.wire.Position;

/**
 * A topic as a {@code ScanPass} sees it: its ledgers and their entries, read beside the dispatcher, without Pulsar's types.
 *
 * <p>Nothing blocks. One thread uses it, but any thread may ask {@link #readPosition}.
 */
public interface TopicReader {
    /** Entries as one read brought them, in order and without a gap. Must be closed. */
    interface Batch extends AutoCloseable {
        /** How many entries it has, delayed or not; 0 if there was nothing to read yet. */
        int size();

        /** How many bytes they take as stored. */
        long sizeBytes();

        /** Shows the entries that the dispatcher would certainly only track. */
        void forEachDelayed(Outbox.EntryVisitor visitor);

        @Override
        void close();
    }

    /** True if there are consumers and others than the dispatcher may decide now about entries of this topic. */
    boolean isAllowed();

    /** Where the dispatcher reads next. */
    Position readPosition();

    /** How many entries the dispatcher has before it; held and acknowledged ones count. */
    long unreadEntries();

    /** About how many entries are not acknowledged; held ones, and those that consumers have, count. */
    long unacknowledgedEntries();

    /** The last position that the dispatcher may read at present. */
    Position lastReadable();

    /** The first ledger of the topic with that id or a greater one; null if there is none. */
    Long ledgerFrom(long ledgerId);

    /** The last entry of the ledger that can be read now, -1 if it is empty or not here; fails if that cannot be told. */
    CompletableFuture<Long> lastEntry(long ledgerId);

    /** Reads entries of the ledger from that one on: one at least, {@code maxEntries} at most. */
    CompletableFuture<Batch> read(long ledgerId, long firstEntryId, int maxEntries);

    /** Closes what was opened; the reader may be used again. */
    void close();
}
