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
class BackoffPollerTest {
    private static final long MS = TimeUnit.MILLISECONDS.toNanos(1);

    private final AtomicLong nowNs = new AtomicLong(Long.MAX_VALUE - 5 * MS);
    private final BackoffPoller poller = new BackoffPoller(nowNs::get);

    @Test
    void itLooksLessAndLessOften() {
        poller.pollUntil(() -> false);
        assertEquals(BackoffPoller.SHORTEST_REST_NS, poller.round());
        nowNs.addAndGet(500 * MS);
        assertEquals(500 * MS / 1000, poller.round());
        nowNs.addAndGet(20_000 * MS);
        assertEquals(BackoffPoller.LONGEST_REST_NS, poller.round());
        // The youngest counts.
        poller.pollUntil(() -> false);
        assertEquals(BackoffPoller.SHORTEST_REST_NS, poller.round());
    }

    @Test
    void itSleepsOnceAllIsOver() {
        AtomicInteger left = new AtomicInteger(3);
        poller.pollUntil(() -> left.decrementAndGet() == 0);
        assertEquals(BackoffPoller.SHORTEST_REST_NS, poller.round());
        assertEquals(BackoffPoller.SHORTEST_REST_NS, poller.round());
        assertEquals(0, poller.round());
        assertEquals(0, poller.round());
        assertEquals(0, left.get(), "nobody looks any more");
    }

    @Test
    void itHasPatienceAndNoMore() {
        AtomicInteger looks = new AtomicInteger();
        poller.pollUntil(() -> looks.incrementAndGet() < 0);
        nowNs.addAndGet(BackoffPoller.PATIENCE_NS - 1);
        assertEquals(BackoffPoller.LONGEST_REST_NS, poller.round());
        nowNs.incrementAndGet();
        assertEquals(0, poller.round());
        assertEquals(0, poller.round());
        assertEquals(2, looks.get());
    }

    @Test
    void itTakesATenthOfAProcessorAtMost() {
        poller.pollUntil(() -> {
            nowNs.addAndGet(2 * MS);
            return false;
        });
        assertEquals(18 * MS, poller.round());
    }

    @Test
    void oneThatFailsIsGivenUpAndTheOthersAreNot() throws InterruptedException {
        CountDownLatch looks = new CountDownLatch(3);
        AtomicInteger failures = new AtomicInteger();
        try (BackoffPoller running = new BackoffPoller(System::nanoTime)) {
            running.start();
            running.pollUntil(() -> {
                failures.incrementAndGet();
                throw new NoClassDefFoundError("a class that this broker does not have");
            });
            running.pollUntil(() -> {
                looks.countDown();
                return looks.getCount() == 0;
            });
            assertTrue(looks.await(20, TimeUnit.SECONDS));
        }
        assertEquals(1, failures.get());
    }
}
