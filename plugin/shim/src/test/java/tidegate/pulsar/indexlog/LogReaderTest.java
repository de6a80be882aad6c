package tidegate.pulsar.indexlog;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.impl.LedgerEntriesImpl;
import org.apache.bookkeeper.client.impl.LedgerEntryImpl;
import org.junit.jupiter.api.Test;

class LogReaderTest {
    private static final int MIB = 1 << 20;

    /** Entries as the client reads them: each one's length is that of the ledger up to it. */
    private static LedgerEntries read(int... sizesBytes) {
        List<LedgerEntry> entries = new ArrayList<>();
        long ledgerBytes = 0;
        for (int sizeBytes : sizesBytes) {
            ledgerBytes += sizeBytes;
            entries.add(LedgerEntryImpl.create(7, entries.size(), ledgerBytes, Unpooled.wrappedBuffer(new byte[sizeBytes])));
        }
        return LedgerEntriesImpl.create(entries);
    }

    /** A ledger that answers reads when the test says so, in the order of the questions. */
    private static final class Ledger {
        final int[] sizesBytes;
        final boolean inBatches;
        final Deque<Runnable> waiting = new ArrayDeque<>();
        final List<ByteBuf> given = new ArrayList<>();
        final List<String> asked = new ArrayList<>();
        boolean fails;

        Ledger(boolean inBatches, int... sizesBytes) {
            this.inBatches = inBatches;
            this.sizesBytes = sizesBytes;
        }

        ReadHandle handle() {
            return (ReadHandle) Proxy.newProxyInstance(ReadHandle.class.getClassLoader(), new Class<?>[] {ReadHandle.class},
                    (proxy, method, arguments) -> switch (method.getName()) {
                        case "getLastAddConfirmed" -> sizesBytes.length - 1L;
                        case "batchReadAsync" -> read((long) arguments[0], (int) arguments[1], (long) arguments[2]);
                        case "closeAsync" -> CompletableFuture.completedFuture(null);
                        default -> throw new UnsupportedOperationException(method.getName());
                    });
        }

        private CompletableFuture<LedgerEntries> read(long first, int count, long maxBytes) {
            asked.add(first + "+" + count);
            CompletableFuture<LedgerEntries> answer = new CompletableFuture<>();
            boolean failing = fails;
            waiting.add(() -> {
                if (failing) {
                    answer.completeExceptionally(new IllegalStateException("away"));
                    return;
                }
                List<LedgerEntry> entries = new ArrayList<>();
                long bytes = 0;
                for (int at = (int) first; at < Math.min(first + count, sizesBytes.length); at++) {
                    bytes += sizesBytes[at];
                    if (inBatches && !entries.isEmpty() && bytes > maxBytes) {
                        break;
                    }
                    ByteBuf content = Unpooled.buffer(sizesBytes[at]).writeZero(sizesBytes[at]);
                    if (sizesBytes[at] >= Integer.BYTES) {
                        content.setInt(0, at);
                    }
                    given.add(content);
                    entries.add(LedgerEntryImpl.create(7, at, bytes, content));
                }
                answer.complete(LedgerEntriesImpl.create(entries));
            });
            return answer;
        }

        void answer() {
            while (!waiting.isEmpty()) {
                waiting.poll().run();
            }
        }

        void requireAllGivenBack() {
            for (ByteBuf one : given) {
                assertEquals(0, one.refCnt());
            }
        }
    }

    private static List<Integer> readAll(Ledger ledger) {
        LogReader reader = new LogReader(ledger.handle());
        List<Integer> numbers = new ArrayList<>();
        while (numbers.size() < ledger.sizesBytes.length) {
            CompletableFuture<List<ByteBuffer>> answer = reader.read(numbers.size(), ledger.sizesBytes.length - 1L);
            ledger.answer();
            assertFalse(answer.join().isEmpty());
            answer.join().forEach(entry -> numbers.add(entry.getInt(0)));
        }
        return numbers;
    }

    private static int[] sizes(int count, int sizeBytes) {
        int[] sizes = new int[count];
        Arrays.fill(sizes, sizeBytes);
        return sizes;
    }

    /** The sizes in a log: a snapshot of large entries, then many small ones. */
    private static int[] logSizes() {
        int[] sizes = Arrays.copyOf(sizes(20, MIB + 33), 320);
        Arrays.fill(sizes, 20, 320, 24_000);
        return sizes;
    }

    @Test
    void everyEntryComesOnceAndInOrder() {
        for (boolean inBatches : new boolean[] {true, false}) {
            Ledger ledger = new Ledger(inBatches, logSizes());
            List<Integer> numbers = readAll(ledger);
            for (int at = 0; at < 320; at++) {
                assertEquals(at, numbers.get(at));
            }
            ledger.requireAllGivenBack();
        }
    }

    @Test
    void littleIsReadTwiceWhereverTheEntriesChangeTheirSize() {
        for (boolean inBatches : new boolean[] {true, false}) {
            Ledger ledger = new Ledger(inBatches, logSizes());
            readAll(ledger);
            assertTrue(ledger.given.size() <= 325, ledger.given.size() + " entries were read for 320");
        }
    }

    @Test
    void theNextAnswerIsReadBeforeItIsAskedFor() {
        Ledger ledger = new Ledger(true, sizes(100, MIB / 4));
        LogReader reader = new LogReader(ledger.handle());
        CompletableFuture<List<ByteBuffer>> first = reader.read(0, 99);
        ledger.answer();
        assertEquals(4, first.join().size());
        assertEquals(List.of("0+4", "4+4"), ledger.asked);
        assertTrue(reader.read(4, 99).isDone());
        reader.closeAsync();
        ledger.answer();
        ledger.requireAllGivenBack();
    }

    @Test
    void whatWasReadAheadIsGivenBackIfSomethingElseIsAskedFor() {
        Ledger ledger = new Ledger(true, sizes(100, MIB / 4));
        LogReader reader = new LogReader(ledger.handle());
        reader.read(0, 99);
        ledger.answer();
        CompletableFuture<List<ByteBuffer>> other = reader.read(50, 52);
        ledger.answer();
        assertEquals(50, other.join().get(0).getInt(0));
        assertEquals(3, other.join().size());
        ledger.requireAllGivenBack();
    }

    @Test
    void whatIsStillBeingReadAheadAtTheEndIsGivenBack() {
        Ledger ledger = new Ledger(true, sizes(100, MIB / 4));
        LogReader reader = new LogReader(ledger.handle());
        reader.read(0, 99);
        ledger.waiting.poll().run();
        reader.closeAsync();
        assertEquals(1, ledger.waiting.size());
        ledger.answer();
        ledger.requireAllGivenBack();
    }

    @Test
    void anAnswerThatComesAfterTheEndReadsNothingAhead() {
        Ledger ledger = new Ledger(true, sizes(100, MIB / 4));
        LogReader reader = new LogReader(ledger.handle());
        CompletableFuture<List<ByteBuffer>> late = reader.read(0, 99);
        reader.closeAsync();
        ledger.answer();
        assertEquals(4, late.join().size());
        assertEquals(List.of("0+4"), ledger.asked);
        ledger.requireAllGivenBack();
    }

    @Test
    void aReadAheadThatFailsIsToldToWhoAsksForIt() {
        Ledger ledger = new Ledger(true, sizes(100, MIB / 4));
        LogReader reader = new LogReader(ledger.handle());
        CompletableFuture<List<ByteBuffer>> first = reader.read(0, 99);
        ledger.fails = true;
        ledger.answer();
        assertEquals(4, first.join().size());
        assertThrows(CompletionException.class, () -> reader.read(4, 99).join());
        ledger.fails = false;
        CompletableFuture<List<ByteBuffer>> again = reader.read(4, 99);
        ledger.answer();
        assertEquals(4, again.join().get(0).getInt(0));
    }

    @Test
    void aReadTakesWhatFitsHoweverLongTheLedgerIs() {
        List<ByteBuffer> answer = new ArrayList<>();
        LogReader.fill(answer, read(sizes(100, MIB / 100)));
        assertEquals(100, answer.size());
        assertEquals(MIB / 100, answer.get(99).remaining());
    }

    @Test
    void whatIsTooMuchForOneAnswerIsLeftForTheNext() {
        List<ByteBuffer> answer = new ArrayList<>();
        assertEquals(MIB, LogReader.fill(answer, read(MIB / 2, MIB / 2, 1, MIB)));
        assertEquals(2, answer.size());
    }

    @Test
    void oneEntryIsTakenHoweverLongItIs() {
        List<ByteBuffer> answer = new ArrayList<>();
        assertEquals(MIB + 1, LogReader.fill(answer, read(MIB + 1, 1)));
        assertEquals(1, answer.size());
    }

    @Test
    void soManyAreAskedForAsFitIntoAnAnswer() {
        assertEquals(1, LogReader.next(4, 1, MIB + 33));
        assertEquals(4, LogReader.next(1, 1, 24_000));
        assertEquals(43, LogReader.next(16, 16, 16 * 24_000));
        assertEquals(1024, LogReader.next(1024, 1024, 1024));
        assertEquals(16, LogReader.next(4, 4, 0));
    }
}
