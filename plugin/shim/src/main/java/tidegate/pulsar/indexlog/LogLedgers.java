package tidegate.pulsar.indexlog;

import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import java.util.function.Supplier;
import org.apache.bookkeeper.client.api.BKException;
import org.apache.bookkeeper.client.api.BookKeeper;
import org.apache.bookkeeper.client.api.WriteAdvHandle;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.cursor.CursorProperties;
import tidegate.pulsar.cursor.CursorRecord;
import tidegate.pulsar.cursor.WriteConflicts;
import tidegate.pulsar.gate.LogHome;
import tidegate.pulsar.wire.Frame;

/**
 * One subscription's index log in BookKeeper: {@link TidegateLedgers our ledgers}, and a pointer among the cursor's
 * properties. For a log at a URL only the pointer is here; the daemon has the rest.
 *
 * <p>Opening a ledger recovers it and so fences it. The pointer is written with the cursor's metadata by compare-and-set,
 * like {@code Claim}'s epoch. Nothing here waits; BookKeeper's threads bring the answers.
 */
public final class LogLedgers implements LogHome {
    public static final String BOOKKEEPER = "bookkeeper";
    public static final String NONE = "none";

    private static final Logger LOG = LoggerFactory.getLogger(LogLedgers.class);
    private static final String POINTER = CursorRecord.PREFIX + "log";
    private static final String COMPONENT = "index-log";
    private static final int MAX_POINTER_BYTES = 16_384;

    /**
     * The state shared by all logs of a broker. {@code home} is the place for new logs; {@code client} gives BookKeeper's
     * client on demand.
     */
    public record Shared(String home, Supplier<BookKeeper> client, Executor background, AtomicLong bytesUnderWay,
            Map<String, Set<Long>> leftBehind) {
        /** Most bytes on their way to the bookies, for all logs of a broker. */
        static final long MAX_BYTES = 64L << 20;

        public Shared(String home, Supplier<BookKeeper> client, Executor background, AtomicLong bytesUnderWay) {
            this(home, client, background, bytesUnderWay, new ConcurrentHashMap<>());
        }
    }

    private final String name;
    private final ManagedCursor cursor;
    private final CursorProperties properties;
    private final WriteConflicts conflicts;
    private final Shared shared;
    private final Map<Long, WriteHandle> written = new ConcurrentHashMap<>();
    private final Map<Long, LogReader> opened = new ConcurrentHashMap<>();
    private volatile boolean closed;

    /** {@code conflicts} gets the outcome of each write of the pointer. */
    public LogLedgers(String name, CursorProperties properties, WriteConflicts conflicts, Shared shared) {
        this.name = name;
        this.properties = properties;
        this.conflicts = conflicts;
        cursor = properties.cursor();
        this.shared = shared;
    }

    @Override
    public String home() {
        // A subscription that does not outlive its consumers has no place for a pointer.
        return shared.home().equals(NONE) || !cursor.isDurable() ? "" : shared.home();
    }

    @Override
    public String pointer() {
        Map<String, String> known = cursor.getCursorProperties();
        return known == null ? "" : known.getOrDefault(POINTER, "");
    }

    @Override
    public CompletableFuture<Frame.LogAnswer> answer(Frame.LogRequest request) {
        CompletableFuture<Frame.LogAnswer> done;
        try {
            done = switch (request.op()) {
                case Frame.LogRequest.CREATE -> create();
                case Frame.LogRequest.APPEND -> append(request.ledgerId(), request.entry());
                case Frame.LogRequest.OPEN -> open(request.ledgerId());
                case Frame.LogRequest.READ -> read(request.ledgerId(), request.first(), request.last());
                case Frame.LogRequest.CLOSE -> closeOne(request.ledgerId());
                case Frame.LogRequest.DELETE -> delete(request.ledgerId());
                case Frame.LogRequest.POINT -> point(request.oldPointer(), request.newPointer());
                default -> CompletableFuture.completedFuture(Frame.LogAnswer.failed(Frame.LogAnswer.REFUSED,
                        "operation " + request.op() + " is not known"));
            };
        } catch (RuntimeException e) {
            done = CompletableFuture.failedFuture(e);
        }
        return done.exceptionally(LogLedgers::failure);
    }

    private CompletableFuture<Frame.LogAnswer> create() {
        return TidegateLedgers.create(shared.client().get(), cursor, COMPONENT)
                .thenApply(handle -> {
                    written.put(handle.getId(), handle);
                    closeIfOver();
                    return Frame.LogAnswer.ok(handle.getId());
                });
    }

    private CompletableFuture<Frame.LogAnswer> append(long ledgerId, ByteBuffer entry) {
        WriteHandle handle = written.get(ledgerId);
        if (handle == null || handle instanceof WriteAdvHandle) {
            return noLedger(ledgerId);
        }
        int sizeBytes = entry.remaining();
        if (shared.bytesUnderWay().addAndGet(sizeBytes) > Shared.MAX_BYTES) {
            shared.bytesUnderWay().addAndGet(-sizeBytes);
            return CompletableFuture.completedFuture(
                    Frame.LogAnswer.failed(Frame.LogAnswer.AWAY, "too much is on its way to the bookies"));
        }
        return handle.appendAsync(entry)
                .whenComplete((entryId, error) -> shared.bytesUnderWay().addAndGet(-sizeBytes))
                .thenApply(Frame.LogAnswer::ok);
    }

    private CompletableFuture<Frame.LogAnswer> open(long ledgerId) {
        return TidegateLedgers.recover(shared.client().get(), cursor, ledgerId)
                .thenApply(handle -> {
                    LogReader former = opened.put(ledgerId, new LogReader(handle));
                    if (former != null) {
                        former.closeAsync();
                    }
                    closeIfOver();
                    return Frame.LogAnswer.ok(handle.getLastAddConfirmed());
                });
    }

    private CompletableFuture<Frame.LogAnswer> read(long ledgerId, long first, long last) {
        LogReader reader = opened.get(ledgerId);
        if (reader == null || first < 0 || first > last || last > reader.lastEntry()) {
            return noLedger(ledgerId);
        }
        return reader.read(first, last).thenApply(entries -> new Frame.LogAnswer(Frame.LogAnswer.OK, -1, "", entries));
    }

    private CompletableFuture<Frame.LogAnswer> closeOne(long ledgerId) {
        WriteHandle writer = written.remove(ledgerId);
        CompletableFuture<Void> closed = writer == null ? CompletableFuture.completedFuture(null) : writer.closeAsync();
        return closed.thenCompose(done -> closeReading(ledgerId)).thenApply(done -> Frame.LogAnswer.ok(-1));
    }

    private CompletableFuture<Void> closeReading(long ledgerId) {
        LogReader reader = opened.remove(ledgerId);
        return reader == null ? CompletableFuture.completedFuture(null) : reader.closeAsync();
    }

    private CompletableFuture<Frame.LogAnswer> delete(long ledgerId) {
        forget(ledgerId);
        return TidegateLedgers.delete(shared.client().get(), ledgerId).thenApply(done -> Frame.LogAnswer.ok(-1));
    }

    /** Forgets a ledger without closing the writer: one being deleted needs no last entry. */
    private void forget(long ledgerId) {
        written.remove(ledgerId);
        closeReading(ledgerId);
    }

    private CompletableFuture<Frame.LogAnswer> point(String former, String next) {
        if (TidegateLedgers.bytes(next).length > MAX_POINTER_BYTES) {
            return CompletableFuture.completedFuture(
                    Frame.LogAnswer.failed(Frame.LogAnswer.REFUSED, "a pointer of " + next.length() + " characters"));
        }
        try {
            return CompletableFuture.supplyAsync(() -> properties.putIf(() -> pointer().equals(former), POINTER, next)
                    .handle(this::pointed), shared.background()).thenCompose(answer -> answer);
        } catch (RejectedExecutionException e) {
            return CompletableFuture.failedFuture(e);
        }
    }

    private Frame.LogAnswer pointed(Boolean isWritten, Throwable error) {
        if (error == null && !isWritten) {
            return Frame.LogAnswer.failed(Frame.LogAnswer.STALE, "the pointer is " + pointer());
        }
        conflicts.count(error);
        if (error == null) {
            return Frame.LogAnswer.ok(-1);
        }
        // Another owner wrote, or the cursor, whose writes share the version: then another try may succeed.
        return Frame.LogAnswer.failed(cursor.isClosed() ? Frame.LogAnswer.STALE : Frame.LogAnswer.AWAY,
                "the cursor's metadata was written by somebody else at the same time");
    }

    private CompletableFuture<Frame.LogAnswer> noLedger(long ledgerId) {
        return CompletableFuture.completedFuture(Frame.LogAnswer.failed(Frame.LogAnswer.NO_LEDGER,
                "ledger " + ledgerId + " is not open, or has no such entry"));
    }

    @Override
    public void close() {
        closed = true;
        closeAll();
    }

    /** Closes the handles at the end: one brought later by BookKeeper would stay open as long as the broker lives. */
    private void closeIfOver() {
        if (closed) {
            closeAll();
        }
    }

    private void closeAll() {
        closeEach(written, WriteHandle::closeAsync);
        closeEach(opened, LogReader::closeAsync);
    }

    /** Closes each handle; one added meanwhile is closed here or by the adding thread. */
    private static <T> void closeEach(Map<Long, T> handles, Consumer<T> close) {
        for (Long ledgerId : handles.keySet()) {
            T handle = handles.remove(ledgerId);
            if (handle != null) {
                close.accept(handle);
            }
        }
    }

    /**
     * Deletes every ledger named by the cursor's pointer. The cursor and its properties are gone: a write could meet another
     * cursor of that name.
     */
    CompletableFuture<Void> deleteAll() {
        CompletableFuture<Void> deleted = CompletableFuture.completedFuture(null);
        for (long ledgerId : ledgersOf(pointer())) {
            forget(ledgerId);
            deleted = deleted.thenCompose(done -> TidegateLedgers.delete(shared.client().get(), ledgerId))
                    .exceptionally(error -> {
                        LOG.warn("[{}] Ledger {} of the index log could not be deleted: {}", name, ledgerId,
                                TidegateLedgers.cause(error).getMessage());
                        return null;
                    });
        }
        return deleted;
    }

    /** The ledgers named by a pointer to BookKeeper: docs/format.md. */
    static Set<Long> ledgersOf(String pointer) {
        Set<Long> ledgers = new LinkedHashSet<>();
        String[] parts = pointer.split(";", 4);
        if (parts.length == 4 && parts[0].equals("1") && parts[3].equals(BOOKKEEPER)) {
            for (String id : (parts[1] + "," + parts[2]).split(",")) {
                if (id.matches("[0-9]{1,19}") && new BigInteger(id).bitLength() < Long.SIZE) {
                    ledgers.add(Long.parseLong(id));
                }
            }
        }
        return ledgers;
    }

    private static Frame.LogAnswer failure(Throwable error) {
        if (TidegateLedgers.cause(error) instanceof IllegalArgumentException refused) {
            return Frame.LogAnswer.failed(Frame.LogAnswer.NO_LEDGER, refused.getMessage());
        }
        int code = switch (TidegateLedgers.code(error)) {
            case BKException.Code.LedgerFencedException -> Frame.LogAnswer.FENCED;
            case BKException.Code.NoSuchLedgerExistsException, BKException.Code.NoSuchLedgerExistsOnMetadataServerException,
                    BKException.Code.NoSuchEntryException, BKException.Code.DigestMatchException,
                    BKException.Code.UnauthorizedAccessException -> Frame.LogAnswer.NO_LEDGER;
            default -> Frame.LogAnswer.AWAY;
        };
        return Frame.LogAnswer.failed(code, String.valueOf(TidegateLedgers.cause(error).getMessage()));
    }
}
