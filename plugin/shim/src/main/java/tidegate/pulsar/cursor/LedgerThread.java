package tidegate.pulsar.cursor;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.util.concurrent.Executor;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedger;
import org.apache.bookkeeper.mledger.impl.ManagedLedgerImpl;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The one thread on which Pulsar begins every reset of a ledger's cursors ({@code ManagedCursorImpl.asyncResetCursor}): while
 * a task runs there, no reset begins.
 *
 * <p>Found by name, so that one jar serves all versions: the method's type is Executor in 4.0, ExecutorService in 4.2,
 * ThreadBoundExecutor in 5.0.
 */
public final class LedgerThread {
    private static final Logger LOG = LoggerFactory.getLogger(LedgerThread.class);
    private static final MethodHandle GET_EXECUTOR = find();

    private LedgerThread() {
    }

    private static MethodHandle find() {
        try {
            return MethodHandles.publicLookup().unreflect(ManagedLedgerImpl.class.getMethod("getExecutor"));
        } catch (ReflectiveOperationException e) {
            LOG.warn("The thread of this Pulsar's cursor resets is unknown: no seal is put without consumers", e);
            return null;
        }
    }

    /** The thread of the cursor's ledger; null if unknown. */
    public static Executor of(ManagedCursor cursor) {
        ManagedLedger ledger = cursor.getManagedLedger();
        if (GET_EXECUTOR == null || !(ledger instanceof ManagedLedgerImpl)) {
            return null;
        }
        try {
            return GET_EXECUTOR.invoke(ledger) instanceof Executor executor ? executor : null;
        } catch (Throwable e) {
            LOG.warn("[{}] The thread of its resets is unknown: no seal is put without consumers", cursor.getName(), e);
            return null;
        }
    }
}
