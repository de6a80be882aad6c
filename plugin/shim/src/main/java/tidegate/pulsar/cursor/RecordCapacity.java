package tidegate.pulsar.cursor;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedgerConfig;
import org.apache.bookkeeper.mledger.impl.ManagedCursorImpl;
import tidegate.pulsar.gate.RangeLimit;
import tidegate.pulsar.gate.TrackerContext.Stored;

/**
 * Room for individual acknowledgements in a cursor's record: managedLedgerMaxUnackedRangesToPersist, 10,000 by default.
 * Pulsar silently leaves out the highest positions beyond that.
 *
 * <p>Pulsar counts ranges, or, where it stores bitmaps (managedLedgerPersistIndividualAckAsLongArray), entries: up to 4.2 those
 * of all ledgers before the last one, in 5.0 of all. 5.0 stores ranges instead if even the first ledger has too many.
 */
public final class RecordCapacity {
    /** managedLedgerUnackedRangesOpenCacheSetEnabled; null in Pulsar 5.0, where each cursor keeps bitmaps. */
    private static final MethodHandle KEEPS_BITMAPS = keepsBitmaps();

    private final ManagedCursor cursor;
    private final long deletionsBefore;
    private final long usedBefore;

    /** Created after the deletions for a record and before the record. */
    RecordCapacity(ManagedCursor cursor) {
        this.cursor = cursor;
        // In this order: a deletion in between counts twice, rather than never.
        deletionsBefore = deletions(cursor);
        usedBefore = used(cursor);
    }

    /**
     * YES if each record written since had room for everything: one deletion takes at most one place, and ranges may have
     * come and gone again.
     */
    Stored outcome() {
        int max = cursor.getManagedLedger().getConfig().getMaxUnackedRangesToPersist();
        long usedNow = used(cursor);
        if (usedNow <= max && usedBefore + deletions(cursor) - deletionsBefore <= max) {
            return Stored.YES;
        }
        return usedNow <= max ? Stored.NOT_NOW : Stored.NO_ROOM;
    }

    /** The room in use at this object's creation. */
    long usedBefore() {
        return usedBefore;
    }

    private static long deletions(ManagedCursor cursor) {
        return cursor instanceof ManagedCursorImpl counting ? counting.getMessagesConsumedCounter() : 0;
    }

    /** The part that counts once in this record, or a smaller one where that is unknown. */
    public static RangeLimit.Unit unit(ManagedLedgerConfig config) {
        try {
            if (!config.isPersistIndividualAckAsLongArray()) {
                return RangeLimit.Unit.ROW;
            }
        } catch (NoSuchMethodError e) {
            // A Pulsar without the setting: more entries then count as beyond the limit.
        }
        return KEEPS_BITMAPS == null ? RangeLimit.Unit.ENTRY_OF_WHOLE_LEDGER : RangeLimit.Unit.ENTRY;
    }

    /** The room in use, in Pulsar's unit. To count ranges Pulsar walks over all of them: only where it stores ranges. */
    private static long used(ManagedCursor cursor) {
        if (!(cursor instanceof ManagedCursorImpl known) || !keepsBitmaps(cursor.getManagedLedger().getConfig())) {
            return cursor.getTotalNonContiguousDeletedMessagesRange();
        }
        try {
            ManagedLedgerConfig config = cursor.getManagedLedger().getConfig();
            if (!config.isPersistIndividualAckAsLongArray()) {
                return cursor.getTotalNonContiguousDeletedMessagesRange();
            }
            DeletedEntries.Count count = DeletedEntries.count(known);
            if (KEEPS_BITMAPS != null) {
                return count.beforeLastLedger();
            }
            return count.ofFirstLedger() > config.getMaxUnackedRangesToPersist()
                    ? cursor.getTotalNonContiguousDeletedMessagesRange() : count.ofAll();
        } catch (NoSuchMethodError e) {
            // A Pulsar without the setting: the worse of the two.
            return Math.max(cursor.getTotalNonContiguousDeletedMessagesRange(), DeletedEntries.count(known).beforeLastLedger());
        }
    }

    private static boolean keepsBitmaps(ManagedLedgerConfig config) {
        try {
            return KEEPS_BITMAPS == null || (boolean) KEEPS_BITMAPS.invokeExact(config);
        } catch (Throwable e) {
            throw new IllegalStateException(e);
        }
    }

    private static MethodHandle keepsBitmaps() {
        try {
            return MethodHandles.publicLookup().findVirtual(ManagedLedgerConfig.class, "isUnackedRangesOpenCacheSetEnabled",
                    MethodType.methodType(boolean.class));
        } catch (ReflectiveOperationException e) {
            return null;
        }
    }
}
