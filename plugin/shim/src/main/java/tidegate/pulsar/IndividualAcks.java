package tidegate.pulsar;

import java.util.Map;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.impl.ManagedCursorImpl;

/** Whether a cursor has acknowledgements beyond its mark-delete position: of entries, or of single messages of a batch. */
final class IndividualAcks {
    private final boolean batchIndexes;

    /** {@code batchIndexes}: whether single messages of a batch are acknowledged. */
    IndividualAcks(boolean batchIndexes) {
        this.batchIndexes = batchIndexes;
    }

    /**
     * True where it cannot be told. The backlog says nothing of entries: where all beyond the position was acknowledged it is 0.
     * Takes the cursor's lock for a moment.
     */
    boolean mayBeIn(ManagedCursor cursor) {
        if (cursor instanceof ManagedCursorImpl known) {
            Map<?, ?> ofBatches = known.getBatchDeletedIndexes();
            return !known.isIndividuallyDeletedEntriesEmpty() || ofBatches != null && !ofBatches.isEmpty();
        }
        return cursor.getTotalNonContiguousDeletedMessagesRange() > 0
                || batchIndexes && cursor.getNumberOfEntriesInBacklog(false) > 0;
    }
}
