package tidegate.pulsar.cursor;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;

import java.lang.reflect.Proxy;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.mledger.AsyncCallbacks.MarkDeleteCallback;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.PositionFactory;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import tidegate.pulsar.gate.Seal;

/**
 * Tests when a seal is stored, and when not; the test plays the cursor, as Pulsar 4.0.8's is. On a real broker:
 * tests/broker/test_36_forward_moves.py.
 */
class StoredSealsTest {
    private static final String SEAL = "#pulsar.internal.tidegate.generation";
    private static final Position THERE = PositionFactory.create(3, 4);

    private Map<String, Long> properties = new HashMap<>(Map.of(SEAL, 42L, "else", 7L));
    private int ranges = 1;
    private boolean closed;
    private boolean durable = true;
    /** The answer to a write of the cursor; null: Pulsar's limit has it kept in memory. */
    private boolean limited;
    private boolean resetting;
    private Position markDelete = THERE;
    private Position persisted = THERE;
    private final Deque<Runnable> written = new ArrayDeque<>();
    private final Deque<Runnable> thread = new ArrayDeque<>();
    private long nowNs;
    private int records;
    private final ManagedCursor cursor = cursor();
    private StoredSeals seals = seals(thread::add);

    private StoredSeals seals(Executor resets) {
        return new StoredSeals(new Random(1), new IndividualAcks(false), each -> resets, () -> nowNs);
    }

    private ManagedCursor cursor() {
        return (ManagedCursor) Proxy.newProxyInstance(getClass().getClassLoader(), new Class<?>[] {ManagedCursor.class},
                (self, method, arguments) -> switch (method.getName()) {
                    case "hashCode" -> 1;
                    case "equals" -> self == arguments[0];
                    case "toString" -> "cursor";
                    case "getProperties" -> properties;
                    case "getTotalNonContiguousDeletedMessagesRange" -> ranges;
                    case "getMarkDeletedPosition" -> markDelete;
                    case "getPersistentMarkDeletedPosition" -> persisted;
                    case "isClosed" -> closed;
                    case "isDurable" -> durable;
                    case "asyncMarkDelete" -> {
                        asyncMarkDelete((Position) arguments[0], properties(arguments[1]), (MarkDeleteCallback) arguments[2]);
                        yield null;
                    }
                    default -> throw new UnsupportedOperationException(method.getName());
                });
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Long> properties(Object given) {
        return (Map<String, Long>) given;
    }

    private void asyncMarkDelete(Position position, Map<String, Long> given, MarkDeleteCallback callback) {
        if (resetting || position.compareTo(markDelete) < 0) {
            callback.markDeleteFailed(new ManagedLedgerException("it is being reset, or has gone on"), null);
            return;
        }
        properties = given;
        if (limited) {
            callback.markDeleteComplete(null);
            return;
        }
        records++;
        written.add(() -> {
            persisted = position;
            callback.markDeleteComplete(null);
        });
    }

    private long seal() {
        return properties.getOrDefault(SEAL, Seal.NONE);
    }

    /** Some time goes by, and all due work is done. */
    private void look() {
        nowNs += TimeUnit.SECONDS.toNanos(2);
        seals.look();
        while (!thread.isEmpty()) {
            thread.remove().run();
        }
        while (!written.isEmpty()) {
            written.remove().run();
        }
    }

    @BeforeEach
    void itIsKept() {
        seals.keep(cursor);
    }

    @Test
    void theOneThatItWasLoadedWithIsStored() {
        look();
        assertEquals(0, records);
        assertEquals(42, seal());
    }

    @Test
    void whatMovesMarkDeleteForwardAndTakesTheSealIsStoredAgainWithAnother() {
        markDelete = PositionFactory.create(3, 6);
        persisted = markDelete;
        properties = Map.of();
        look();
        assertEquals(1, records);
        assertNotEquals(Seal.NONE, seal());
        assertNotEquals(42, seal(), "a reset may have come first");
        look();
        assertEquals(1, records);
    }

    @Test
    void whatElseIsThereIsKept() {
        properties = Map.of("else", 7L);
        look();
        assertEquals(7L, properties.get("else"));
    }

    @Test
    void aResetThatHasTakenEverythingIsStoredOnceMoreWithoutIt() {
        look();
        properties = Map.of();
        ranges = 0;
        look();
        assertEquals(1, records, "its own record has what it takes back");
        properties = Map.of();
        look();
        assertEquals(1, records, "nothing is beyond, so cumulative acknowledgements cost nothing");
    }

    /** A reset that is repeated once it was loaded: what it takes back is gone from memory when it is done. */
    @Test
    void aResetThatIsDoneIsStoredOnceMoreWithoutWhatItTookBack() {
        ranges = 0;
        properties = Map.of();
        seals = seals(thread::add);
        seals.keepReset(cursor);
        look();
        assertEquals(1, records);
        assertNotEquals(Seal.NONE, seal());
        properties = Map.of();
        look();
        assertEquals(1, records, "nothing is beyond any more");
    }

    @Test
    void aSealPutBehindAResetIsNotTakenForStored() {
        ranges = 0;
        seals = seals(thread::add);
        seals.keepReset(cursor);
        look();
        assertEquals(1, records);
        assertEquals(42, seal());
    }

    @Test
    void whereNothingIsAcknowledgedBeyondThereIsNothingToStore() {
        ranges = 0;
        properties = Map.of();
        seals = seals(thread::add);
        seals.keep(cursor);
        look();
        assertEquals(0, records);
    }

    @Test
    void oneThatATrackerHasPutIsStored() {
        properties = new HashMap<>(Map.of(SEAL, 43L));
        look();
        assertEquals(1, records);
        assertEquals(43, seal());
    }

    @Test
    void amidAResetNoneIsPut() {
        properties = Map.of();
        persisted = null;
        look();
        assertEquals(Seal.NONE, seal());
        persisted = THERE;
        resetting = true;
        look();
        assertEquals(Seal.NONE, seal(), "the reset's record is written, and what it takes back is there still");
        resetting = false;
        look();
        assertNotEquals(Seal.NONE, seal());
    }

    @Test
    void noneIsPutButOnTheThreadOnWhichResetsBegin() {
        properties = Map.of();
        nowNs += TimeUnit.SECONDS.toNanos(2);
        seals.look();
        assertEquals(Seal.NONE, seal());
        assertEquals(1, thread.size());
        seals.look();
        assertEquals(1, thread.size(), "it is asked for once");
    }

    @Test
    void whatPulsarsLimitKeepsInMemoryIsStoredLater() {
        limited = true;
        properties = Map.of();
        look();
        long put = seal();
        assertNotEquals(Seal.NONE, put);
        limited = false;
        look();
        assertEquals(1, records);
        assertEquals(put, seal());
        look();
        assertEquals(1, records);
    }

    @Test
    void whatIsTakenBeforeItIsWrittenIsStoredAnew() {
        properties = Map.of();
        nowNs += TimeUnit.SECONDS.toNanos(2);
        seals.look();
        thread.remove().run();
        long put = seal();
        properties = Map.of();
        written.remove().run();
        look();
        assertEquals(2, records);
        assertNotEquals(Seal.NONE, seal());
        assertNotEquals(put, seal());
    }

    @Test
    void whoIsNeverAnsweredIsAskedAgain() {
        properties = Map.of();
        nowNs += TimeUnit.SECONDS.toNanos(2);
        seals.look();
        thread.remove().run();
        written.clear();
        properties = Map.of();
        nowNs += TimeUnit.SECONDS.toNanos(4);
        look();
        assertEquals(2, records);
    }

    @Test
    void behindWhatPulsarTakesForPersistedNothingIsStored() {
        persisted = PositionFactory.create(3, 9);
        properties = Map.of();
        look();
        assertEquals(0, records);
        assertEquals(Seal.NONE, seal());
    }

    @Test
    void whatIsClosedOrNotDurableIsLeftAlone() {
        closed = true;
        properties = Map.of();
        look();
        assertEquals(0, records);
        assertEquals(0, seals.size());
        closed = false;
        durable = false;
        seals.keep(cursor);
        assertEquals(0, seals.size());
    }

    @Test
    void whereTheThreadIsNotKnownNoneIsPut() {
        seals = seals(null);
        seals.keep(cursor);
        assertEquals(0, seals.size());
    }
}
