package tidegate.pulsar.position;

/** A question about a position. */
@FunctionalInterface
public interface PositionPredicate {
    boolean test(long ledgerId, long entryId);
}
