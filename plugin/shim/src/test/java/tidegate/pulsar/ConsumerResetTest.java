package tidegate.pulsar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.RejectedExecutionException;
import org.junit.jupiter.api.Test;

class ConsumerResetTest {
    private final Object subscription = new Object();
    private final Queue<Runnable> executor = new ArrayDeque<>();
    private final List<String> calls = new ArrayList<>();
    private CompletableFuture<Void> gone = CompletableFuture.completedFuture(null);

    private final ConsumerReset reset = new ConsumerReset("sub", subscription, () -> {
        assertTrue(Thread.holdsLock(subscription), "Pulsar's order of locks");
        calls.add("disconnect");
        return gone;
    }, () -> {
        assertTrue(Thread.holdsLock(subscription), "nobody else's disconnecting comes between");
        calls.add("done");
    }, executor::add);

    private void runAll() {
        for (Runnable task; (task = executor.poll()) != null; ) {
            task.run();
        }
    }

    @Test
    void requestsThatComeTogetherDisconnectOnce() {
        reset.request();
        reset.request();
        assertEquals(List.of(), calls, "not on the caller's thread");
        runAll();
        assertEquals(List.of("disconnect", "done"), calls);
        reset.request();
        runAll();
        assertEquals(List.of("disconnect", "done", "disconnect", "done"), calls);
    }

    @Test
    void whoStaysLongerIsNotWaitedForWithTheLock() {
        gone = new CompletableFuture<>();
        reset.request();
        runAll();
        assertEquals(List.of("disconnect"), calls);
        gone.completeExceptionally(new IllegalStateException("a consumer would not go"));
        assertEquals(List.of("disconnect"), calls);
    }

    @Test
    void aStoppingBrokerIsNoFailure() {
        new ConsumerReset("sub", subscription, () -> gone, () -> { }, task -> {
            throw new RejectedExecutionException();
        }).request();
    }
}
