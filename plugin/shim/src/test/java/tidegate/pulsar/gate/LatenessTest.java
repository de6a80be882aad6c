package tidegate.pulsar.gate;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import tidegate.pulsar.position.NearTier;

/** Lateness at hand-out: in buckets, without what a pace holds back or somebody released. */
class LatenessTest {
    private static final long DUE_MS = 1_000_000;

    private final Lateness lateness = new Lateness();

    @Test
    void eachBoundCountsAllThatAreAtMostSoLate() {
        for (long lateMs : new long[] {0, 10, 11, 100, 1_000, 10_000, 60_000, 60_001}) {
            lateness.record(DUE_MS + lateMs, DUE_MS, false);
        }
        assertEquals(new Lateness.Figures(List.of(2L, 4L, 5L, 6L, 7L, 8L), 131_122, 0), lateness.figures());
    }

    @Test
    void whatMayBeHeldBackOrWasReleasedIsLeftOut() {
        lateness.record(DUE_MS + 5, DUE_MS, true);
        lateness.record(DUE_MS + 5, NearTier.AT_ONCE_MS, false);
        assertEquals(new Lateness.Figures(List.of(0L, 0L, 0L, 0L, 0L, 0L), 0, 0), lateness.figures());
    }

    @Test
    void anEarlyOneIsCountedApart() {
        lateness.record(DUE_MS - 1, DUE_MS, false);
        lateness.record(DUE_MS - 1, DUE_MS, true);
        assertEquals(new Lateness.Figures(List.of(1L, 1L, 1L, 1L, 1L, 1L), 0, 2), lateness.figures());
    }

    @ParameterizedTest
    @CsvSource({"1000005,false,5", "1000000,false,0", "999999,false,0", "1000005,true,0"})
    void theFirstMessageIsOverdue(long nowMs, boolean mayBeHeldBack, long overdueMs) {
        assertEquals(overdueMs, Lateness.overdueMs(nowMs, DUE_MS, mayBeHeldBack));
    }

    @Test
    void nothingIsOverdueWithoutATime() {
        assertEquals(0, Lateness.overdueMs(DUE_MS, NearTier.NONE, false));
        assertEquals(0, Lateness.overdueMs(DUE_MS, NearTier.AT_ONCE_MS, false));
    }
}
