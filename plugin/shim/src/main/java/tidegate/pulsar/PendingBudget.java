package tidegate.pulsar;

import java.util.concurrent.atomic.AtomicLong;

/** How many entries of all subscriptions of this broker may wait for the daemon before reading pauses. */
final class PendingBudget {
    private final long maxEntries;
    private final AtomicLong entries = new AtomicLong();

    PendingBudget(long maxEntries) {
        this.maxEntries = maxEntries;
    }

    void add(long delta) {
        entries.addAndGet(delta);
    }

    long entries() {
        return entries.get();
    }

    boolean isExceeded() {
        return entries.get() > maxEntries;
    }
}
