package tidegate.pulsar.indexlog;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.buffer.Unpooled;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.bookkeeper.client.api.BKException;
import org.apache.bookkeeper.client.api.BookKeeper;
import org.apache.bookkeeper.client.api.CreateBuilder;
import org.apache.bookkeeper.client.api.DeleteBuilder;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.client.api.ListLedgersResultBuilder;
import org.apache.bookkeeper.client.api.OpenBuilder;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.client.impl.LedgerEntriesImpl;
import org.apache.bookkeeper.client.impl.LedgerEntryImpl;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedger;
import org.apache.bookkeeper.mledger.ManagedLedgerConfig;
import org.apache.bookkeeper.mledger.ManagedLedgerException.BadVersionException;
import org.apache.bookkeeper.mledger.ManagedLedgerException.MetaStoreException;
import org.apache.bookkeeper.mledger.PositionFactory;
import org.junit.jupiter.api.Test;
import tidegate.pulsar.cursor.CursorProperties;
import tidegate.pulsar.cursor.CursorRecord;
import tidegate.pulsar.cursor.WriteConflicts;
import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.OverrideEntry;
import tidegate.pulsar.wire.Records;

/** The ledgers of one index log; the test plays the cursor and BookKeeper's client. */
class LogLedgersTest {
    private static final String POINTER = CursorRecord.PREFIX + "log";

    private interface Calls {
        Object call(String method, Object[] arguments);
    }

    private final CompletableFuture<Object> made = new CompletableFuture<>();
    private int closed;
    private int reopenings;
    private boolean isCursorClosed;
    /** Of the next write of a property; null: it is done. */
    private Exception refusal;
    /** The cursor's properties. */
    private final Map<String, String> properties = new HashMap<>();
    private final List<Long> deleted = new ArrayList<>();
    /** The ledgers that BookKeeper cannot delete just now. */
    private final Set<Long> stuck = new HashSet<>();
    /** Ledgers of messages: a pointer that names one is wrong. */
    private final Set<Long> strange = new HashSet<>();
    /** The cursors of the topic. */
    private final List<ManagedCursor> cursors = new ArrayList<>();
    private final ManagedCursor cursor = cursor();
    private long nowNs;
    private final LogLedgers.Shared shared =
            new LogLedgers.Shared(LogLedgers.BOOKKEEPER, this::client, Runnable::run, new AtomicLong());
    private final LogLedgers log = new LogLedgers("test", CursorProperties.withoutReset(cursor),
            new WriteConflicts(() -> reopenings++), shared);
    private final OverrideLedgers overrides = new OverrideLedgers("test", CursorProperties.withoutReset(cursor), shared);

    private static <T> T played(Class<T> type, Calls calls) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (self, method, arguments) ->
                method.getName().startsWith("with") ? self : calls.call(method.getName(), arguments)));
    }

    private static Object is(Map<String, Object> answers, String method) {
        if (!answers.containsKey(method)) {
            throw new UnsupportedOperationException(method);
        }
        return answers.get(method);
    }

    private ManagedCursor cursor() {
        ManagedLedger ledger = played(ManagedLedger.class, (method, arguments) ->
                is(Map.of("getConfig", new ManagedLedgerConfig(), "getName", "public/default/persistent/t", "getCursors", cursors),
                        method));
        return played(ManagedCursor.class, (method, arguments) -> method.equals("putCursorProperty") ? put(arguments)
                : is(Map.of("getManagedLedger", ledger, "getName", "sub", "getCursorProperties", Map.copyOf(properties),
                "getPersistentMarkDeletedPosition", PositionFactory.EARLIEST, "isClosed", isCursorClosed, "hashCode", 1), method));
    }

    /** As ManagedCursorImpl: after a refusal it has the properties and the version from before. */
    private CompletableFuture<Void> put(Object[] arguments) {
        if (refusal != null) {
            return CompletableFuture.failedFuture(refusal);
        }
        properties.put((String) arguments[0], (String) arguments[1]);
        return CompletableFuture.completedFuture(null);
    }

    private int point() {
        return log.answer(new Frame.LogRequest(Frame.LogRequest.POINT, -1, -1, -1, properties.getOrDefault(POINTER, ""),
                "1;7;;bookkeeper", ByteBuffer.allocate(0))).join().code();
    }

    private void refused(int times) {
        for (int i = 0; i < times; i++) {
            assertEquals(Frame.LogAnswer.AWAY, point());
        }
    }

    @Test
    void aPointerThatIsRefusedFourTimesHasTheTopicReopenedOnce() {
        refusal = new BadVersionException("this very write was sent twice");
        refused(3);
        assertEquals(0, reopenings, "another writer explains as many");
        refused(1);
        assertEquals(1, reopenings);
        refused(3);
        assertEquals(1, reopenings);
        refused(1);
        assertEquals(2, reopenings, "the first was not carried out");
    }

    @Test
    void aPointerThatIsWrittenInBetweenHasNothingReopened() {
        for (int i = 0; i < 3; i++) {
            refusal = new BadVersionException("another writer");
            refused(3);
            refusal = null;
            assertEquals(Frame.LogAnswer.OK, point());
        }
        assertEquals(0, reopenings);
    }

    @Test
    void whatIsNoConflictHasNothingReopened() {
        refusal = new MetaStoreException("no connection");
        refused(5);
        refusal = new BadVersionException("behind the end");
        isCursorClosed = true;
        for (int i = 0; i < 5; i++) {
            assertEquals(Frame.LogAnswer.STALE, point());
        }
        assertEquals(0, reopenings);
    }

    /** No proxy, as that would load the client's configuration classes. */
    private BookKeeper client() {
        return new BookKeeper() {
            /** From 4.18 on. */
            public CompletableFuture<Boolean> isDriverMetadataServiceAvailable() {
                return CompletableFuture.completedFuture(true);
            }

            @Override
            public CreateBuilder newCreateLedgerOp() {
                return played(CreateBuilder.class, (method, arguments) -> is(Map.of("execute", made), method));
            }

            @Override
            public OpenBuilder newOpenLedgerOp() {
                return played(OpenBuilder.class, (method, arguments) -> is(Map.of("execute", made), method));
            }

            @Override
            public DeleteBuilder newDeleteLedgerOp() {
                return deletion();
            }

            @Override
            public ListLedgersResultBuilder newListLedgersOp() {
                throw new UnsupportedOperationException();
            }

            @Override
            public CompletableFuture<LedgerMetadata> getLedgerMetadata(long ledgerId) {
                String application = strange.contains(ledgerId) ? "pulsar" : "tidegate";
                return CompletableFuture.completedFuture(played(LedgerMetadata.class, (method, arguments) ->
                        is(Map.of("getCustomMetadata", Map.of("application", application.getBytes(StandardCharsets.UTF_8))), method)));
            }

            @Override
            public void close() {
                throw new UnsupportedOperationException();
            }
        };
    }

    private DeleteBuilder deletion() {
        return new DeleteBuilder() {
            private long ledgerId;

            @Override
            public DeleteBuilder withLedgerId(long wanted) {
                ledgerId = wanted;
                return this;
            }

            @Override
            public CompletableFuture<Void> execute() {
                if (stuck.contains(ledgerId)) {
                    return CompletableFuture.failedFuture(new BKException(BKException.Code.MetadataVersionException));
                }
                deleted.add(ledgerId);
                return CompletableFuture.completedFuture(null);
            }
        };
    }

    private Object handle(String method) {
        return switch (method) {
            case "getId" -> 7L;
            case "getLastAddConfirmed" -> -1L;
            case "closeAsync" -> {
                closed++;
                yield CompletableFuture.completedFuture(null);
            }
            default -> throw new UnsupportedOperationException(method);
        };
    }

    private static Frame.LogRequest request(int op) {
        return new Frame.LogRequest(op, 7, 0, 0, "", "", ByteBuffer.allocate(0));
    }

    @Test
    void aLedgerThatIsMadeAfterTheEndIsClosed() {
        CompletableFuture<Frame.LogAnswer> answer = log.answer(request(Frame.LogRequest.CREATE));
        log.close();
        made.complete(played(WriteHandle.class, (method, arguments) -> handle(method)));
        assertEquals(Frame.LogAnswer.OK, answer.join().code());
        assertEquals(1, closed);
    }

    @Test
    void aLedgerThatIsOpenedAfterTheEndIsClosed() {
        CompletableFuture<Frame.LogAnswer> answer = log.answer(request(Frame.LogRequest.OPEN));
        log.close();
        made.complete(played(ReadHandle.class, (method, arguments) -> handle(method)));
        assertEquals(Frame.LogAnswer.OK, answer.join().code());
        assertEquals(1, closed);
    }

    @Test
    void whatIsOpenIsClosedAtTheEnd() {
        CompletableFuture<Frame.LogAnswer> answer = log.answer(request(Frame.LogRequest.OPEN));
        made.complete(played(ReadHandle.class, (method, arguments) -> handle(method)));
        assertTrue(answer.isDone());
        assertEquals(0, closed);
        log.close();
        assertEquals(1, closed);
    }

    @Test
    void aPointerNamesTheLogAndAllOthers() {
        assertEquals(Set.of(5L, 7L, 9L), LogLedgers.ledgersOf("1;5;7,9;bookkeeper"));
        assertEquals(Set.of(5L), LogLedgers.ledgersOf("1;5;;bookkeeper"));
        assertEquals(Set.of(7L), LogLedgers.ledgersOf("1;-1;7;bookkeeper"));
        assertEquals(Set.of(Long.MAX_VALUE), LogLedgers.ledgersOf("1;" + Long.MAX_VALUE + ";;bookkeeper"));
        for (String other : List.of("", "1;-1;;bookkeeper", "1;5;7;file:///logs", "2;5;7;bookkeeper", "1;5;7",
                "1;9999999999999999999;;bookkeeper")) {
            assertEquals(Set.of(), LogLedgers.ledgersOf(other), other);
        }
    }

    @Test
    void withTheSubscriptionAllGoThatThePointerNames() {
        properties.put(POINTER, "1;5;7,9,11;bookkeeper");
        log.deleteAll().join();
        assertEquals(List.of(5L, 7L, 9L, 11L), deleted);
        assertEquals("1;5;7,9,11;bookkeeper", properties.get(POINTER), "a cursor of the same name has the place now");
    }

    @Test
    void oneThatStaysKeepsNoOther() {
        properties.put(POINTER, "1;5;7,9,11;bookkeeper");
        stuck.add(5L);
        strange.add(9L);
        log.deleteAll().join();
        assertEquals(List.of(7L, 11L), deleted);
    }

    @Test
    void itGoesOnceTheCursorIsGoneAndTheDaemonHasSaidItsLastWord() {
        properties.put(POINTER, "1;5;7;bookkeeper");
        properties.put(CursorRecord.PREFIX + "overrides", "1;8,6");
        cursors.add(cursor);
        LogDeletions deletions = new LogDeletions(() -> nowNs);
        CompletableFuture<Void> lastWord = new CompletableFuture<>();
        deletions.expect(cursor, log, overrides, lastWord);
        deletions.look();
        assertEquals(List.of(), deleted, "a reset, or a cleared backlog, asks the same of a tracker");
        cursors.clear();
        deletions.look();
        assertEquals(List.of(), deleted, "the daemon still writes");
        lastWord.complete(null);
        deletions.look();
        deletions.look();
        assertEquals(List.of(5L, 7L, 8L, 6L), deleted);
    }

    @Test
    void itStaysWithACursorThatStays() {
        properties.put(POINTER, "1;5;7;bookkeeper");
        cursors.add(cursor);
        LogDeletions deletions = new LogDeletions(() -> nowNs);
        deletions.expect(cursor, log, overrides, CompletableFuture.completedFuture(null));
        nowNs += TimeUnit.MINUTES.toNanos(11);
        deletions.look();
        cursors.clear();
        deletions.look();
        assertEquals(List.of(), deleted, "who deletes it later says so again");
    }

    private OverrideLedgers nextTracker() {
        return new OverrideLedgers("test", CursorProperties.withoutReset(cursor), shared);
    }

    private void aTrackerMakesALedgerOfOverridesAndEnds() {
        CompletableFuture<Long> ledgerId = overrides.create();
        overrides.close();
        made.complete(played(WriteHandle.class, (method, arguments) -> handle(method)));
        assertEquals(7, ledgerId.join());
    }

    @Test
    void aLedgerOfOverridesThatATrackerLeavesInDoubtIsForTheNextOneToDelete() {
        aTrackerMakesALedgerOfOverridesAndEnds();
        OverrideLedgers next = nextTracker();
        assertEquals(List.of(7L), next.leftBehind());
        next.delete(7);
        assertEquals(List.of(7L), deleted);
        assertEquals(List.of(), nextTracker().leftBehind());
    }

    @Test
    void aLedgerOfOverridesThatThePointerNamesIsNotLeftBehind() {
        properties.put(CursorRecord.PREFIX + "overrides", "1;7");
        aTrackerMakesALedgerOfOverridesAndEnds();
        assertEquals(List.of(), nextTracker().leftBehind());
    }

    @Test
    void withTheSubscriptionGoesALedgerOfOverridesThatAFormerTrackerLeft() {
        aTrackerMakesALedgerOfOverridesAndEnds();
        nextTracker().deleteAll().join();
        assertEquals(List.of(7L), deleted);
        assertEquals(List.of(), nextTracker().leftBehind());
    }

    /** So many messages were moved, each by a request of its own. */
    @Test
    void timesStoredOneByOneAreReadManyAtATimeAndGoOnWithoutBookKeepersThread() {
        int count = 20_000;
        List<Runnable> background = new ArrayList<>();
        OverrideLedgers stored = new OverrideLedgers("test", CursorProperties.withoutReset(cursor),
                new LogLedgers.Shared(LogLedgers.BOOKKEEPER, this::client, background::add, new AtomicLong()));
        byte[] entry = OverrideEntry.moved(Records.of(1, 2, 3), 0, 1).array();
        int[] reads = {0};
        made.complete(played(ReadHandle.class, (method, arguments) -> switch (method) {
            case "getLastAddConfirmed" -> count - 1L;
            case "getLength" -> (long) count * entry.length;
            case "closeAsync" -> CompletableFuture.completedFuture(null);
            case "readAsync" -> {
                reads[0]++;
                List<LedgerEntry> entries = new ArrayList<>();
                for (long id = (long) arguments[0]; id <= (long) arguments[1]; id++) {
                    entries.add(LedgerEntryImpl.create(7, id, entry.length, Unpooled.wrappedBuffer(entry)));
                }
                yield CompletableFuture.completedFuture(LedgerEntriesImpl.create(entries));
            }
            default -> throw new UnsupportedOperationException(method);
        }));
        CompletableFuture<List<ByteBuffer>> read = stored.read(7);
        assertFalse(read.isDone(), "BookKeeper has given all, and its thread goes on");
        background.forEach(Runnable::run);
        assertEquals(count, read.join().size());
        assertTrue(reads[0] <= 20, reads[0] + " reads");
    }
}
