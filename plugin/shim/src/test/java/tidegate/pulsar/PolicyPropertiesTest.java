package tidegate.pulsar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;
import tidegate.pulsar.gate.DelayPolicy;

/** Rules whose places answer late, or not at all. */
class PolicyPropertiesTest {
    private static final Map<String, String> LEVELS = Map.of("tidegate.levels", "1s,1m", "another", "one");

    private static final class Asked implements PolicyProperties.Places {
        private Map<String, String> ofTopic = Map.of();
        private boolean partitioned;
        private CompletableFuture<Map<String, String>> ofPartitioned = new CompletableFuture<>();
        private CompletableFuture<Map<String, String>> ofNamespace = new CompletableFuture<>();

        @Override
        public Map<String, String> ofTopic() {
            return ofTopic;
        }

        @Override
        public boolean isPartitioned() {
            return partitioned;
        }

        @Override
        public CompletableFuture<Map<String, String>> ofPartitioned() {
            return ofPartitioned;
        }

        @Override
        public CompletableFuture<Map<String, String>> ofNamespace() {
            return ofNamespace;
        }
    }

    private final Asked asked = new Asked();
    private int told;

    private PolicyProperties made() {
        return new PolicyProperties("a topic", "sub", asked, () -> told++);
    }

    @Test
    void aCachedAnswerCountsAtOnce() {
        asked.ofNamespace.complete(LEVELS);
        PolicyProperties properties = made();
        assertEquals(List.of(1_000L, 60_000L), properties.policy().levelsMs());
        assertTrue(properties.isKnown());
    }

    /** Pulsar reads an entry of its cache again after each change: meanwhile nobody has an answer. */
    @Test
    void aLateAnswerIsToldOnceAndCountsFromThenOn() {
        PolicyProperties properties = made();
        assertEquals(DelayPolicy.NONE, properties.policy());
        properties.policy();
        assertFalse(properties.isKnown());
        assertEquals(0, told);
        asked.ofNamespace.complete(LEVELS);
        assertTrue(properties.isKnown());
        assertEquals(1, told);
        assertEquals(List.of(1_000L, 60_000L), properties.policy().levelsMs());
        properties.policy();
        assertEquals(1, told);
    }

    @Test
    void aPartitionWaitsForThePartitionedTopicToo() {
        asked.partitioned = true;
        PolicyProperties properties = made();
        asked.ofNamespace.complete(LEVELS);
        assertEquals(List.of(1_000L, 60_000L), properties.policy().levelsMs());
        assertFalse(properties.isKnown());
        asked.ofPartitioned.complete(Map.of("tidegate.levels", "none"));
        assertTrue(properties.isKnown());
        assertEquals(List.of(), properties.policy().levelsMs());
    }

    @Test
    void aFailureIsNoAnswerAndLeavesTheFormerRules() {
        PolicyProperties properties = made();
        asked.ofNamespace.completeExceptionally(new IllegalStateException("the store is away"));
        properties.policy();
        assertFalse(properties.isKnown());
        asked.ofNamespace = CompletableFuture.completedFuture(LEVELS);
        properties.policy();
        assertTrue(properties.isKnown());
        asked.ofNamespace = CompletableFuture.failedFuture(new IllegalStateException("again"));
        assertEquals(List.of(1_000L, 60_000L), properties.policy().levelsMs());
        assertTrue(properties.isKnown());
        assertEquals(1, told);
    }
}
