package tidegate.pulsar.readahead;

import io.netty.buffer.ByteBuf;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentSkipListSet;
import org.apache.bookkeeper.client.api.BKException;
import org.apache.bookkeeper.client.api.BookKeeper;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedger;
import org.apache.bookkeeper.mledger.ManagedLedgerConfig;
import org.apache.bookkeeper.mledger.PositionFactory;
import org.apache.pulsar.broker.service.persistent.AbstractPersistentDispatcherMultipleConsumers;
import org.apache.pulsar.broker.service.persistent.PersistentTopic;
import tidegate.pulsar.gate.Outbox;
import tidegate.pulsar.gate.TopicReader;
import tidegate.pulsar.wire.Position;

/**
 * A {@link TopicReader} on BookKeeper: opens a topic's ledgers beside the managed ledger, without recovery, which fences
 * nobody, and reads up to the entry confirmed by BookKeeper. So it evicts nothing that live consumers need, and does not
 * count in the limit of reads in flight. A ledger missing in BookKeeper (offloaded, trimmed) looks empty, and is requested
 * only once. Why: docs/decisions/read-ahead.md.
 */
public final class LedgerReader implements TopicReader {
    /** The most bytes of one read; BookKeeper answers with fewer entries if they are large. */
    private static final long MAX_READ_BYTES = 1 << 20;
    /** A pass in order needs only a handle or two. */
    private static final int MAX_HANDLES = 4;
    private static final long NO_ENTRY = -1;

    private final AbstractPersistentDispatcherMultipleConsumers dispatcher;
    private final PersistentTopic topic;
    private final ManagedCursor cursor;
    private final ManagedLedger ledger;
    private final BookKeeper bookKeeper;
    private final MetadataScan scan = new MetadataScan();
    private final TreeMap<Long, CompletableFuture<ReadHandle>> handles = new TreeMap<>();
    /** Ledgers from the read position on that BookKeeper lacks for ever. */
    private final ConcurrentSkipListSet<Long> gone = new ConcurrentSkipListSet<>();

    public LedgerReader(AbstractPersistentDispatcherMultipleConsumers dispatcher, PersistentTopic topic, BookKeeper bookKeeper) {
        this.dispatcher = dispatcher;
        this.topic = topic;
        cursor = dispatcher.getCursor();
        ledger = cursor.getManagedLedger();
        this.bookKeeper = bookKeeper;
    }

    /** An entry filter must see each entry at its reading, and may reject it at once. */
    @Override
    public boolean isAllowed() {
        return !cursor.isClosed() && !dispatcher.isClosed() && !dispatcher.getConsumers().isEmpty() && topic.isDelayedDeliveryEnabled()
                && (topic.getEntryFilters() == null || topic.getEntryFilters().isEmpty());
    }

    @Override
    public Position readPosition() {
        return position(cursor.getReadPosition());
    }

    @Override
    public long unreadEntries() {
        return cursor.getNumberOfEntries();
    }

    @Override
    public long unacknowledgedEntries() {
        return cursor.getNumberOfEntriesInBacklog(false);
    }

    /** Not past an open transaction, which must come before later messages. */
    @Override
    public Position lastReadable() {
        Position confirmed = position(ledger.getLastConfirmedEntry());
        Position visible = position(topic.getMaxReadPosition());
        return confirmed.compareTo(visible) < 0 ? confirmed : visible;
    }

    private static Position position(org.apache.bookkeeper.mledger.Position position) {
        org.apache.bookkeeper.mledger.Position some = position == null ? PositionFactory.EARLIEST : position;
        return new Position(some.getLedgerId(), some.getEntryId());
    }

    @Override
    public Long ledgerFrom(long ledgerId) {
        return ledger.getLedgersInfo().ceilingKey(ledgerId);
    }

    @Override
    public CompletableFuture<Long> lastEntry(long ledgerId) {
        if (gone.contains(ledgerId)) {
            return CompletableFuture.completedFuture(NO_ENTRY);
        }
        CompletableFuture<Long> last = handle(ledgerId).thenCompose(handle -> handle.isClosed()
                ? CompletableFuture.completedFuture(handle.getLastAddConfirmed()) : handle.readLastAddConfirmedAsync());
        return last.exceptionallyCompose(error -> {
            if (isGone(error)) {
                gone.headSet(readPosition().ledgerId()).clear();
                gone.add(ledgerId);
                return CompletableFuture.completedFuture(NO_ENTRY);
            }
            return CompletableFuture.failedFuture(error);
        });
    }

    private static boolean isGone(Throwable error) {
        Throwable cause = error instanceof CompletionException ? error.getCause() : error;
        return cause instanceof BKException refused && (refused.getCode() == BKException.Code.NoSuchLedgerExistsException
                || refused.getCode() == BKException.Code.NoSuchLedgerExistsOnMetadataServerException);
    }

    @Override
    public CompletableFuture<Batch> read(long ledgerId, long firstEntryId, int maxEntries) {
        return handle(ledgerId).thenCompose(handle -> {
            long confirmed = handle.getLastAddConfirmed();
            if (firstEntryId > confirmed) {
                return CompletableFuture.completedFuture(new LedgerBatch(null));
            }
            // Where BookKeeper does not read in batches (striped ledgers), only this bounds the bytes.
            long averageBytes = Math.max(1, handle.getLength() / (confirmed + 1));
            int count = (int) Math.max(1, Math.min(Math.min(maxEntries, MAX_READ_BYTES / averageBytes),
                    confirmed - firstEntryId + 1));
            return handle.batchReadAsync(firstEntryId, count, MAX_READ_BYTES).thenApply(LedgerBatch::new);
        });
    }

    /** A topic's ledger, to be read beside its owner. */
    static CompletableFuture<ReadHandle> open(BookKeeper bookKeeper, ManagedLedgerConfig config, long ledgerId) {
        return bookKeeper.newOpenLedgerOp().withLedgerId(ledgerId).withRecovery(false)
                .withDigestType(config.getDigestType()).withPassword(config.getPassword()).execute();
    }

    private CompletableFuture<ReadHandle> handle(long ledgerId) {
        CompletableFuture<ReadHandle> opened = handles.get(ledgerId);
        if (opened == null || opened.isCompletedExceptionally()) {
            while (handles.size() >= MAX_HANDLES) {
                close(handles.pollFirstEntry());
            }
            opened = open(bookKeeper, ledger.getConfig(), ledgerId);
            handles.put(ledgerId, opened);
        }
        return opened;
    }

    @Override
    public void close() {
        while (!handles.isEmpty()) {
            close(handles.pollFirstEntry());
        }
    }

    private static void close(Map.Entry<Long, CompletableFuture<ReadHandle>> handle) {
        // Closing a read-only handle touches only the client's own books.
        handle.getValue().thenAccept(ReadHandle::closeAsync);
    }

    private final class LedgerBatch implements Batch {
        private final LedgerEntries entries;
        private final List<LedgerEntry> list = new ArrayList<>();
        private long sizeBytes;

        LedgerBatch(LedgerEntries entries) {
            this.entries = entries;
            if (entries != null) {
                for (LedgerEntry entry : entries) {
                    list.add(entry);
                    // Not the entry's length: that is the whole ledger's, up to this entry.
                    sizeBytes += entry.getEntryBuffer().readableBytes();
                }
            }
        }

        @Override
        public int size() {
            return list.size();
        }

        @Override
        public long sizeBytes() {
            return sizeBytes;
        }

        @Override
        public void forEachDelayed(Outbox.EntryVisitor visitor) {
            for (LedgerEntry entry : list) {
                ByteBuf bytes = entry.getEntryBuffer();
                long deliverAtMs = scan.deliverAtMs(bytes);
                if (deliverAtMs != MetadataScan.NOT_OURS) {
                    visitor.visit(entry.getLedgerId(), entry.getEntryId(), deliverAtMs);
                }
            }
        }

        @Override
        public void close() {
            if (entries != null) {
                entries.close();
            }
        }
    }
}
