package tidegate.pulsar.gate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static tidegate.pulsar.gate.SeenConsumers.Change.NONE;
import static tidegate.pulsar.gate.SeenConsumers.Change.REPLACED;
import static tidegate.pulsar.gate.SeenConsumers.Change.SOME_GONE;

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
        assertEquals(REPLACED, new SeenConsumers(List.of("A")).look(List.of("B")));
        assertEquals(NONE, new SeenConsumers(List.of("A")).look(List.of("A", "B")));
    }

    @Test
    void aRollingReplacementIsNone() {
        assertEquals(NONE, seen.look(List.of("A", "B", "C")));
        assertEquals(NONE, seen.look(List.of("A", "B", "C", "A'", "B'", "C'")));
        assertEquals(SOME_GONE, seen.look(List.of("A", "A'", "B'", "C'")));
        assertEquals(SOME_GONE, seen.look(List.of("A'", "B'", "C'")));
    }

    @Test
    void allGoneAndOthersThereIsOne() {
        assertEquals(NONE, seen.look(List.of("A", "B")));
        assertEquals(REPLACED, seen.look(List.of("C")));
        assertEquals(NONE, seen.look(List.of("C")));
        assertEquals(NONE, seen.look(List.of()), "nobody has come yet");
        assertEquals(REPLACED, seen.look(List.of("D", "E")));
    }

    @Test
    void theFirstConsumersReplaceNobody() {
        assertEquals(NONE, seen.look(List.of()));
        assertEquals(NONE, seen.look(List.of("A")));
    }

    @Test
    void aConsumerThatEqualsItsFormerSelfIsAnother() {
        assertEquals(NONE, seen.look(List.of(new Twin())));
        assertEquals(REPLACED, seen.look(List.of(new Twin())));
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
            SeenConsumers.Change expected = now.isEmpty() || now.containsAll(before) ? NONE
                    : Collections.disjoint(before, now) ? REPLACED : SOME_GONE;
            assertEquals(expected, seen.look(now), "look " + i);
            before = now.isEmpty() ? before : List.copyOf(now);
        }
    }
}
