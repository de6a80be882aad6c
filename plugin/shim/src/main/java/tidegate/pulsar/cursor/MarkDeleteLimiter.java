package tidegate.pulsar.cursor;

import com.google.common.util.concurrent.RateLimiter;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.impl.ManagedCursorImpl;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Pulsar's limit of a cursor's records: one a second by default (managedLedgerDefaultMarkDeleteRateLimit), one in ten seconds
 * in a standalone broker. An acknowledgement stays in memory that long.
 *
 * <p>A new limiter lets one record pass; Pulsar's method that sets the rate keeps the time of the next permit. Without the
 * field, as perhaps in a later Pulsar, records wait.
 */
final class MarkDeleteLimiter {
    private static final Logger LOG = LoggerFactory.getLogger(MarkDeleteLimiter.class);
    private static final VarHandle LIMITER = find();

    private MarkDeleteLimiter() {
    }

    private static VarHandle find() {
        try {
            return MethodHandles.privateLookupIn(ManagedCursorImpl.class, MethodHandles.lookup())
                    .findVarHandle(ManagedCursorImpl.class, "markDeleteLimiter", RateLimiter.class);
        } catch (ReflectiveOperationException | RuntimeException e) {
            LOG.warn("This Pulsar hides its limit of a cursor's records: a cancellation takes as long as that limit", e);
            return null;
        }
    }

    /** Lets the cursor write its next record at once. */
    static void liftOnce(ManagedCursor cursor) {
        if (LIMITER != null && cursor instanceof ManagedCursorImpl) {
            RateLimiter limiter = (RateLimiter) LIMITER.get((ManagedCursorImpl) cursor);
            if (limiter != null) {
                LIMITER.set((ManagedCursorImpl) cursor, RateLimiter.create(limiter.getRate()));
            }
        }
    }
}
