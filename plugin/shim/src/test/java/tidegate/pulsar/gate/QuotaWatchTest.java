package tidegate.pulsar.gate;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import tidegate.pulsar.gate.QuotaWatch.Change;

/** A quota is told when it is passed, and again when a tenth of it is free: not at each step of a count around it. */
class QuotaWatchTest {
    private static final long NOW_MS = 1_767_225_600_000L;

    private final QuotaWatch watch = new QuotaWatch();

    private static DelayPolicy quota(long quota) {
        return new DelayPolicy(List.of(), quota, true);
    }

    @Test
    void itIsToldWhenItIsPassedAndWhenThereIsRoomAgain() {
        assertEquals(Change.NONE, watch.look(quota(100), 100, NOW_MS));
        assertEquals(Change.OVER, watch.look(quota(100), 101, NOW_MS));
        assertEquals(Change.NONE, watch.look(quota(100), 5_000, NOW_MS));
        assertEquals(Change.NONE, watch.look(quota(100), 91, NOW_MS));
        assertEquals(Change.BACK, watch.look(quota(100), 90, NOW_MS));
        assertEquals(Change.NONE, watch.look(quota(100), 0, NOW_MS));
    }

    @Test
    void aCountThatSwingsAroundItIsToldOnce() {
        int told = 0;
        for (int second = 0; second < 3_600; second++) {
            told += watch.look(quota(100), 95 + second % 10, NOW_MS + second * 1_000L) == Change.NONE ? 0 : 1;
        }
        assertEquals(1, told);
    }

    @Test
    void aCountThatSwingsFarIsToldOnceAMinute() {
        int over = 0;
        for (int second = 0; second < 600; second++) {
            over += watch.look(quota(100), second % 2 * 1_000L, NOW_MS + second * 1_000L) == Change.OVER ? 1 : 0;
        }
        assertEquals(10, over);
    }

    @ParameterizedTest
    @CsvSource({"1,1,NONE", "1,0,BACK", "5,5,NONE", "5,4,BACK"})
    void aSmallQuotaHasRoomWithOneLess(long quota, long waiting, Change told) {
        watch.look(quota(quota), quota + 1, NOW_MS);
        assertEquals(told, watch.look(quota(quota), waiting, NOW_MS));
    }

    @Test
    void aQuotaThatWasTakenAwayOrRaisedHasRoom() {
        watch.look(quota(10), 11, NOW_MS);
        assertEquals(Change.BACK, watch.look(DelayPolicy.NONE, 11, NOW_MS));
        watch.look(quota(10), 11, NOW_MS + QuotaWatch.AGAIN_MS);
        assertEquals(Change.BACK, watch.look(quota(100), 11, NOW_MS + QuotaWatch.AGAIN_MS));
    }

    @Test
    void aClockThatIsSetBackDelaysTheNextByAMinuteAtMost() {
        watch.look(quota(10), 11, NOW_MS);
        watch.look(quota(10), 0, NOW_MS);
        assertEquals(Change.NONE, watch.look(quota(10), 11, NOW_MS - 3_600_000));
        assertEquals(Change.OVER, watch.look(quota(10), 11, NOW_MS - 3_600_000 + QuotaWatch.AGAIN_MS));
    }
}
