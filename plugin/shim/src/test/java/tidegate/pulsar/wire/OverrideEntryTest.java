package tidegate.pulsar.wire;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.junit.jupiter.api.Test;

class OverrideEntryTest {
    private final Records moved = new Records();
    private final PositionBitmaps left = new PositionBitmaps();

    private void read(ByteBuffer entry) throws ProtocolException {
        OverrideEntry.read(entry, new OverrideEntry.Reader() {
            @Override
            public void moved(long ledgerId, long entryId, long deliverAtMs) {
                moved.add(ledgerId, entryId, deliverAtMs);
            }

            @Override
            public void left(long ledgerId, long entryId) {
                left.add(ledgerId, entryId);
            }
        });
    }

    @Test
    void theBytesOfMovesAreThoseOfTheFormat() throws ProtocolException {
        ByteBuffer entry = OverrideEntry.moved(Records.of(9, 9, 9, 12, 5, 256), 1, 2);
        byte[] bytes = new byte[entry.remaining()];
        entry.duplicate().get(bytes);
        assertArrayEquals(HexFormat.of().parseHex("0101" + "01000000" + "0c00000000000000" + "0500000000000000" + "0001000000000000"),
                bytes);
        read(entry);
        assertEquals(Records.of(12, 5, 256), moved);
    }

    @Test
    void positionsThatLeftComeBack() throws ProtocolException {
        PositionBitmaps some = new PositionBitmaps();
        some.add(12, 5);
        some.add(15, 70_000);
        read(OverrideEntry.left(some));
        assertEquals(some, left);
    }

    @Test
    void damagedEntriesAreRefused() {
        for (String bytes : new String[] {"", "01", "0201", "0103", "0101", "010101000000", "0101ffffffff", "0102010000"}) {
            ByteBuffer entry = ByteBuffer.wrap(HexFormat.of().parseHex(bytes));
            assertThrows(ProtocolException.class, () -> read(entry), bytes);
        }
    }
}
