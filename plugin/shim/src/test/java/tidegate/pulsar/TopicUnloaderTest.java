package tidegate.pulsar;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** When a topic is closed to be loaded anew. */
class TopicUnloaderTest {
    private final List<String> closed = new ArrayList<>();
    private long nowNs;
    private final TopicUnloader unloader = new TopicUnloader(Runnable::run, () -> nowNs);

    private CompletableFuture<Void> close(String topic) {
        closed.add(topic);
        return CompletableFuture.failedFuture(new IllegalStateException("it is closed anyway"));
    }

    @Test
    void aTopicIsClosedOnceAMinute() {
        unloader.unload("a", () -> close("a"));
        unloader.unload("b", () -> close("b"));
        nowNs += TimeUnit.SECONDS.toNanos(59);
        unloader.unload("a", () -> close("a"));
        assertEquals(List.of("a", "b"), closed);
        nowNs += TimeUnit.SECONDS.toNanos(1);
        unloader.unload("a", () -> close("a"));
        assertEquals(List.of("a", "b", "a"), closed);
    }
}
