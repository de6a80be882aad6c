package tidegate.pulsar.readahead;

/** The broker's figures of its live traffic. */
@FunctionalInterface
public interface LiveFigures {
    /** The figures since the last call. Only one thread may call. */
    Pace.Felt sample();
}
