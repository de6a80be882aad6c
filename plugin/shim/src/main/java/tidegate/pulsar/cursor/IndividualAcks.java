package tidegate.pulsar.cursor;

import java.util.Map;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.impl.ManagedCursorImpl;

/**
 * Tells whether a cursor has acknowledgements beyond its mark-delete position: of entries, or of single messages of a batch.
 */
public final class IndividualAcks {
    private final boolean batchIndexes;

    /** {@code batchIndexes}: true if consumers may acknowledge single messages of a batch. */
    public IndividualAcks(boolean batchIndexes) {
        this.batchIndexes = batchIndexes;
    }

    /**
     * Also true if unknown. The backlog, 0 once all entries beyond are acknowledged, cannot tell. Takes the cursor's lock for
     * a moment.
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
