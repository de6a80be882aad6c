package tidegate.pulsar.wire;

/** A message's place in its topic, as in Pulsar. Ordered by ledger, then entry. */
public record Position(long ledgerId, long entryId) implements Comparable<Position> {
    @Override
    public int compareTo(Position other) {
        int byLedger = Long.compare(ledgerId, other.ledgerId);
        return byLedger != 0 ? byLedger : Long.compare(entryId, other.entryId);
    }
}
