package tidegate.pulsar.cursor;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.PositionFactory;
import org.apache.pulsar.common.util.collections.OpenLongPairRangeSet;
import org.junit.jupiter.api.Test;
import tidegate.pulsar.cursor.DeletedEntries.Count;

/** Counts in Pulsar's own bitmaps. */
class DeletedEntriesTest {
    private final OpenLongPairRangeSet<Position> deleted = new OpenLongPairRangeSet<>(PositionFactory::create);

    @Test
    void theFirstLedgerAllButTheLastOneAndAllAreCounted() {
        deleted.addOpenClosed(9, 4, 9, 9);
        assertEquals(new Count(5, 0, 5), Count.of(deleted));
        deleted.addOpenClosed(8, -1, 8, 2);
        deleted.addOpenClosed(8, 6, 8, 7);
        deleted.addOpenClosed(0, 69_999, 0, 70_000);
        assertEquals(new Count(1, 5, 10), Count.of(deleted));
        deleted.addOpenClosed(10, 0, 10, 1);
        assertEquals(new Count(1, 10, 11), Count.of(deleted));
        deleted.addOpenClosed(50, 0, 50, 1);
        assertEquals(new Count(1, 11, 12), Count.of(deleted));
    }
}
