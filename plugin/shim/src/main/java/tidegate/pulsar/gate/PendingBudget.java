package tidegate.pulsar.gate;

import java.util.concurrent.atomic.AtomicLong;

/** The number of this broker's entries that may wait for the daemon before reading pauses. */
public final class PendingBudget {
    private static final int SHARE_PART = 10;

    private final long maxEntries;
    private final AtomicLong entries = new AtomicLong();

    public PendingBudget(long maxEntries) {
        this.maxEntries = maxEntries;
    }

    void add(long delta) {
        entries.addAndGet(delta);
    }

    public long entries() {
        return entries.get();
    }

    /** True if that exceeds the share of a subscription that cannot be served. */
    boolean isShareExceeded(long itsEntries) {
        return itsEntries > maxEntries / SHARE_PART;
    }

    boolean isExceeded() {
        return entries.get() > maxEntries;
    }
}
