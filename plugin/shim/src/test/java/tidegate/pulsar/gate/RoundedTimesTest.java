package tidegate.pulsar.gate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;

/** Equal times are rounded alike for as long as a message's chunks may take, and forgotten then. */
class RoundedTimesTest {
    private static final DelayPolicy POLICY = new DelayPolicy(List.of(10_000L, 60_000L), DelayPolicy.NO_QUOTA, true);

    private final RoundedTimes times = new RoundedTimes(POLICY);

    @Test
    void aTimeThatIsAskedForAgainAndAgainStaysHoweverManyOthersCome() {
        long chunksMs = 11_000;
        assertEquals(60_000, times.of(chunksMs, 0));
        for (int chunk = 1; chunk <= 5; chunk++) {
            for (int other = 0; other < RoundedTimes.MAX; other++) {
                times.of(100_000L * chunk + other, 0);
            }
            assertEquals(60_000, times.of(chunksMs, 2_000L * chunk), "chunk " + chunk);
        }
        assertTrue(times.size() <= 2 * RoundedTimes.MAX, times.size() + " times");
    }

    @Test
    void nothingStaysWhereNothingIsRead() {
        times.of(11_000, 0);
        for (int look = 0; look < RoundedTimes.ROUNDS; look++) {
            times.follow(POLICY);
        }
        assertEquals(60_000, times.of(11_000, 2_000));
        for (int look = 0; look < 2 * RoundedTimes.ROUNDS; look++) {
            times.follow(POLICY);
        }
        assertEquals(0, times.size());
        assertEquals(12_000, times.of(11_000, 2_000));
    }

    @Test
    void otherLevelsRoundAnew() {
        assertEquals(60_000, times.of(11_000, 0));
        times.follow(new DelayPolicy(List.of(20_000L), DelayPolicy.NO_QUOTA, true));
        assertEquals(20_000, times.of(11_000, 0));
    }
}
