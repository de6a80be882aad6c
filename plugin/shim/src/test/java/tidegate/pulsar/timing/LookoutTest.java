package tidegate.pulsar.timing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(30)
class LookoutTest {
    private static final long MS = TimeUnit.MILLISECONDS.toNanos(1);

    private final AtomicLong nowNs = new AtomicLong(Long.MAX_VALUE - 5 * MS);
    private final Lookout lookout = new Lookout(nowNs::get);

    @Test
    void itLooksLessAndLessOften() {
        lookout.lookFor(() -> false);
        assertEquals(Lookout.SHORTEST_REST_NS, lookout.round());
        nowNs.addAndGet(500 * MS);
        assertEquals(500 * MS / 1000, lookout.round());
        nowNs.addAndGet(20_000 * MS);
        assertEquals(Lookout.LONGEST_REST_NS, lookout.round());
        // The youngest counts.
        lookout.lookFor(() -> false);
        assertEquals(Lookout.SHORTEST_REST_NS, lookout.round());
    }

    @Test
    void itSleepsOnceAllIsOver() {
        AtomicInteger left = new AtomicInteger(3);
        lookout.lookFor(() -> left.decrementAndGet() == 0);
        assertEquals(Lookout.SHORTEST_REST_NS, lookout.round());
        assertEquals(Lookout.SHORTEST_REST_NS, lookout.round());
        assertEquals(0, lookout.round());
        assertEquals(0, lookout.round());
        assertEquals(0, left.get(), "nobody looks any more");
    }

    @Test
    void itHasPatienceAndNoMore() {
        AtomicInteger looks = new AtomicInteger();
        lookout.lookFor(() -> looks.incrementAndGet() < 0);
        nowNs.addAndGet(Lookout.PATIENCE_NS - 1);
        assertEquals(Lookout.LONGEST_REST_NS, lookout.round());
        nowNs.incrementAndGet();
        assertEquals(0, lookout.round());
        assertEquals(0, lookout.round());
        assertEquals(2, looks.get());
    }

    @Test
    void itTakesATenthOfAProcessorAtMost() {
        lookout.lookFor(() -> {
            nowNs.addAndGet(2 * MS);
            return false;
        });
        assertEquals(18 * MS, lookout.round());
    }

    @Test
    void oneThatFailsIsGivenUpAndTheOthersAreNot() throws InterruptedException {
        CountDownLatch looks = new CountDownLatch(3);
        AtomicInteger failures = new AtomicInteger();
        try (Lookout running = new Lookout(System::nanoTime)) {
            running.start();
            running.lookFor(() -> {
                failures.incrementAndGet();
                throw new NoClassDefFoundError("a class that this broker does not have");
            });
            running.lookFor(() -> {
                looks.countDown();
                return looks.getCount() == 0;
            });
            assertTrue(looks.await(20, TimeUnit.SECONDS));
        }
        assertEquals(1, failures.get());
    }
}
