package tidegate.pulsar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.bookkeeper.mledger.AsyncCallbacks.DeleteCallback;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedger;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.ManagedLedgerException.BadVersionException;
import org.apache.bookkeeper.mledger.ManagedLedgerException.MetaStoreException;
import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.PositionFactory;
import org.junit.jupiter.api.Test;
import tidegate.pulsar.cursor.CursorProperties;
import tidegate.pulsar.cursor.UndoneResetsTest;
import tidegate.pulsar.gate.Seal;
import tidegate.pulsar.gate.TrackerContext;
import tidegate.pulsar.indexlog.LogLedgers;
import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.Ownership;
import tidegate.pulsar.wire.ReleasePace;

/** The calls on Pulsar's cursor; the test plays the cursor. */
class CursorContextTest {
    private static final String LIFE = "000102030405060708090a0b0c0d0e0f";

    private final Map<String, Long> properties = new HashMap<>();
    private final Map<String, String> cursorProperties = new HashMap<>();
    private final List<Position> deleted = new ArrayList<>();
    private Position markDelete = PositionFactory.create(1, 2);
    private Position persistedMarkDelete;
    private Position lastConfirmed;
    private Runnable beforeLock = () -> {};
    private Runnable whileLocked = () -> {};
    private int written;
    private Exception refusal;
    private boolean closed;
    private int reopenings;
    private final CursorContext context = new CursorContext("test", CursorProperties.withoutReset(cursor()), null, Runnable::run,
            new LogLedgers.Shared(LogLedgers.BOOKKEEPER, null, Runnable::run, new AtomicLong()),
            UndoneResetsTest.withoutSeals(Runnable::run)) {
        @Override
        public void reopenTopic() {
            reopenings++;
        }
    };

    private ManagedCursor cursor() {
        return (ManagedCursor) Proxy.newProxyInstance(getClass().getClassLoader(), new Class<?>[] {ManagedCursor.class},
                (self, method, arguments) -> switch (method.getName()) {
                    case "getMarkDeletedPosition" -> markDelete;
                    case "getPersistentMarkDeletedPosition" -> persistedMarkDelete;
                    case "getManagedLedger" -> ledger();
                    case "getProperties" -> properties;
                    case "isClosed" -> closed;
                    case "putProperty" -> {
                        properties.put((String) arguments[0], (Long) arguments[1]);
                        yield true;
                    }
                    case "getCursorProperties" -> cursorProperties;
                    case "putCursorProperty" -> {
                        if (refusal != null) {
                            yield CompletableFuture.failedFuture(refusal);
                        }
                        cursorProperties.put((String) arguments[0], (String) arguments[1]);
                        yield CompletableFuture.completedFuture(null);
                    }
                    case "asyncDelete" -> {
                        asyncDelete((Iterable<?>) arguments[0], (DeleteCallback) arguments[1]);
                        yield null;
                    }
                    default -> throw new UnsupportedOperationException(method.getName());
                });
    }

    private ManagedLedger ledger() {
        return (ManagedLedger) Proxy.newProxyInstance(getClass().getClassLoader(), new Class<?>[] {ManagedLedger.class},
                (self, method, arguments) -> {
                    if (method.getName().equals("getLastConfirmedEntry")) {
                        return lastConfirmed;
                    }
                    throw new UnsupportedOperationException(method.getName());
                });
    }

    /** As ManagedCursorImpl: it walks over the positions when it has its lock. */
    private void asyncDelete(Iterable<?> positions, DeleteCallback callback) {
        beforeLock.run();
        try {
            positions.forEach(position -> {
                deleted.add((Position) position);
                whileLocked.run();
            });
        } catch (IllegalStateException e) {
            callback.deleteFailed(new ManagedLedgerException(e), null);
            return;
        }
        written++;
        callback.deleteComplete(null);
    }

    @Test
    void theSealIsAPropertyOfTheMarkDeletePosition() {
        assertEquals(Seal.NONE, context.seal());
        assertTrue(context.putSeal(42));
        assertEquals(42, context.seal());
        assertEquals(Map.of("#pulsar.internal.tidegate.generation", 42L), properties);
        properties.clear();
        assertEquals(Seal.NONE, context.seal());
    }

    @Test
    void deletesUnderItsSeal() {
        context.putSeal(42);
        List<Boolean> done = new ArrayList<>();
        context.delete(List.of(new tidegate.pulsar.wire.Position(1, 2), new tidegate.pulsar.wire.Position(1, 3)), 42, done::add);
        assertEquals(List.of(PositionFactory.create(1, 2), PositionFactory.create(1, 3)), deleted);
        assertEquals(List.of(true), done);
    }

    @Test
    void aResetThatComesFirstIsSeenUnderTheCursorsLock() {
        context.putSeal(42);
        beforeLock = properties::clear;
        context.delete(List.of(new tidegate.pulsar.wire.Position(1, 2)), 42, done -> {});
        assertEquals(List.of(), deleted);
        assertEquals(0, written, "a record would come behind the reset's, with the position from before");
    }

    @Test
    void aResetThatBeginsWhileTheCursorDeletesHasItWriteNothing() {
        context.putSeal(42);
        whileLocked = properties::clear;
        List<Boolean> done = new ArrayList<>();
        context.delete(List.of(new tidegate.pulsar.wire.Position(1, 2), new tidegate.pulsar.wire.Position(1, 3)), 42, done::add);
        assertEquals(List.of(false), done);
        assertEquals(0, written);
    }

    @Test
    void aResetThatWaitsToBeStoredHasTheSealStill() {
        context.putSeal(42);
        persistedMarkDelete = PositionFactory.create(1, 2);
        beforeLock = () -> persistedMarkDelete = null;
        context.delete(List.of(new tidegate.pulsar.wire.Position(1, 3)), 42, done -> {});
        assertEquals(List.of(), deleted);
        assertEquals(0, written);
    }

    @Test
    void whatIsPersistedIsNotKnownWhileASeekHasTheCursorBehindIt() {
        tidegate.pulsar.wire.Position nowhere = new tidegate.pulsar.wire.Position(-1, -1);
        assertEquals(nowhere, context.persistedMarkDelete(), "a reset is under way");
        persistedMarkDelete = PositionFactory.create(1, 1);
        assertEquals(new tidegate.pulsar.wire.Position(1, 1), context.persistedMarkDelete());
        persistedMarkDelete = PositionFactory.create(3, 0);
        assertEquals(nowhere, context.persistedMarkDelete(), "an acknowledgement was written behind the seek");
        markDelete = PositionFactory.create(3, 0);
        assertEquals(new tidegate.pulsar.wire.Position(3, 0), context.persistedMarkDelete());
    }

    @Test
    void theTopicsEndIsTheManagedLedgersLastPosition() {
        assertEquals(new tidegate.pulsar.wire.Position(-1, -1), context.lastConfirmed(), "it does not say");
        lastConfirmed = PositionFactory.create(7, 41);
        assertEquals(new tidegate.pulsar.wire.Position(7, 41), context.lastConfirmed());
    }

    @Test
    void theOwnershipIsAPropertyOfTheCursor() {
        persistedMarkDelete = markDelete;
        assertNull(context.ownership());
        Ownership ownership = Ownership.parse(LIFE + ":3:01020304fcfdfeff");
        Random random = new Random(1);
        List<TrackerContext.Written> done = new ArrayList<>();
        context.putOwnership(ownership, done::add);
        assertEquals(ownership, context.ownership());
        assertEquals(Map.of("#pulsar.internal.tidegate.owner", LIFE + ":3:01020304fcfdfeff"), cursorProperties);
        refusal = new BadVersionException("another version");
        context.putOwnership(ownership.next(false, random), done::add);
        refusal = new MetaStoreException("no connection");
        context.putOwnership(ownership.next(false, random), done::add);
        assertEquals(List.of(TrackerContext.Written.DONE, TrackerContext.Written.CONFLICT, TrackerContext.Written.FAILED), done);
        assertEquals(ownership, context.ownership());
    }

    /** Pulsar would write it, and the next owner, having read the metadata by then, could never write them again. */
    @Test
    void nothingIsWrittenForACursorThatIsClosed() {
        persistedMarkDelete = markDelete;
        closed = true;
        List<TrackerContext.Written> done = new ArrayList<>();
        context.putOwnership(Ownership.parse(LIFE + ":3"), done::add);
        assertEquals(List.of(TrackerContext.Written.FAILED), done);
        assertEquals(Frame.LogAnswer.STALE, point("", "1;7;;bookkeeper").code());
        assertEquals(Map.of(), cursorProperties);
        closed = false;
        assertEquals(Frame.LogAnswer.OK, point("", "1;7;;bookkeeper").code());
        assertEquals(Map.of("#pulsar.internal.tidegate.log", "1;7;;bookkeeper"), cursorProperties);
    }

    @Test
    void aPaceThatIsRefusedFourTimesHasTheTopicReopened() {
        persistedMarkDelete = markDelete;
        refusal = new BadVersionException("another version");
        List<TrackerContext.Written> done = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            context.putPace(ReleasePace.PAUSED, done::add);
        }
        assertEquals(0, reopenings);
        context.putPace(ReleasePace.PAUSED, done::add);
        assertEquals(1, reopenings);
        assertEquals(Collections.nCopies(4, TrackerContext.Written.CONFLICT), done);
    }

    @Test
    void paceAndPointerHaveOneVersionOfTheMetadata() {
        persistedMarkDelete = markDelete;
        refusal = new BadVersionException("another version");
        for (int i = 0; i < 2; i++) {
            context.putPace(ReleasePace.PAUSED, written -> { });
            assertEquals(Frame.LogAnswer.AWAY, point("", "1;7;;bookkeeper").code());
        }
        assertEquals(1, reopenings);
        refusal = null;
        assertEquals(Frame.LogAnswer.OK, point("", "1;7;;bookkeeper").code());
        refusal = new BadVersionException("another version");
        for (int i = 0; i < 3; i++) {
            context.putPace(ReleasePace.PAUSED, written -> { });
        }
        assertEquals(1, reopenings);
    }

    private Frame.LogAnswer point(String former, String next) {
        return context.log().answer(new Frame.LogRequest(Frame.LogRequest.POINT, -1, -1, -1, former, next, ByteBuffer.allocate(0)))
                .join();
    }

    @Test
    void theLifeOfASubscriptionOfTheFirstTidegatesGoesOn() {
        cursorProperties.put("#pulsar.internal.tidegate.incarnation", LIFE);
        assertEquals(Ownership.parse(LIFE + ":0"), context.ownership());
        cursorProperties.put("#pulsar.internal.tidegate.owner", "nonsense");
        assertNull(context.ownership());
        assertFalse(cursorProperties.isEmpty());
    }
}
