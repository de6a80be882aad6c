package tidegate.pulsar;

import java.util.concurrent.TimeUnit;

/** How fast is read ahead: at most so many entries a second, whatever the ledger would give. Not thread-safe. */
final class Pace {
    private final long entriesPerSecond;

    Pace(long entriesPerSecond) {
        this.entriesPerSecond = entriesPerSecond;
    }

    /** How long to rest after a step that dealt with so many entries in so many ns. */
    long restNs(int entries, long tookNs) {
        return Math.max(0, TimeUnit.SECONDS.toNanos(entries) / entriesPerSecond - tookNs);
    }
}
