package tidegate.pulsar.cursor;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Proxy;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.bookkeeper.mledger.AsyncCallbacks.MarkDeleteCallback;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.ManagedLedgerException.BadVersionException;
import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.PositionFactory;
import org.apache.pulsar.broker.service.BrokerServiceException.SubscriptionBusyException;
import org.junit.jupiter.api.Test;
import tidegate.pulsar.wire.Ownership;

/** Our writes and a reset, with {@link RefusedResets}; the test plays the cursor. */
class CursorPropertiesTest {
    private static final Position BEFORE = PositionFactory.create(3, 4);

    private final BlockingQueue<Runnable> background = new LinkedBlockingQueue<>();
    private final List<Position> resets = new ArrayList<>();
    private CompletableFuture<Void> write = new CompletableFuture<>();
    private CompletableFuture<Void> resetAnswer = new CompletableFuture<>();
    private Position persisted = BEFORE;
    private int writes;
    private boolean closed;
    private boolean durable = true;
    private boolean consumers = true;
    private Position markDelete = BEFORE;
    private Runnable duringReset = () -> {};
    private final Played subscription = new Played();
    private MarkDeleteCallback storing;
    private final ManagedCursor cursor = (ManagedCursor) Proxy.newProxyInstance(getClass().getClassLoader(),
            new Class<?>[] {ManagedCursor.class}, (self, method, arguments) -> switch (method.getName()) {
                case "toString" -> "cursor";
                case "getMarkDeletedPosition" -> markDelete;
                case "getPersistentMarkDeletedPosition" -> persisted;
                case "isClosed" -> closed;
                case "isDurable" -> durable;
                case "getProperties" -> Map.of("seal", 42L);
                case "asyncMarkDelete" -> {
                    assertEquals(List.of(BEFORE, Map.of("seal", 42L)), List.of(arguments[0], arguments[1]));
                    storing = (MarkDeleteCallback) arguments[2];
                    yield null;
                }
                case "putCursorProperty" -> {
                    writes++;
                    yield write;
                }
                default -> throw new UnsupportedOperationException(method.getName());
            });

    private final class Played implements RefusedResets.Subscription {
        private boolean isNew;

        @Override
        public boolean isNew() {
            return isNew;
        }

        @Override
        public void stored() {
            isNew = false;
        }

        @Override
        public boolean hasConsumers() {
            return consumers;
        }

        @Override
        public CompletableFuture<Void> reset(Position position) {
            resets.add(position);
            duringReset.run();
            return resetAnswer;
        }
    }

    private CursorProperties properties() {
        return new CursorProperties(cursor, subscription, background::add);
    }

    private CursorProperties propertiesOfANewCursor() {
        persisted = null;
        subscription.isNew = true;
        return properties();
    }

    private void aResetMeetsAWrite() {
        properties().put("key", "value");
        persisted = null;
        write.complete(null);
    }

    /** Runs the next task that waits for a pause. */
    private void runNext() throws InterruptedException {
        Runnable next = background.poll(30, TimeUnit.SECONDS);
        assertNotNull(next, "nothing more is done");
        next.run();
    }

    @Test
    void aWriteThatIsNeverAnsweredFails() {
        CompletableFuture<Void> put = new CursorProperties(cursor, subscription, background::add, 20).put("key", "value");
        ExecutionException failure = assertThrows(ExecutionException.class, () -> put.get(20, TimeUnit.SECONDS));
        assertInstanceOf(TimeoutException.class, failure.getCause());
        assertFalse(write.isDone(), "it is Pulsar's");
    }

    @Test
    void aWriteThatNoResetMeetsIsAllThereIs() {
        CompletableFuture<Void> put = properties().put("key", "value");
        assertFalse(put.isDone());
        write.complete(null);
        assertTrue(put.isDone());
        assertEquals(List.of(), List.copyOf(background));
    }

    @Test
    void aNewCursorOfWhichPulsarNeverSaysThatItIsStoredIsGivenUp() throws InterruptedException {
        persisted = null;
        subscription.isNew = true;
        CompletableFuture<Void> put = new CursorProperties(cursor, subscription, background::add, 10).put("key", "value");
        assertNotNull(storing);
        assertFalse(put.isDone());
        runNext();
        assertTrue(put.isCompletedExceptionally());
        assertEquals(0, writes);
    }

    @Test
    void nothingIsWrittenWhileAResetIsUnderWay() {
        CursorProperties properties = properties();
        persisted = null;
        assertTrue(properties.put("key", "value").isCompletedExceptionally());
        assertEquals(0, writes);
        persisted = BEFORE;
        properties.put("key", "value");
        assertEquals(1, writes);
    }

    @Test
    void aResetMayBeUnderWayBeforeAnythingIsAskedFor() {
        persisted = null;
        assertTrue(properties().put("key", "value").isCompletedExceptionally());
        assertEquals(0, writes);
    }

    @Test
    void aResetThatWasRefusedForSomebodyElsesWriteIsUndoneToo() throws InterruptedException {
        CursorProperties properties = properties();
        persisted = null;
        properties.put("key", "value");
        properties.put("key", "value");
        assertEquals(1, background.size(), "one is enough");
        runNext();
        assertEquals(List.of(BEFORE.getNext()), resets);
        resetAnswer.complete(null);
        properties.put("key", "value");
        assertEquals(1, background.size(), "it was refused again");
    }

    @Test
    void aNewCursorIsStoredFirst() throws InterruptedException {
        CompletableFuture<Void> put = propertiesOfANewCursor().put("key", "value");
        persisted = BEFORE;
        storing.markDeleteComplete(null);
        assertEquals(0, writes, "Pulsar may have a lock");
        runNext();
        assertEquals(1, writes);
        assertFalse(subscription.isNew);
        write.complete(null);
        assertTrue(put.isDone());
    }

    @Test
    void aNewCursorIsNotStoredWhereAResetMayHaveSentTheConsumersAway() throws InterruptedException {
        consumers = false;
        CompletableFuture<Void> put = propertiesOfANewCursor().put("key", "value");
        runNext();
        assertTrue(put.isCompletedExceptionally());
        assertEquals(null, storing);
        assertEquals(0, writes);
    }

    @Test
    void nothingIsWrittenWhereANewCursorIsNotStored() throws InterruptedException {
        CursorProperties properties = propertiesOfANewCursor();
        CompletableFuture<Void> put = properties.put("key", "value");
        storing.markDeleteFailed(new ManagedLedgerException("Reset cursor in progress"), null);
        runNext();
        assertTrue(put.isCompletedExceptionally());
        put = properties.put("key", "value");
        storing.markDeleteComplete(null);
        runNext();
        assertTrue(put.isCompletedExceptionally(), "a reset came between");
        assertEquals(0, writes);
    }

    @Test
    void whatIsNotDurableIsNotStored() {
        durable = false;
        propertiesOfANewCursor().put("key", "value");
        write.complete(null);
        assertEquals(1, writes);
        assertEquals(List.of(), List.copyOf(background));
    }

    @Test
    void aResetThatMetAWriteAndWasRefusedIsUndone() throws InterruptedException {
        aResetMeetsAWrite();
        runNext();
        assertEquals(List.of(BEFORE.getNext()), resets);
        resetAnswer.complete(null);
        persisted = BEFORE;
        assertEquals(List.of(), List.copyOf(background));
    }

    @Test
    void soItIsWhereTheWriteWasRefusedToo() throws InterruptedException {
        properties().put("key", "value");
        persisted = null;
        write.completeExceptionally(new BadVersionException("another version"));
        runNext();
        assertEquals(1, resets.size());
    }

    @Test
    void aResetThatIsStillUnderWayIsLetBe() throws InterruptedException {
        aResetMeetsAWrite();
        resetAnswer.completeExceptionally(new SubscriptionBusyException("Failed to fence subscription"));
        runNext();
        runNext();
        assertEquals(2, resets.size());
        persisted = PositionFactory.create(1, 1);
        runNext();
        assertEquals(2, resets.size(), "it was done");
        assertEquals(null, background.poll(300, TimeUnit.MILLISECONDS));
    }

    @Test
    void aRefusalIsUndoneAsSoonAsTheResetHasEnded() throws InterruptedException {
        aResetMeetsAWrite();
        resetAnswer = CompletableFuture.failedFuture(new SubscriptionBusyException("Failed to fence subscription"));
        for (int tries = 0; tries < 20; tries++) {
            runNext();
        }
        resetAnswer = CompletableFuture.failedFuture(new ManagedLedgerException("no bookie"));
        runNext();
        resetAnswer = CompletableFuture.completedFuture(null);
        runNext();
        assertEquals(22, resets.size());
        assertEquals(null, background.poll(300, TimeUnit.MILLISECONDS));
    }

    @Test
    void aResetThatEndsRightBeforeTheUndoingIsPutBack() throws InterruptedException {
        aResetMeetsAWrite();
        Position users = PositionFactory.create(1, 1);
        duringReset = () -> {
            markDelete = users;
            duringReset = () -> {};
        };
        resetAnswer = CompletableFuture.completedFuture(null);
        runNext();
        assertEquals(List.of(BEFORE.getNext(), users.getNext()), resets);
    }

    @Test
    void whatIsOwedToAUserIsTriedAgain() throws InterruptedException {
        aResetMeetsAWrite();
        Position users = PositionFactory.create(1, 1);
        CompletableFuture<Void> first = new CompletableFuture<>();
        resetAnswer = first;
        duringReset = () -> markDelete = users;
        runNext();
        resetAnswer = CompletableFuture.failedFuture(new ManagedLedgerException("no bookie"));
        persisted = BEFORE;
        markDelete = BEFORE;
        duringReset = () -> {};
        first.complete(null);
        resetAnswer = CompletableFuture.completedFuture(null);
        runNext();
        assertEquals(List.of(BEFORE.getNext(), users.getNext(), users.getNext()), resets);
        assertEquals(null, background.poll(300, TimeUnit.MILLISECONDS));
    }

    @Test
    void aClosedCursorIsTheNextOwners() {
        CursorProperties properties = properties();
        properties.put("key", "value");
        persisted = null;
        closed = true;
        write.complete(null);
        assertEquals(List.of(), List.copyOf(background));
        assertTrue(properties.put("key", "value").isCompletedExceptionally());
        assertEquals(1, writes);
    }

    /**
     * A cursor as Pulsar 4.0 has it: it makes the new properties from those that it knows, and takes the version then. Its store
     * answers when the test says so.
     */
    private static final class Versioned {
        private final Deque<Runnable> answers = new ArrayDeque<>();
        private Map<String, String> stored = Map.of();
        private int version;
        private Runnable beforeVersion = () -> { };
        private final ManagedCursor cursor = (ManagedCursor) Proxy.newProxyInstance(Versioned.class.getClassLoader(),
                new Class<?>[] {ManagedCursor.class}, (self, method, arguments) -> switch (method.getName()) {
                    case "getPersistentMarkDeletedPosition" -> BEFORE;
                    case "isClosed" -> false;
                    case "getCursorProperties" -> stored;
                    case "putCursorProperty" -> put((String) arguments[0], (String) arguments[1]);
                    default -> throw new UnsupportedOperationException(method.getName());
                });

        private CompletableFuture<Void> put(String key, String value) {
            Map<String, String> made = new HashMap<>(stored);
            made.put(key, value);
            beforeVersion.run();
            int taken = version;
            CompletableFuture<Void> answer = new CompletableFuture<>();
            answers.add(() -> {
                if (taken == version) {
                    stored = Map.copyOf(made);
                    version++;
                    answer.complete(null);
                } else {
                    answer.completeExceptionally(new BadVersionException("another version"));
                }
            });
            return answer;
        }

        private void answer() {
            answers.remove().run();
        }
    }

    @Test
    void aWriteTakesNoPropertyAwayThatIsStoredWhileItIsMade() {
        Versioned played = new Versioned();
        new CursorProperties(played.cursor, subscription, Runnable::run).put("overrides", "1;7");
        played.beforeVersion = () -> {
            if (played.answers.size() == 1) {
                played.answer();
            }
        };
        new CursorProperties(played.cursor, subscription, Runnable::run).put("pace", "PAUSED:0");
        while (!played.answers.isEmpty()) {
            played.answer();
        }
        assertEquals(Map.of("overrides", "1;7", "pace", "PAUSED:0"), played.stored);
    }

    /** Both look before either is written. */
    @Test
    void ofTwoWritesWithTheSameConditionTheSecondIsNotDone() {
        Versioned played = new Versioned();
        CursorProperties properties = new CursorProperties(played.cursor, subscription, Runnable::run);
        CompletableFuture<Boolean> first = properties.putIf(() -> played.stored.isEmpty(), "key", "1");
        CompletableFuture<Boolean> second = properties.putIf(() -> played.stored.isEmpty(), "key", "2");
        played.answer();
        assertTrue(first.getNow(false));
        assertFalse(second.getNow(true));
        assertEquals(Map.of("key", "1"), played.stored);
    }

    @Test
    void aWriteBehindOneThatFailsIsDone() {
        Versioned played = new Versioned();
        CursorProperties properties = new CursorProperties(played.cursor, subscription, Runnable::run);
        CompletableFuture<Void> refused = properties.put("key", "1");
        CompletableFuture<Void> next = properties.put("key", "2");
        played.version++;
        played.answer();
        assertTrue(refused.isCompletedExceptionally());
        played.answer();
        assertTrue(next.isDone());
        assertEquals(Map.of("key", "2"), played.stored);
    }

    @Test
    void whatSaysThatThereIsASealTakesNoLaterClaimBack() {
        Versioned played = new Versioned();
        String life = "000102030405060708090a0b0c0d0e0f";
        played.stored = Map.of(CursorRecord.OWNERSHIP, life + ":3:010203040506070809101112");
        Ownership claimed = Ownership.parse(life + ":4:01020304050607080910111213141516");
        CursorProperties properties = new CursorProperties(played.cursor, subscription, Runnable::run);
        properties.put(CursorRecord.OWNERSHIP, claimed.toString());
        properties.noteSealed();
        while (!played.answers.isEmpty()) {
            played.answer();
        }
        assertEquals(claimed.withSeal(), CursorRecord.ownership(played.cursor));
    }
}
