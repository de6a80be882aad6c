package tidegate.pulsar.cursor;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Proxy;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.mledger.AsyncCallbacks.MarkDeleteCallback;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.PositionFactory;
import org.junit.jupiter.api.Test;

/**
 * Tests which loaded cursors are a reset's, and their repair; the test plays the cursor. On a real broker:
 * tests/broker/test_35_resets.py.
 */
public class UndoneResetsTest {
    private static final String LIFE = "000102030405060708090a0b0c0d0e0f";
    private static final Position LOADED = PositionFactory.create(3, 4);

    private final Map<String, Long> properties = new HashMap<>();
    private String owner = LIFE + ":+3:010203040506070811121314";
    private int ranges = 1;
    private long backlog = 9;
    private boolean closed;
    private Position markDelete = LOADED;
    private Position persisted = LOADED;
    private final ManagedCursor cursor = cursor();
    private final Deque<Runnable> background = new ArrayDeque<>();
    private final List<Position> resets = new ArrayList<>();
    private CompletableFuture<Void> answer = new CompletableFuture<>();
    /** Properties of the records that the cursor was asked to store. */
    private final List<Object> stored = new ArrayList<>();
    private final StoredSeals seals = new StoredSeals(new Random(1), new IndividualAcks(false), each -> Runnable::run, () -> 0);
    private UndoneResets undone = undone(false, background::add);

    /** Of cursors of which no seal is kept. */
    public static UndoneResets withoutSeals(Executor background) {
        IndividualAcks individual = new IndividualAcks(false);
        return new UndoneResets(individual, new StoredSeals(new Random(1), individual, each -> null, () -> 0), background);
    }

    private UndoneResets undone(boolean batchIndexes, Executor executor) {
        return new UndoneResets(new IndividualAcks(batchIndexes), seals, executor);
    }

    private ManagedCursor cursor() {
        return (ManagedCursor) Proxy.newProxyInstance(getClass().getClassLoader(), new Class<?>[] {ManagedCursor.class},
                (self, method, arguments) -> switch (method.getName()) {
                    case "hashCode" -> 1;
                    case "equals" -> self == arguments[0];
                    case "toString" -> "cursor";
                    case "putCursorProperty" -> {
                        owner = (String) arguments[1];
                        yield CompletableFuture.completedFuture(null);
                    }
                    case "getCursorProperties" -> owner == null ? Map.of() : Map.of("#pulsar.internal.tidegate.owner", owner);
                    case "getProperties" -> properties;
                    case "getTotalNonContiguousDeletedMessagesRange" -> ranges;
                    case "getNumberOfEntriesInBacklog" -> backlog;
                    case "getMarkDeletedPosition" -> markDelete;
                    case "getPersistentMarkDeletedPosition" -> persisted;
                    case "isClosed" -> closed;
                    case "isDurable" -> true;
                    case "asyncMarkDelete" -> {
                        stored.add(arguments[1]);
                        ((MarkDeleteCallback) arguments[2]).markDeleteComplete(null);
                        yield null;
                    }
                    default -> throw new UnsupportedOperationException(method.getName());
                });
    }

    private void seal(long seal) {
        properties.put("#pulsar.internal.tidegate.generation", seal);
    }

    private CompletableFuture<Void> reset(Position to) {
        resets.add(to);
        return answer;
    }

    private void look() {
        undone.look(cursor, this::reset, Runnable::run);
    }

    private void assertLeftAlone() {
        look();
        assertEquals(List.of(), resets);
        assertFalse(undone.isPending(cursor));
    }

    /** Waits for a try that comes after a pause. */
    private void runLater() throws InterruptedException {
        long untilNs = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
        Runnable next = null;
        while (next == null && System.nanoTime() < untilNs) {
            Thread.sleep(10);
            synchronized (background) {
                next = background.poll();
            }
        }
        assertTrue(next != null, "nothing is tried again");
        next.run();
    }

    private void inBackground(Runnable task) {
        synchronized (background) {
            background.add(task);
        }
    }

    @Test
    void acknowledgementsWithoutTheSealThatWasThereAreAResets() {
        look();
        assertEquals(List.of(LOADED.getNext()), resets);
        assertFalse(undone.wasLoadedSealed(cursor));
        assertTrue(undone.isPending(cursor));
        assertEquals(0, seals.size(), "a seal would be stored with what is to be taken back");
        answer.complete(null);
        assertFalse(undone.isPending(cursor));
        assertEquals(1, seals.size());
    }

    /** The record of the repeated reset has what it takes back: a kill before the next one would have it repeated once more. */
    @Test
    void aRepeatedResetIsFollowedByARecordWithoutWhatItTookBack() {
        look();
        seals.look();
        assertEquals(List.of(), stored);
        ranges = 0;
        answer.complete(null);
        seals.look();
        assertEquals(1, stored.size());
        assertTrue(((Map<?, ?>) stored.get(0)).containsKey("#pulsar.internal.tidegate.generation"));
    }

    @Test
    void aResetOfSomebodyElseIsFollowedByOneToo() throws InterruptedException {
        undone = undone(false, this::inBackground);
        undone.look(cursor, this::reset, this::inBackground);
        ranges = 0;
        runLater();
        seals.look();
        assertEquals(List.of(), resets);
        assertEquals(1, stored.size());
    }

    @Test
    void aCursorThatNobodyHasClaimedOrStoredIsNew() {
        owner = null;
        persisted = null;
        look();
        assertTrue(undone.isNew(cursor));
        owner = LIFE + ":3";
        look();
        assertTrue(undone.isNew(cursor), "it was claimed since, and not stored");
        undone.noteStored(cursor);
        assertFalse(undone.isNew(cursor));
    }

    @Test
    void aCursorThatWasClaimedOrStoredIsNotNew() {
        persisted = null;
        look();
        assertFalse(undone.isNew(cursor), "a reset is under way");
        undone = undone(false, background::add);
        owner = null;
        persisted = LOADED;
        look();
        assertFalse(undone.isNew(cursor), "it is from before Tidegate");
    }

    @Test
    void whatWasAcknowledgedToTheEndIsToComeAgainToo() {
        backlog = 0;
        look();
        assertEquals(1, resets.size());
    }

    @Test
    void aCursorThatHasItsSealIsLeftAlone() {
        seal(42);
        assertLeftAlone();
        assertTrue(undone.wasLoadedSealed(cursor));
        assertEquals(1, seals.size(), "also where it gets no tracker: what takes the seal there must not look like a reset");
    }

    @Test
    void aCursorFromBeforeItsFirstSealKeepsItsAcknowledgements() {
        owner = LIFE + ":3:010203040506070811121314";
        assertLeftAlone();
        assertFalse(undone.wasLoadedSealed(cursor));
    }

    @Test
    void thatTheAcknowledgementsAreSealedIsWrittenBeforeTheFirstClaim() {
        owner = LIFE + ":3:010203040506070811121314";
        seal(42);
        assertLeftAlone();
        background.remove().run();
        assertEquals(LIFE + ":+3:010203040506070811121314", owner);
    }

    @Test
    void aCursorThatNobodyHasOwnedKeepsItsAcknowledgements() {
        owner = null;
        assertLeftAlone();
    }

    @Test
    void whatHasNothingToTakeBackIsLeftAlone() {
        ranges = 0;
        assertLeftAlone();
    }

    @Test
    void singleMessagesOfABatchAreNotToldOf() {
        ranges = 0;
        undone = undone(true, background::add);
        look();
        assertEquals(1, resets.size(), "some may be acknowledged");
    }

    @Test
    void whereNothingIsLeftToReadThereIsNoBatchEither() {
        ranges = 0;
        backlog = 0;
        undone = undone(true, background::add);
        assertLeftAlone();
    }

    @Test
    void whoComesFirstLooks() {
        undone.look(cursor, this::reset, background::add);
        assertTrue(undone.isPending(cursor), "a tracker that is made now must not put a seal");
        seal(42);
        look();
        assertEquals(List.of(), resets, "it is begun where no lock is held");
        background.remove().run();
        assertEquals(1, resets.size());
        assertFalse(undone.wasLoadedSealed(cursor));
    }

    @Test
    void aResetThatFailsIsTriedAgain() throws InterruptedException {
        undone = undone(false, this::inBackground);
        answer = CompletableFuture.failedFuture(new IllegalStateException("somebody else resets it"));
        look();
        assertTrue(undone.isPending(cursor));
        answer = CompletableFuture.completedFuture(null);
        runLater();
        assertEquals(2, resets.size());
        assertFalse(undone.isPending(cursor));
    }

    @Test
    void itGoesToWhereItWasLoadedWhateverWasAcknowledgedSince() throws InterruptedException {
        undone = undone(false, this::inBackground);
        answer = CompletableFuture.failedFuture(new IllegalStateException("the bookies are away"));
        undone.look(cursor, this::reset, this::inBackground);
        markDelete = PositionFactory.create(3, 9);
        ranges = 0;
        runLater();
        answer = CompletableFuture.completedFuture(null);
        runLater();
        assertEquals(List.of(LOADED.getNext(), LOADED.getNext()), resets);
        assertFalse(undone.isPending(cursor));
    }

    @Test
    void aResetThatThrowsIsTriedAgain() throws InterruptedException {
        undone = undone(false, this::inBackground);
        undone.look(cursor, to -> {
            throw new IllegalStateException("it is no cursor for that");
        }, Runnable::run);
        assertTrue(undone.isPending(cursor));
        ranges = 0;
        runLater();
        assertFalse(undone.isPending(cursor));
    }

    @Test
    void whatSomebodyElseHasResetMeanwhileIsDone() throws InterruptedException {
        undone = undone(false, this::inBackground);
        answer = CompletableFuture.failedFuture(new IllegalStateException("somebody else resets it"));
        look();
        ranges = 0;
        runLater();
        assertEquals(1, resets.size());
        assertFalse(undone.isPending(cursor));
    }

    @Test
    void whatSomebodyElseHasResetBeforeTheFirstTryIsNotTakenBack() throws InterruptedException {
        undone = undone(false, this::inBackground);
        undone.look(cursor, this::reset, this::inBackground);
        markDelete = PositionFactory.create(3, -1);
        ranges = 0;
        runLater();
        assertEquals(List.of(), resets);
        assertFalse(undone.isPending(cursor));
    }

    @Test
    void aCursorThatIsClosedIsTheNextOwners() throws InterruptedException {
        undone = undone(false, this::inBackground);
        answer = CompletableFuture.failedFuture(new IllegalStateException("it is being closed"));
        look();
        closed = true;
        runLater();
        assertEquals(1, resets.size());
        assertTrue(undone.isPending(cursor));
    }
}
