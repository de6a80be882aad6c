package tidegate.pulsar.cursor;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.PositionFactory;
import org.apache.pulsar.common.util.collections.OpenLongPairRangeSet;
import org.junit.jupiter.api.Test;

/** Counts in Pulsar's own bitmaps. */
class DeletedEntriesTest {
    private final OpenLongPairRangeSet<Position> deleted = new OpenLongPairRangeSet<>(PositionFactory::create);

    @Test
    void allLedgersButTheLastOneCount() {
        deleted.addOpenClosed(9, 4, 9, 9);
        assertEquals(0, DeletedEntries.countBeforeLastLedger(deleted));
        deleted.addOpenClosed(8, -1, 8, 2);
        deleted.addOpenClosed(8, 6, 8, 7);
        deleted.addOpenClosed(0, 69_999, 0, 70_000);
        assertEquals(5, DeletedEntries.countBeforeLastLedger(deleted));
        deleted.addOpenClosed(10, 0, 10, 1);
        assertEquals(10, DeletedEntries.countBeforeLastLedger(deleted));
        deleted.addOpenClosed(50, 0, 50, 1);
        assertEquals(11, DeletedEntries.countBeforeLastLedger(deleted));
    }
}
