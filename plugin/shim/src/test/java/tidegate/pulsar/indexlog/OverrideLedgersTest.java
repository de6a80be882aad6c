package tidegate.pulsar.indexlog;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Proxy;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.ManagedLedgerException.BadVersionException;
import org.apache.bookkeeper.mledger.PositionFactory;
import org.junit.jupiter.api.Test;
import tidegate.pulsar.cursor.CursorProperties;
import tidegate.pulsar.gate.OverrideHome;

/** The outcome of a pointer's write and of a read; the test plays cursor and ledger. */
class OverrideLedgersTest {
    private final CompletableFuture<Void> write = new CompletableFuture<>();
    private boolean closed;
    private final ManagedCursor cursor = (ManagedCursor) Proxy.newProxyInstance(getClass().getClassLoader(),
            new Class<?>[] {ManagedCursor.class}, (self, method, arguments) -> switch (method.getName()) {
                case "toString" -> "cursor";
                case "isClosed" -> closed;
                case "getCursorProperties" -> Map.of();
                case "getPersistentMarkDeletedPosition" -> PositionFactory.create(3, 4);
                case "putCursorProperty" -> write;
                default -> throw new UnsupportedOperationException(method.getName());
            });
    private final OverrideLedgers overrides = new OverrideLedgers("test", CursorProperties.withoutReset(cursor),
            new LogLedgers.Shared(LogLedgers.BOOKKEEPER, () -> null, Runnable::run, new AtomicLong()));

    private Throwable failure(CompletableFuture<?> answer) {
        return assertThrows(CompletionException.class, answer::join).getCause();
    }

    /** Recovery closes it so, if no bookie has its entries any more. */
    @Test
    void aLedgerWithoutEntriesIsLost() {
        ReadHandle empty = (ReadHandle) Proxy.newProxyInstance(getClass().getClassLoader(), new Class<?>[] {ReadHandle.class},
                (self, method, arguments) -> switch (method.getName()) {
                    case "getLastAddConfirmed" -> -1L;
                    case "getLength" -> 0L;
                    default -> throw new UnsupportedOperationException(method.getName());
                });
        Throwable lost = failure(overrides.readAll(7, empty));
        assertInstanceOf(OverrideHome.NoLedgerException.class, lost);
        assertTrue(OverrideLedgers.isLost(lost));
    }

    @Test
    void aBadVersionMayBeThatOfThisVeryWrite() {
        CompletableFuture<OverrideHome.Pointed> pointed = overrides.point("", "1;5");
        write.completeExceptionally(new BadVersionException("BadVersion"));
        assertInstanceOf(OverrideHome.ConflictException.class, failure(pointed));
    }

    @Test
    void anotherErrorIsAsDoubtful() {
        CompletableFuture<OverrideHome.Pointed> pointed = overrides.point("", "1;5");
        write.completeExceptionally(new ManagedLedgerException.MetaStoreException("ConnectionLoss"));
        assertInstanceOf(ManagedLedgerException.MetaStoreException.class, failure(pointed));
    }

    @Test
    void aClosedCursorWasNotWritten() {
        closed = true;
        assertEquals(OverrideHome.Pointed.REFUSED, overrides.point("", "1;5").join());
    }

    @Test
    void nothingIsWrittenOverAnotherPointer() {
        assertEquals(OverrideHome.Pointed.STALE, overrides.point("1;4", "1;5").join());
    }
}
