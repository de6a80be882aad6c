package tidegate.pulsar.position;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;
import tidegate.pulsar.wire.Position;

class MovedTimesTest {
    private static Map<Position, Long> all(MovedTimes times) {
        Map<Position, Long> all = new TreeMap<>();
        times.forEach((ledgerId, entryId, timeMs) -> all.put(new Position(ledgerId, entryId), timeMs));
        return all;
    }

    @Test
    void itIsAMapWhateverComesAndGoes() {
        for (int seed = 0; seed < 50; seed++) {
            Random random = new Random(seed);
            MovedTimes times = new MovedTimes();
            Map<Position, Long> expected = new TreeMap<>();
            int entries = 1 + random.nextInt(200);
            for (int step = 0; step < 2_000; step++) {
                Position position = new Position(1 + random.nextInt(3), random.nextInt(entries));
                if (random.nextInt(100) == 0) {
                    Map<Position, Long> taken = new TreeMap<>();
                    times.takeUpTo(position.ledgerId(), position.entryId(),
                            (ledgerId, entryId, timeMs) -> taken.put(new Position(ledgerId, entryId), timeMs));
                    Map<Position, Long> below = new TreeMap<>(expected);
                    below.keySet().removeIf(one -> one.compareTo(position) > 0);
                    assertEquals(below, taken);
                    expected.keySet().removeAll(below.keySet());
                } else if (random.nextBoolean()) {
                    times.put(position.ledgerId(), position.entryId(), step);
                    expected.put(position, (long) step);
                } else {
                    Long removed = expected.remove(position);
                    assertEquals(removed == null ? MovedTimes.NONE : removed, times.remove(position.ledgerId(), position.entryId()));
                }
                assertEquals(expected.size(), times.size());
                assertEquals(expected.getOrDefault(position, MovedTimes.NONE), times.get(position.ledgerId(), position.entryId()));
            }
            assertEquals(expected, all(times));
            times.check();
        }
    }
}
