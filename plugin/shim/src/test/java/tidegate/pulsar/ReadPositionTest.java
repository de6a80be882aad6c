package tidegate.pulsar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Proxy;
import java.util.HashSet;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedger;
import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.PositionFactory;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import tidegate.pulsar.position.PositionSet;

/** Tests how the cursor passes held positions; the test plays cursor and ledger. */
class ReadPositionTest {
    private final PositionSet held = new PositionSet();
    /** The number of entries of each. */
    private final TreeMap<Long, Long> ledgers = new TreeMap<>();
    private final Set<Position> deleted = new HashSet<>();
    private Position readPosition = PositionFactory.create(1, 5);
    private Position sought;
    private boolean reading;
    private boolean terminated;
    private boolean hasMore;
    /** True if Pulsar has left a read waiting. */
    private boolean leftWaiting;
    private final ReadPosition position = new ReadPosition(cursor(), () -> reading);

    private ManagedCursor cursor() {
        ManagedLedger ledger = (ManagedLedger) Proxy.newProxyInstance(getClass().getClassLoader(),
                new Class<?>[] {ManagedLedger.class}, (self, method, arguments) -> switch (method.getName()) {
                    case "isTerminated" -> terminated;
                    case "getNextValidPosition" -> next((Position) arguments[0]);
                    default -> throw new UnsupportedOperationException(method.getName());
                });
        return (ManagedCursor) Proxy.newProxyInstance(getClass().getClassLoader(), new Class<?>[] {ManagedCursor.class},
                (self, method, arguments) -> switch (method.getName()) {
                    case "getReadPosition" -> readPosition;
                    case "getManagedLedger" -> ledger;
                    case "isMessageDeleted" -> deleted.contains((Position) arguments[0]);
                    case "hasMoreEntries" -> hasMore;
                    case "cancelPendingReadRequest" -> {
                        boolean was = leftWaiting;
                        leftWaiting = false;
                        yield was;
                    }
                    case "seek" -> {
                        sought = (Position) arguments[0];
                        yield null;
                    }
                    default -> throw new UnsupportedOperationException(method.getName());
                });
    }

    /** As ManagedLedgerImpl: the next position, in the last ledger also the one behind its last entry. */
    private Position next(Position position) {
        Long entries = ledgers.get(position.getLedgerId());
        boolean isLast = ledgers.higherKey(position.getLedgerId()) == null;
        if (entries != null && position.getEntryId() + 1 < (isLast ? entries + 1 : entries)) {
            return PositionFactory.create(position.getLedgerId(), position.getEntryId() + 1);
        }
        Long following = ledgers.higherKey(position.getLedgerId());
        return following == null
                ? PositionFactory.create(ledgers.lastKey(), ledgers.lastEntry().getValue())
                : PositionFactory.create(following, 0);
    }

    private void hold(long ledgerId, long first, long last) {
        for (long entry = first; entry <= last; entry++) {
            held.add(ledgerId, entry);
        }
    }

    @BeforeEach
    void threeLedgers() {
        ledgers.put(1L, 5_000L);
        ledgers.put(4L, 5_000L);
        ledgers.put(9L, 5_000L);
    }

    @Test
    void passesWhatIsHeldOverTheEndsOfClosedLedgers() {
        hold(1, 5, 4_999);
        hold(4, 0, 4_999);
        hold(9, 0, 99);
        position.pass(held);
        assertEquals(PositionFactory.create(9, 99), sought);
    }

    @Test
    void stopsBeforeTheFirstThatNobodyHolds() {
        hold(1, 5, 4_999);
        hold(4, 0, 2_999);
        hold(4, 3_001, 4_999);
        position.pass(held);
        assertEquals(PositionFactory.create(4, 2_999), sought);
    }

    @Test
    void passesWhatIsAcknowledgedBetweenThem() {
        hold(1, 5, 3_000);
        deleted.add(PositionFactory.create(1, 3_001));
        deleted.add(PositionFactory.create(1, 3_002));
        hold(1, 3_003, 4_000);
        position.pass(held);
        assertEquals(PositionFactory.create(1, 4_000), sought);
    }

    @Test
    void theTopicsLastEntryIsLeftToRead() {
        ledgers.tailMap(4L).clear();
        hold(1, 5, 4_000);
        for (long entry = 4_001; entry < 5_000; entry++) {
            deleted.add(PositionFactory.create(1, entry));
        }
        position.pass(held);
        assertEquals(PositionFactory.create(1, 4_000), sought, "behind the end a read waits, and a rewind with it");
    }

    @Test
    void aLedgerThatIsGoneIsLeft() {
        ledgers.remove(1L);
        hold(1, 5, 4_999);
        hold(4, 0, 2_999);
        position.pass(held);
        assertEquals(PositionFactory.create(4, 2_999), sought);
    }

    @Test
    void aReadThatIsOnItsWayIsNotInterferedWith() {
        hold(1, 5, 4_999);
        reading = true;
        position.pass(held);
        assertNull(sought);
    }

    @Test
    void theEndOfTheRowIsNotPassedAgain() {
        hold(1, 5, 4_000);
        position.pass(held);
        readPosition = sought;
        sought = null;
        position.pass(held);
        assertNull(sought);
    }

    @Test
    void fewHeldOnesBetweenManyAcknowledgedOnesArePassed() {
        hold(1, 5, 6);
        for (long entry = 7; entry < 3_000; entry++) {
            deleted.add(PositionFactory.create(1, entry));
        }
        hold(1, 3_000, 3_001);
        position.pass(held);
        assertEquals(PositionFactory.create(1, 3_001), sought);
    }

    @Test
    void fewArePulsarsToSkip() {
        hold(1, 5, 90);
        position.pass(held);
        assertNull(sought);
    }

    @Test
    void whereNothingIsHeldNothingIsLookedAt() {
        readPosition = PositionFactory.create(1, -1);
        hold(1, 0, 4_999);
        position.pass(held);
        assertNull(sought);
    }

    /** Everything between is held or acknowledged, and nothing is at the place itself. */
    @ParameterizedTest
    @ValueSource(longs = {1, 2, 3, 4, 5, 6, 7, 8})
    void passesNothingElse(long seed) {
        Random random = new Random(seed);
        readPosition = PositionFactory.create(1, 0);
        for (long ledgerId : new long[] {1, 4, 9}) {
            for (long entry = 0; entry < 5_000; entry++) {
                if (random.nextInt(3_000) > 0) {
                    held.add(ledgerId, entry);
                } else if (random.nextBoolean()) {
                    deleted.add(PositionFactory.create(ledgerId, entry));
                }
            }
        }
        held.add(1, 0);
        position.pass(held);
        if (sought == null) {
            return;
        }
        for (long ledgerId : new long[] {1, 4, 9}) {
            for (long entry = 0; entry < 5_000; entry++) {
                Position one = PositionFactory.create(ledgerId, entry);
                if (one.compareTo(sought) < 0 && !held.contains(ledgerId, entry)) {
                    assertEquals(true, deleted.contains(one), one + " was passed");
                }
            }
        }
        assertTrue(held.contains(sought.getLedgerId(), sought.getEntryId()));
    }

    @Test
    void whatIsReplayedIsPassedToTheLastHoweverLittleItIs() {
        hold(1, 5, 5);
        position.passReplayed(held);
        assertEquals(PositionFactory.create(1, 6), sought);
    }

    @Test
    void whatIsReplayedIsPassedOverTheEndOfALedger() {
        hold(1, 5, 4_999);
        hold(4, 0, 9);
        position.passReplayed(held);
        assertEquals(PositionFactory.create(4, 10), sought);
    }

    @Test
    void aReplayElsewhereOrAmidAReadMovesNothing() {
        hold(1, 6, 90);
        position.passReplayed(held);
        reading = true;
        held.add(1, 5);
        position.passReplayed(held);
        assertNull(sought);
    }

    /** Else each round of the dispatcher logs an error: "We can only have a single waiting callback". */
    @Test
    void afterOneReadAtTheEndOfATerminatedTopicNoOtherIsNeeded() {
        assertFalse(position.isAtTerminatedEnd(false), "the topic goes on");
        terminated = true;
        assertFalse(position.isAtTerminatedEnd(false), "nobody has read there");
        leftWaiting = true;
        assertTrue(position.isAtTerminatedEnd(false));
        assertFalse(leftWaiting, "it would have the next one fail for another reason");
        assertTrue(position.isAtTerminatedEnd(false));
    }

    @Test
    void whoRewindsReadsAgainAndSoDoConsumersThatReplaceOthers() {
        terminated = true;
        leftWaiting = true;
        assertFalse(position.isAtTerminatedEnd(true), "what waits was before them");
        assertFalse(position.isAtTerminatedEnd(false), "the rewind may be put off until a read has ended");
        leftWaiting = true;
        assertTrue(position.isAtTerminatedEnd(false));
        hasMore = true;
        assertFalse(position.isAtTerminatedEnd(false));
        hasMore = false;
        assertFalse(position.isAtTerminatedEnd(false));
    }

    @Test
    void aReadThatWaitsForTheEndIsLetBe() {
        terminated = true;
        leftWaiting = true;
        reading = true;
        assertFalse(position.isAtTerminatedEnd(false));
        assertTrue(leftWaiting);
    }
}
