package tidegate.pulsar.gate;

import tidegate.pulsar.wire.Ownership;

/** The settings of a new tracker; times in ms. */
public record TrackerSettings(String topic, String subscription, Ownership ownership, int horizonMs, int credit, long nearMaxEntries,
        long daemonWaitMs) {
}
