package tidegate.pulsar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.buffer.Unpooled;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.impl.LedgerEntriesImpl;
import org.apache.bookkeeper.client.impl.LedgerEntryImpl;
import org.junit.jupiter.api.Test;

class LogLedgersTest {
    private static final int MIB = 1 << 20;

    /** Entries as the client reads them: the length of each is that of the ledger up to it. */
    private static LedgerEntries read(int... sizesBytes) {
        List<LedgerEntry> entries = new ArrayList<>();
        long ledgerBytes = 0;
        for (int sizeBytes : sizesBytes) {
            ledgerBytes += sizeBytes;
            entries.add(LedgerEntryImpl.create(7, entries.size(), ledgerBytes, Unpooled.wrappedBuffer(new byte[sizeBytes])));
        }
        return LedgerEntriesImpl.create(entries);
    }

    @Test
    void aReadTakesWhatFitsHoweverLongTheLedgerIs() {
        int[] sizes = new int[100];
        Arrays.fill(sizes, MIB / 100);
        List<ByteBuffer> answer = new ArrayList<>();
        assertTrue(LogLedgers.fill(answer, read(sizes)));
        assertEquals(100, answer.size());
        assertEquals(MIB / 100, answer.get(99).remaining());
    }

    @Test
    void whatIsTooMuchForOneAnswerIsLeftForTheNext() {
        List<ByteBuffer> answer = new ArrayList<>();
        assertFalse(LogLedgers.fill(answer, read(MIB / 2, MIB / 2, 1, MIB)));
        assertEquals(2, answer.size());
    }

    @Test
    void oneEntryIsTakenHoweverLongItIs() {
        List<ByteBuffer> answer = new ArrayList<>();
        assertFalse(LogLedgers.fill(answer, read(MIB + 1, 1)));
        assertEquals(1, answer.size());
    }
}
