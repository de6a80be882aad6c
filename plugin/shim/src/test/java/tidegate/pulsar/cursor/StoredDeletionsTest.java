package tidegate.pulsar.cursor;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.lang.reflect.Proxy;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.mledger.AsyncCallbacks.DeleteCallback;
import org.apache.bookkeeper.mledger.AsyncCallbacks.MarkDeleteCallback;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedger;
import org.apache.bookkeeper.mledger.ManagedLedgerConfig;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.PositionFactory;
import org.junit.jupiter.api.Test;
import tidegate.pulsar.gate.TrackerContext.Stored;

/** When a deletion counts as stored; the test plays the cursor, as Pulsar 4.0.8's is. */
class StoredDeletionsTest {
    private static final String SEAL = "#pulsar.internal.tidegate.generation";
    private static final Position THERE = PositionFactory.create(3, 4);

    private final List<Position> deleted = new ArrayList<>();
    private Map<String, Long> properties = Map.of(SEAL, 42L);
    private Position markDelete = THERE;
    private Position persisted = THERE;
    private boolean closed;
    private boolean resetting;
    private int ranges;
    /** Pulsar's limit keeps the next writes in memory. */
    private boolean limited;
    /** Pulsar skips a write while that of a later position is under way, and calls back. */
    private boolean skipped;
    /** Requested writes; each ends when the test runs it. */
    private final Deque<Runnable> writes = new ArrayDeque<>();
    private final LinkedBlockingQueue<Runnable> thread = new LinkedBlockingQueue<>();
    private final ManagedLedgerConfig config = new ManagedLedgerConfig().setMaxUnackedRangesToPersist(10);
    private final ManagedCursor cursor = played(ManagedCursor.class, this::cursor);
    private final RefusedResets resets = new RefusedResets(cursor, new RefusedResets.Subscription() { }, Runnable::run);
    private final StoredDeletions deletions = new StoredDeletions(cursor, resets, () -> thread::add, 200);

    private interface Played {
        Object call(String method, Object[] arguments);
    }

    private <T> T played(Class<T> type, Played played) {
        return type.cast(Proxy.newProxyInstance(getClass().getClassLoader(), new Class<?>[] {type},
                (self, method, arguments) -> played.call(method.getName(), arguments)));
    }

    private Object cursor(String method, Object[] arguments) {
        return switch (method) {
            case "toString", "getName" -> "cursor";
            case "getProperties" -> properties;
            case "getMarkDeletedPosition" -> markDelete;
            case "getPersistentMarkDeletedPosition" -> persisted;
            case "getTotalNonContiguousDeletedMessagesRange" -> ranges;
            case "isClosed" -> closed;
            case "getManagedLedger" -> played(ManagedLedger.class, (of, given) -> config);
            case "asyncDelete" -> {
                asyncDelete((Iterable<?>) arguments[0], (DeleteCallback) arguments[1]);
                yield null;
            }
            case "asyncMarkDelete" -> {
                asyncMarkDelete((Position) arguments[0], (MarkDeleteCallback) arguments[2]);
                yield null;
            }
            default -> throw new UnsupportedOperationException(method);
        };
    }

    private void asyncDelete(Iterable<?> positions, DeleteCallback callback) {
        try {
            positions.forEach(position -> deleted.add((Position) position));
        } catch (IllegalStateException e) {
            callback.deleteFailed(new ManagedLedgerException(e), null);
            return;
        }
        ranges += 1;
        callback.deleteComplete(null);
    }

    private void asyncMarkDelete(Position position, MarkDeleteCallback callback) {
        if (resetting) {
            callback.markDeleteFailed(new ManagedLedgerException("Reset cursor in progress"), null);
        } else if (limited) {
            callback.markDeleteComplete(null);
        } else {
            writes.add(() -> {
                persisted = skipped ? persisted : position;
                callback.markDeleteComplete(null);
            });
        }
    }

    private CompletableFuture<Stored> store(long entryId, long seal) {
        CompletableFuture<Stored> answer = new CompletableFuture<>();
        deletions.store(List.of(new tidegate.pulsar.wire.Position(3, entryId)), seal, answer::complete);
        return answer;
    }

    private void runThread() {
        for (Runnable task; (task = thread.poll()) != null; ) {
            task.run();
        }
    }

    private static Stored of(CompletableFuture<Stored> answer) {
        return answer.getNow(null);
    }

    @Test
    void itIsStoredWhenTheWriteEnds() {
        CompletableFuture<Stored> answer = store(9, 42);
        assertEquals(List.of(), deleted, "a reset could begin meanwhile");
        runThread();
        assertEquals(List.of(PositionFactory.create(3, 9)), deleted);
        assertEquals(null, of(answer));
        writes.remove().run();
        assertEquals(Stored.YES, of(answer));
    }

    @Test
    void aWriteThatTheLimitPutsOffIsNone() {
        limited = true;
        CompletableFuture<Stored> answer = store(9, 42);
        runThread();
        assertEquals(Stored.NOT_NOW, of(answer));
    }

    @Test
    void aWriteThatIsSkippedForALaterOneUnderWayIsNone() {
        skipped = true;
        CompletableFuture<Stored> answer = store(9, 42);
        runThread();
        writes.remove().run();
        assertEquals(Stored.NOT_NOW, of(answer));
    }

    @Test
    void aLaterPositionThatIsPersistedHasItToo() {
        skipped = true;
        CompletableFuture<Stored> answer = store(9, 42);
        runThread();
        persisted = PositionFactory.create(3, 6);
        writes.remove().run();
        assertEquals(Stored.YES, of(answer));
    }

    @Test
    void manyShareAWrite() {
        CompletableFuture<Stored> first = store(9, 42);
        runThread();
        CompletableFuture<Stored> second = store(11, 42);
        CompletableFuture<Stored> third = store(13, 42);
        runThread();
        assertEquals(1, writes.size(), "one at a time");
        writes.remove().run();
        assertEquals(Stored.YES, of(first));
        assertEquals(null, of(second));
        runThread();
        assertEquals(1, writes.size());
        writes.remove().run();
        assertEquals(List.of(Stored.YES, Stored.YES), List.of(of(second), of(third)));
    }

    @Test
    void anotherSealDeletesNothing() {
        CompletableFuture<Stored> stale = store(9, 41);
        CompletableFuture<Stored> fresh = store(11, 42);
        runThread();
        writes.remove().run();
        assertEquals(Stored.NOT_NOW, of(stale));
        assertEquals(Stored.YES, of(fresh));
        assertEquals(List.of(PositionFactory.create(3, 11)), deleted);
    }

    @Test
    void aResetDuringTheWriteTakesItBack() {
        CompletableFuture<Stored> answer = store(9, 42);
        runThread();
        properties = Map.of();
        writes.remove().run();
        assertEquals(Stored.NOT_NOW, of(answer));
    }

    @Test
    void amidAResetNothingIsDeleted() {
        persisted = null;
        CompletableFuture<Stored> answer = store(9, 42);
        runThread();
        assertEquals(Stored.NOT_NOW, of(answer));
        assertEquals(List.of(), deleted);
        assertEquals(0, writes.size());
    }

    @Test
    void beyondItsRoomTheRecordHasItNot() {
        ranges = 9;
        CompletableFuture<Stored> last = store(9, 42);
        runThread();
        writes.remove().run();
        assertEquals(Stored.YES, of(last));
        CompletableFuture<Stored> beyond = store(11, 42);
        runThread();
        writes.remove().run();
        assertEquals(Stored.NO_ROOM, of(beyond));
    }

    @Test
    void aCallbackThatPulsarForgetsIsNotAwaitedForEver() throws Exception {
        CompletableFuture<Stored> answer = store(9, 42);
        runThread();
        writes.clear();
        assertEquals(Stored.NOT_NOW, answer.get(10, TimeUnit.SECONDS));
        CompletableFuture<Stored> next = store(11, 42);
        // The thread that has noticed the time-out may still be about to begin it.
        thread.poll(10, TimeUnit.SECONDS).run();
        writes.remove().run();
        assertEquals(Stored.YES, of(next));
    }

    @Test
    void aClosedCursorIsLeftAlone() {
        closed = true;
        CompletableFuture<Stored> answer = store(9, 42);
        runThread();
        assertEquals(Stored.NOT_NOW, of(answer));
        assertEquals(List.of(), deleted);
    }
}
