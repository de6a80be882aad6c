package tidegate.pulsar.readahead;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import tidegate.pulsar.position.PositionSet;

/** Tests which entries are read into the cache, and when; a cache that takes all unless a test says otherwise. */
class EntryPrefetchTest {
    private static final long AHEAD_NS = TimeUnit.MILLISECONDS.toNanos(300);
    private static final long MS_NS = TimeUnit.MILLISECONDS.toNanos(1);
    private static final int MOST = 1_000;

    private long nowNs = Long.MAX_VALUE - 1_000 * MS_NS; // the clock may overflow
    private final PositionSet near = new PositionSet();
    private final List<String> reads = new ArrayList<>();
    private final List<Runnable> waiting = new ArrayList<>();
    private boolean takes = true;
    private boolean answers = true;
    private int closed;
    private final EntryPrefetch.Reader reader = new EntryPrefetch.Reader() {
        @Override
        public CompletableFuture<Long> read(long ledgerId, long first, long last) {
            reads.add(ledgerId + ":" + first + "-" + last);
            CompletableFuture<Long> answer = new CompletableFuture<>();
            long read = takes ? last : first - 1;
            waiting.add(() -> answer.complete(read));
            if (answers) {
                answer();
            }
            return answer;
        }

        @Override
        public void close() {
            closed++;
        }
    };
    private final EntryPrefetch prefetch = new EntryPrefetch(near::contains, reader, () -> nowNs, MOST, AHEAD_NS);

    private void answer() {
        waiting.forEach(Runnable::run);
        waiting.clear();
    }

    private void addNear(long ledgerId, long first, long last, int step) {
        for (long entryId = first; entryId <= last; entryId += step) {
            near.add(ledgerId, entryId);
        }
    }

    /** Hands out those of a batch that are near, a batch each {@code everyMs}. */
    private void handOut(long ledgerId, long first, long last, int batch, int everyMs) {
        int inBatch = 0;
        for (long entryId = first; entryId <= last; entryId++) {
            if (near.remove(ledgerId, entryId)) {
                prefetch.onHandedOut(ledgerId, entryId);
                if (++inBatch % batch == 0) {
                    nowNs += everyMs * MS_NS;
                    prefetch.prefetch();
                }
            }
        }
    }

    @Test
    void aBurstIsReadAheadInFewReads() {
        addNear(7, 0, 9_999, 1);
        handOut(7, 0, 9_999, 100, 3);
        long read = prefetch.prefetched();
        assertTrue(read > 9_000, "only " + read + " of 10,000");
        assertTrue(read <= 10_000, read + " of 10,000: some were read twice");
        assertTrue(reads.size() < 40, reads.size() + " reads");
    }

    @Test
    void itReadsNoFartherThanTheCacheKeeps() {
        addNear(7, 0, 9_999, 1);
        // A hundred a second: thirty of them leave within the time.
        handOut(7, 0, 499, 1, 10);
        assertTrue(prefetch.prefetched() > 400, reads.toString());
        for (String each : reads) {
            String[] range = each.substring(2).split("-");
            assertTrue(Long.parseLong(range[1]) - Long.parseLong(range[0]) <= 40, each);
        }
    }

    @Test
    void slowOnesAreReadOneByOne() {
        addNear(7, 0, 999, 1);
        handOut(7, 0, 499, 1, 100);
        assertEquals(List.of(), reads);
    }

    @Test
    void noneAreReadWhereTheyLeaveInAnotherOrder() {
        addNear(7, 0, 9_999, 1);
        for (int i = 0; i < 2_000; i++) {
            prefetch.onHandedOut(7, i * 37L % 10_000);
            nowNs += MS_NS / 10;
            prefetch.prefetch();
        }
        assertEquals(List.of(), reads);
    }

    @Test
    void smallGapsAreReadAndLargeOnesAreNot() {
        addNear(7, 0, 999, 2);
        handOut(7, 0, 399, 50, 1);
        assertTrue(prefetch.prefetched() > 200, reads.toString());
        reads.clear();
        near.clear();
        addNear(8, 0, 9_999, 5);
        handOut(8, 0, 4_999, 50, 1);
        assertEquals(List.of(), reads);
    }

    @Test
    void theNextLedgerBeginsAnew() {
        addNear(7, 0, 199, 1);
        addNear(9, 0, 199, 1);
        handOut(7, 0, 199, 20, 1);
        handOut(9, 0, 199, 20, 1);
        assertTrue(reads.stream().anyMatch(each -> each.startsWith("9:")), reads.toString());
        assertTrue(reads.stream().noneMatch(each -> each.startsWith("9:0-")), reads.toString());
    }

    @Test
    void oneReadIsUnderWayAtMost() {
        answers = false;
        addNear(7, 0, 9_999, 1);
        handOut(7, 0, 999, 100, 3);
        assertEquals(1, reads.size());
        answer();
        handOut(7, 1_000, 1_999, 100, 3);
        assertEquals(2, reads.size());
    }

    @Test
    void aCacheThatTakesNothingIsLeftAloneForLongerEachTime() {
        takes = false;
        addNear(7, 0, 99_999, 1);
        handOut(7, 0, 19_999, 100, 10); // two seconds: at once, and a second later
        assertEquals(2, reads.size(), reads.toString());
        handOut(7, 20_000, 29_999, 100, 10); // the next is two seconds later
        assertEquals(2, reads.size(), reads.toString());
        takes = true;
        handOut(7, 30_000, 59_999, 100, 10);
        assertTrue(prefetch.prefetched() > 15_000, reads.toString());
    }

    @Test
    void nothingIsReadAfterTheEnd() {
        addNear(7, 0, 9_999, 1);
        answers = false;
        handOut(7, 0, 999, 100, 3);
        prefetch.close();
        answer();
        handOut(7, 1_000, 9_999, 100, 3);
        assertEquals(1, reads.size());
        assertEquals(1, closed);
    }
}
