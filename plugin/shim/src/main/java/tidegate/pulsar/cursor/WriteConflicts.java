package tidegate.pulsar.cursor;

import java.util.concurrent.CompletionException;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.bookkeeper.mledger.ManagedLedgerException.BadVersionException;

/**
 * Counts refused writes of one cursor's metadata in a row, and asks to reopen the topic when no other writer explains them: a
 * client that has lost its connection repeats a write, which its own first one makes the store refuse. The cursor then keeps
 * the old version, and Pulsar refuses every property until the topic is loaded anew.
 */
public final class WriteConflicts {
    private static final int MAX_IN_A_ROW = 4;

    private final Runnable reopen;
    private final AtomicInteger inARow = new AtomicInteger();

    /** {@code reopen} returns at once. */
    public WriteConflicts(Runnable reopen) {
        this.reopen = reopen;
    }

    /** Takes the outcome of a write: {@code error} is null on success. */
    public void count(Throwable error) {
        if (error == null) {
            inARow.set(0);
        } else if (isConflict(error) && inARow.updateAndGet(count -> count == MAX_IN_A_ROW ? 1 : count + 1) == MAX_IN_A_ROW) {
            reopen.run();
        }
    }

    private static boolean isConflict(Throwable error) {
        Throwable cause = error instanceof CompletionException && error.getCause() != null ? error.getCause() : error;
        return cause instanceof BadVersionException;
    }
}
