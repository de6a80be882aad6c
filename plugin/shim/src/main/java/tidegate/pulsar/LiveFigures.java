package tidegate.pulsar;

/** What the broker says that its live traffic takes. */
@FunctionalInterface
interface LiveFigures {
    /** Since the last call. One thread calls. */
    Pace.Felt sample();
}
