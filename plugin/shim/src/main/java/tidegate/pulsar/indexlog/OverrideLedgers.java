package tidegate.pulsar.indexlog;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.RejectedExecutionException;
import java.util.function.Supplier;
import org.apache.bookkeeper.client.api.BKException;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.ManagedLedgerException.BadVersionException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.cursor.CursorProperties;
import tidegate.pulsar.cursor.CursorRecord;
import tidegate.pulsar.gate.OverrideHome;

/**
 * The overrides of one subscription in BookKeeper, and the pointer to them among the cursor's properties. Nothing here waits;
 * BookKeeper's threads bring the answers.
 */
public final class OverrideLedgers implements OverrideHome {
    private static final Logger LOG = LoggerFactory.getLogger(OverrideLedgers.class);
    private static final String POINTER = CursorRecord.PREFIX + "overrides";
    private static final String COMPONENT = "overrides";
    /** The bytes of one read: an entry has at most 240 KB, and 30 bytes for one moved message. */
    private static final int READ_BYTES = 4 * 1024 * 1024;
    private static final int READ_ENTRIES_MIN = 16;
    private static final int READ_ENTRIES_MAX = 1024;

    private final String name;
    private final ManagedCursor cursor;
    private final CursorProperties properties;
    private final LogLedgers.Shared shared;
    private final Map<Long, WriteHandle> written = new ConcurrentHashMap<>();
    /** Ledgers created here and not deleted, perhaps some that no pointer names. */
    private final Set<Long> created = ConcurrentHashMap.newKeySet();
    private volatile boolean closed;

    public OverrideLedgers(String name, CursorProperties properties, LogLedgers.Shared shared) {
        this.name = name;
        this.properties = properties;
        cursor = properties.cursor();
        this.shared = shared;
    }

    @Override
    public boolean isAvailable() {
        // A subscription that does not outlive its consumers has no place for a pointer.
        return cursor.isDurable() && properties.mayPut() && !properties.resets().isUnderWay();
    }

    @Override
    public String pointer() {
        Map<String, String> known = cursor.getCursorProperties();
        return known == null ? "" : known.getOrDefault(POINTER, "");
    }

    @Override
    public CompletableFuture<Long> create() {
        return asked(() -> TidegateLedgers.create(shared.client().get(), cursor, COMPONENT).thenApply(handle -> {
            written.put(handle.getId(), handle);
            created.add(handle.getId());
            if (closed) {
                close();
            }
            return handle.getId();
        }));
    }

    @Override
    public CompletableFuture<Void> append(long ledgerId, ByteBuffer entry) {
        WriteHandle handle = written.get(ledgerId);
        if (handle == null) {
            return CompletableFuture.failedFuture(new NoLedgerException("ledger " + ledgerId + " is not open"));
        }
        return asked(() -> handle.appendAsync(entry).thenApply(stored -> null));
    }

    @Override
    public CompletableFuture<List<ByteBuffer>> read(long ledgerId) {
        return asked(() -> TidegateLedgers.recover(shared.client().get(), cursor, ledgerId)
                .thenCompose(handle -> readAll(ledgerId, handle).whenComplete((done, error) -> handle.closeAsync())))
                .exceptionally(error -> {
                    throw new CompletionException(isLost(error) ? new NoLedgerException(TidegateLedgers.cause(error).getMessage())
                            : TidegateLedgers.cause(error));
                })
                // BookKeeper's thread serves other ledgers.
                .thenApplyAsync(entries -> entries, shared.background());
    }

    static boolean isLost(Throwable error) {
        return TidegateLedgers.isGone(error) || TidegateLedgers.cause(error) instanceof NoLedgerException
                || TidegateLedgers.cause(error) instanceof IllegalArgumentException
                || TidegateLedgers.code(error) == BKException.Code.NoSuchEntryException;
    }

    CompletableFuture<List<ByteBuffer>> readAll(long ledgerId, ReadHandle handle) {
        // A pointer names no ledger without a snapshot: its bookies have lost the entries.
        return handle.getLastAddConfirmed() < 0
                ? CompletableFuture.failedFuture(new NoLedgerException("ledger " + ledgerId + " has no entries"))
                : readFrom(handle, 0, new ArrayList<>());
    }

    private CompletableFuture<List<ByteBuffer>> readFrom(ReadHandle handle, long first, List<ByteBuffer> all) {
        long last = Math.min(handle.getLastAddConfirmed(), first + readEntries(handle) - 1);
        if (last < first) {
            return CompletableFuture.completedFuture(all);
        }
        return handle.readAsync(first, last).thenCompose(entries -> {
            copy(entries, all);
            return readFrom(handle, last + 1, all);
        });
    }

    /** Reads all entries: no delayed message leaves before, so one read takes many small entries. */
    private static long readEntries(ReadHandle handle) {
        long averageBytes = Math.max(1, handle.getLength() / (handle.getLastAddConfirmed() + 1));
        return Math.max(READ_ENTRIES_MIN, Math.min(READ_ENTRIES_MAX, READ_BYTES / averageBytes));
    }

    private static void copy(LedgerEntries entries, List<ByteBuffer> all) {
        try (entries) {
            for (LedgerEntry entry : entries) {
                all.add(ByteBuffer.wrap(entry.getEntryBytes()));
            }
        }
    }

    @Override
    public CompletableFuture<Pointed> point(String former, String next) {
        try {
            return CompletableFuture.supplyAsync(() -> properties.putIf(() -> pointer().equals(former), POINTER, next)
                    .handle(OverrideLedgers::pointed), shared.background()).thenCompose(answer -> answer);
        } catch (RejectedExecutionException e) {
            return CompletableFuture.completedFuture(Pointed.REFUSED);
        }
    }

    /** The outcome; fails if the write may have been done. */
    private static Pointed pointed(Boolean isWritten, Throwable error) {
        if (error == null) {
            return isWritten ? Pointed.DONE : Pointed.STALE;
        }
        Throwable cause = TidegateLedgers.cause(error);
        if (cause instanceof BadVersionException) {
            throw new CompletionException(new ConflictException(cause.getMessage()));
        }
        boolean refused = cause instanceof CursorProperties.UnattendedException
                || cause instanceof ManagedLedgerException.CursorAlreadyClosedException
                || cause instanceof CursorProperties.NotTriedException;
        if (!refused) {
            throw new CompletionException(cause);
        }
        return Pointed.REFUSED;
    }

    @Override
    public List<Long> leftBehind() {
        return List.copyOf(shared.leftBehind().getOrDefault(subscription(), Set.of()));
    }

    private String subscription() {
        return cursor.getManagedLedger().getName() + " " + cursor.getName();
    }

    @Override
    public void delete(long ledgerId) {
        forget(ledgerId);
        deleted(ledgerId);
    }

    private void forget(long ledgerId) {
        written.remove(ledgerId);
        created.remove(ledgerId);
        shared.leftBehind().computeIfPresent(subscription(), (key, ledgers) -> {
            ledgers.remove(ledgerId);
            return ledgers.isEmpty() ? null : ledgers;
        });
    }

    private CompletableFuture<Void> deleted(long ledgerId) {
        return asked(() -> TidegateLedgers.delete(shared.client().get(), ledgerId)).exceptionally(error -> {
            LOG.warn("[{}] Ledger {} of overrides could not be deleted: {}", name, ledgerId,
                    TidegateLedgers.cause(error).getMessage());
            return null;
        });
    }

    /** Deletes every ledger that the cursor's pointer names or may have named. Cursor and pointer are gone. */
    CompletableFuture<Void> deleteAll() {
        CompletableFuture<Void> all = CompletableFuture.completedFuture(null);
        Set<Long> ledgers = new LinkedHashSet<>(OverrideHome.ledgersOf(pointer()));
        ledgers.addAll(created);
        ledgers.addAll(leftBehind());
        for (long ledgerId : ledgers) {
            forget(ledgerId);
            all = all.thenCompose(done -> deleted(ledgerId));
        }
        return all;
    }

    private static <T> CompletableFuture<T> asked(Supplier<CompletableFuture<T>> request) {
        try {
            return request.get();
        } catch (RuntimeException e) {
            return CompletableFuture.failedFuture(e);
        }
    }

    @Override
    public void close() {
        closed = true;
        for (Long ledgerId : written.keySet()) {
            WriteHandle handle = written.remove(ledgerId);
            if (handle != null) {
                handle.closeAsync();
            }
        }
        // A pointer may name one of these. The subscription's next tracker knows, and deletes them.
        List<Long> left = new ArrayList<>(created);
        left.removeAll(OverrideHome.ledgersOf(pointer()));
        if (!left.isEmpty()) {
            shared.leftBehind().computeIfAbsent(subscription(), key -> ConcurrentHashMap.newKeySet()).addAll(left);
        }
    }
}
