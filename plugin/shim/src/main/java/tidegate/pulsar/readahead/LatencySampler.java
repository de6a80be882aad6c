package tidegate.pulsar.readahead;

/** Samples the latency of the broker's live traffic. */
@FunctionalInterface
public interface LatencySampler {
    /** The latency since the last call. Only one thread may call. */
    ReadAheadLimiter.Felt sample();
}
