package tidegate.pulsar.position;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Comparator;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import tidegate.pulsar.wire.Position;

class NearTierTest {
    @Test
    void equalTimesComeInPositionOrder() {
        NearTier near = new NearTier();
        near.add(2, 1, 100, false);
        near.add(1, 9, 100, false);
        near.add(1, 3, 100, false);
        near.add(5, 5, 99, false);
        StringBuilder order = new StringBuilder();
        while (near.headMs() != NearTier.NONE) {
            order.append(near.headLedgerId()).append(':').append(near.headEntryId()).append(' ');
            near.remove(near.headLedgerId(), near.headEntryId());
        }
        assertEquals("5:5 1:3 1:9 2:1 ", order.toString());
    }

    @Test
    void aCreditIsFreeWhenItsEntryLeaves() {
        NearTier near = new NearTier();
        near.add(1, 1, 10, true);
        near.add(1, 2, 10, false);
        near.add(1, 3, 10, true);
        assertFalse(near.add(1, 2, 5, true));
        assertTrue(near.remove(1, 1));
        assertEquals(1, near.creditBack());
        assertTrue(near.remove(1, 2));
        assertFalse(near.remove(1, 2));
        assertEquals(1, near.creditBack());
        near.discardUpTo(1, 3);
        assertEquals(2, near.takeCredit());
        assertEquals(0, near.creditBack());
        near.add(2, 1, 10, true);
        near.add(2, 2, 10, true);
        near.clear();
        assertEquals(2, near.creditBack());
        near.check();
    }

    @Test
    void aStreamThatEndsTakesItsCreditsAlong() {
        NearTier near = new NearTier();
        near.add(1, 1, 10, true);
        near.add(1, 2, 10, true);
        near.remove(1, 1);
        near.forgetCredit();
        near.clear();
        assertEquals(0, near.creditBack());
    }

    @ParameterizedTest
    @ValueSource(longs = {1, 2, 3, 4, 5})
    void givesTheEarliestFirst(long seed) {
        Random random = new Random(seed);
        NearTier near = new NearTier();
        Map<Position, Long> oracle = new HashMap<>();
        for (int step = 0; step < 30_000; step++) {
            Position position = new Position(random.nextInt(4), random.nextInt(2000));
            int kind = random.nextInt(10);
            if (kind < 6) {
                // The time of a position never gets earlier: a stale record in the heap is never too early.
                long deliverAtMs = position.entryId() * 7 + step;
                if (near.add(position.ledgerId(), position.entryId(), deliverAtMs, false)) {
                    oracle.merge(position, deliverAtMs, (a, b) -> b);
                }
            } else if (kind < 9) {
                assertEquals(oracle.remove(position) != null,
                        near.remove(position.ledgerId(), position.entryId()));
            } else if (near.headMs() != NearTier.NONE) {
                Position head = new Position(near.headLedgerId(), near.headEntryId());
                assertTrue(oracle.containsKey(head));
                assertTrue(near.headMs() <= oracle.values().stream().min(Comparator.naturalOrder()).orElseThrow());
                near.remove(head.ledgerId(), head.entryId());
                oracle.remove(head);
            }
            assertEquals(oracle.size(), near.size());
        }
    }
}
