package tidegate.pulsar;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;

class SeenConsumersTest {
    /** Equal to every other, as Pulsar's are that share a connection's slot. */
    private static final class Twin {
        @Override
        public boolean equals(Object other) {
            return other instanceof Twin;
        }

        @Override
        public int hashCode() {
            return 1;
        }
    }

    private final SeenConsumers seen = new SeenConsumers(List.of());

    /** A tracker is made amid a batch; its consumers may be gone before its dispatcher reads again. */
    @Test
    void thoseThatWereThereAtTheBeginningCount() {
        assertTrue(new SeenConsumers(List.of("A")).replacedBy(List.of("B")));
        assertFalse(new SeenConsumers(List.of("A")).replacedBy(List.of("A", "B")));
    }

    @Test
    void aRollingReplacementIsNone() {
        assertFalse(seen.replacedBy(List.of("A", "B", "C")));
        assertFalse(seen.replacedBy(List.of("A", "B", "C", "A'", "B'", "C'")));
        assertFalse(seen.replacedBy(List.of("A", "A'", "B'", "C'")));
        assertFalse(seen.replacedBy(List.of("A'", "B'", "C'")));
    }

    @Test
    void allGoneAndOthersThereIsOne() {
        assertFalse(seen.replacedBy(List.of("A", "B")));
        assertTrue(seen.replacedBy(List.of("C")));
        assertFalse(seen.replacedBy(List.of("C")));
        assertFalse(seen.replacedBy(List.of()), "nobody has come yet");
        assertTrue(seen.replacedBy(List.of("D", "E")));
    }

    @Test
    void theFirstConsumersReplaceNobody() {
        assertFalse(seen.replacedBy(List.of()));
        assertFalse(seen.replacedBy(List.of("A")));
    }

    @Test
    void aConsumerThatEqualsItsFormerSelfIsAnother() {
        assertFalse(seen.replacedBy(List.of(new Twin())));
        assertTrue(seen.replacedBy(List.of(new Twin())));
    }

    @Test
    void agreesWithSetsOfIdentities() {
        Random random = new Random(3);
        List<Object> now = new ArrayList<>();
        List<Object> before = List.of();
        for (int i = 0; i < 10_000; i++) {
            for (int change = random.nextInt(4); change > 0; change--) {
                if (now.isEmpty() || random.nextBoolean()) {
                    now.add(random.nextInt(now.size() + 1), new Object());
                } else {
                    now.remove(random.nextInt(now.size()));
                }
            }
            boolean expected = !now.isEmpty() && !before.isEmpty() && Collections.disjoint(before, now);
            assertTrue(expected == seen.replacedBy(now), "look " + i);
            before = now.isEmpty() ? before : List.copyOf(now);
        }
    }
}
