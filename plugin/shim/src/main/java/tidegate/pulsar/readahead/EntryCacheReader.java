package tidegate.pulsar.readahead;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.client.api.BookKeeper;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.mledger.Entry;
import org.apache.bookkeeper.mledger.ManagedLedger;
import org.apache.bookkeeper.mledger.impl.EntryImpl;
import org.apache.bookkeeper.mledger.impl.ManagedLedgerImpl;
import org.apache.bookkeeper.mledger.impl.cache.EntryCache;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Reads a topic's ledgers in BookKeeper's batches, and puts the entries into the managed ledger's cache.
 *
 * <p>The managed ledger reads a range by a request for each entry (4.0.8, 4.2.4). This class opens the ledgers as
 * {@link LedgerReader} does, one at a time. Memory is that of Pulsar's cache, within its limit.
 */
public final class EntryCacheReader implements EntryPrefetch.Reader {
    private static final Logger LOG = LoggerFactory.getLogger(EntryCacheReader.class);
    private static final long MAX_READ_BYTES = 1 << 20;
    private static final long NO_LEDGER = -1;
    /** {@code EntryCache.insert}, of an EntryImpl in 4.0 and of an Entry since; null if there is none. */
    private static final MethodHandle INSERT = findInsert();

    private final ManagedLedgerImpl ledger;
    private final EntryCache cache;
    private final BookKeeper bookKeeper;
    private long openLedgerId = NO_LEDGER;
    private CompletableFuture<ReadHandle> open;
    /** Set before the managed ledger is closed. */
    private boolean closed;

    private EntryCacheReader(ManagedLedgerImpl ledger, BookKeeper bookKeeper) {
        this.ledger = ledger;
        this.bookKeeper = bookKeeper;
        cache = ledger.getFactory().getEntryCacheManager().getEntryCache(ledger);
    }

    /** A reader of an open ledger's entries; null without a known cache. */
    public static EntryCacheReader of(ManagedLedger ledger, BookKeeper bookKeeper) {
        return INSERT != null && ledger instanceof ManagedLedgerImpl known ? new EntryCacheReader(known, bookKeeper) : null;
    }

    private static MethodHandle findInsert() {
        for (Class<?> entry : new Class<?>[] {EntryImpl.class, Entry.class}) {
            try {
                return MethodHandles.publicLookup().findVirtual(EntryCache.class, "insert",
                        MethodType.methodType(boolean.class, entry))
                        .asType(MethodType.methodType(boolean.class, EntryCache.class, EntryImpl.class));
            } catch (NoSuchMethodException | IllegalAccessException e) {
                LOG.debug("This Pulsar's entry cache takes no {}", entry, e);
            }
        }
        return null;
    }

    @Override
    public CompletableFuture<Long> read(long ledgerId, long first, long last) {
        return handle(ledgerId).thenCompose(handle -> confirmed(handle, last).thenCompose(confirmed -> {
            long end = Math.min(last, confirmed);
            return end < first ? CompletableFuture.completedFuture(first - 1)
                    : handle.batchReadAsync(first, Math.toIntExact(end - first + 1), MAX_READ_BYTES)
                            .thenApply(entries -> insert(entries, first - 1));
        })).exceptionally(error -> {
            LOG.debug("[{}] Entries {}:{} to {} were not read into the cache", ledger.getName(), ledgerId, first, last, error);
            return first - 1;
        });
    }

    /** Asks BookKeeper only for a ledger that is being written. */
    private static CompletableFuture<Long> confirmed(ReadHandle handle, long wanted) {
        return handle.isClosed() || handle.getLastAddConfirmed() >= wanted
                ? CompletableFuture.completedFuture(handle.getLastAddConfirmed()) : handle.readLastAddConfirmedAsync();
    }

    private synchronized CompletableFuture<ReadHandle> handle(long ledgerId) {
        if (closed) {
            return CompletableFuture.failedFuture(new IllegalStateException("the topic is closed"));
        }
        if (openLedgerId != ledgerId || open.isCompletedExceptionally()) {
            closeHandle();
            openLedgerId = ledgerId;
            open = LedgerReader.open(bookKeeper, ledger.getConfig(), ledgerId);
        }
        return open;
    }

    private long insert(LedgerEntries entries, long before) {
        long last = before;
        boolean any = false;
        try (entries) {
            for (LedgerEntry one : entries) {
                EntryImpl entry = EntryImpl.create(one.getLedgerId(), one.getEntryId(), one.getEntryBuffer());
                try {
                    any |= (boolean) INSERT.invokeExact(cache, entry);
                } catch (Throwable e) {
                    throw new IllegalStateException("the entry cache refused an entry", e);
                } finally {
                    entry.release();
                }
                last = one.getEntryId();
            }
        }
        if (isClosed()) {
            // The managed ledger may be closed, too: nothing evicts from its cache any more.
            cache.clear();
            return before;
        }
        return any ? last : before;
    }

    private synchronized boolean isClosed() {
        return closed;
    }

    @Override
    public synchronized void close() {
        closed = true;
        closeHandle();
    }

    private void closeHandle() {
        if (open != null) {
            // Closing a read-only handle touches only the client's own books.
            open.thenAccept(ReadHandle::closeAsync);
        }
    }
}
