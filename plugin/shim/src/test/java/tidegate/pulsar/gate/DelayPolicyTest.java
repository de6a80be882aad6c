package tidegate.pulsar.gate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** The rules in properties, as the shim reads them, and the times that levels give. */
class DelayPolicyTest {
    private static final long NOW_MS = 1_767_225_600_000L;

    private final List<String> unreadable = new ArrayList<>();

    private DelayPolicy of(String subscription, List<Map<String, String>> places) {
        return DelayPolicy.of(places, subscription, unreadable::add);
    }

    private DelayPolicy levels(String text) {
        return of("sub", List.of(Map.of("tidegate.levels", text)));
    }

    @Test
    void withoutAPropertyNothingIsRuled() {
        assertEquals(DelayPolicy.NONE, of("sub", List.of(Map.of(), Map.of("owner", "team", "tidegate.other", "1"))));
        assertEquals(List.of(), unreadable);
    }

    @Test
    void theTopicsRuleBeatsTheNamespacesAndNoneEndsTheSearch() {
        Map<String, String> namespace = Map.of("tidegate.levels", "1s,10s", "tidegate.quota", "500");
        assertEquals(new DelayPolicy(List.of(1_000L, 10_000L), 500, true), of("sub", List.of(Map.of(), namespace)));
        assertEquals(new DelayPolicy(List.of(60_000L), 500, true), of("sub", List.of(Map.of("tidegate.levels", "1m"), namespace)));
        assertEquals(new DelayPolicy(List.of(), 500, true), of("sub", List.of(Map.of("tidegate.levels", " none "), namespace)));
    }

    @Test
    void ofFittingPatternsTheLongestCounts() {
        List<Map<String, String>> places = List.of(Map.of("tidegate.quota", "1", "tidegate.quota[audit-*]", "2",
                "tidegate.quota[audit-e*u]", "3", "tidegate.quota[other]", "4"));
        assertEquals(1, of("shop", places).quota());
        assertEquals(2, of("audit-us", places).quota());
        assertEquals(3, of("audit-eu", places).quota());
        assertEquals(4, of("other", places).quota());
        assertTrue(DelayPolicy.fits("a.*", "a.b"));
        assertFalse(DelayPolicy.fits("a.*", "axb"), "only the star is special");
        assertTrue(DelayPolicy.fits("*an*a", "banana"));
        assertFalse(DelayPolicy.fits("ab*ba", "aba"), "its ends do not overlap");
        assertFalse(DelayPolicy.fits("a*b*b", "ab"));
        assertFalse(DelayPolicy.fits("*a".repeat(50) + "*b", "a".repeat(200)), "and without trying all ways");
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "10", "0s", "1s,,2s", "1.5s", "-1s", "367d", "99999999999999s", "1s;2s", "1y", "RocketMQ "})
    void anUnreadableLevelIsToldAndNoneCounts(String text) {
        assertEquals(DelayPolicy.NONE, levels(text));
        assertEquals(1, unreadable.size());
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "0", "-5", "1e6", "10000000000001", "1_000"})
    void anUnreadableQuotaIsToldAndNoneCounts(String text) {
        assertEquals(DelayPolicy.NONE, of("sub", List.of(Map.of("tidegate.quota", text))));
        assertEquals(List.of("tidegate.quota=" + text), unreadable);
    }

    @Test
    void tooManyLevelsAreNone() {
        String many = String.join(",", java.util.stream.IntStream.rangeClosed(1, 65).mapToObj(i -> i + "s").toList());
        assertEquals(DelayPolicy.NONE, levels(many));
        assertEquals(64, levels(many.substring(0, many.lastIndexOf(','))).levelsMs().size());
    }

    /** RocketMQ's: 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h. */
    @ParameterizedTest
    @CsvSource({"1, 1000", "1000, 1000", "1001, 5000", "7000, 10000", "10001, 30000", "600001, 1200000", "3600001, 7200000",
        "7200000, 7200000", "7200001, 7200001", "86400000, 86400000", "0, 0", "-5000, -5000"})
    void theLevelsOfRocketMq(long delayMs, long leavesAfterMs) {
        assertEquals(NOW_MS + leavesAfterMs, levels("rocketmq").roundUp(NOW_MS + delayMs, NOW_MS));
        assertEquals(18, levels("rocketmq").levelsMs().size());
    }

    @Test
    void aRoundedTimeIsNeverBeforeTheMessagesOwn() {
        Random random = new Random(4);
        for (int i = 0; i < 2_000; i++) {
            List<Long> levels = random.longs(1 + random.nextInt(5), 1, 100_000).sorted().boxed().toList();
            long ownMs = NOW_MS + random.nextLong(-50_000, 150_000);
            long leavesMs = new DelayPolicy(levels, 0, true).roundUp(ownMs, NOW_MS);
            assertTrue(leavesMs >= ownMs, ownMs + " with " + levels);
            assertTrue(leavesMs == ownMs || levels.contains(leavesMs - NOW_MS));
        }
        assertEquals(Long.MAX_VALUE, levels("rocketmq").roundUp(Long.MAX_VALUE, NOW_MS));
    }

    @Test
    void aQuotaIsPassedByTheFirstBeyondIt() {
        DelayPolicy policy = new DelayPolicy(List.of(), 10, true);
        assertFalse(policy.isOver(10));
        assertTrue(policy.isOver(11));
        assertFalse(DelayPolicy.NONE.isOver(Long.MAX_VALUE));
    }

    @ParameterizedTest
    @CsvSource({"on,true", "off,false", "none,true", "' off ',false", "OFF,true", "'',true", "maybe,true"})
    void anIndexLogIsOffOnlyIfARuleSaysSo(String text, boolean on) {
        assertEquals(on, of("sub", List.of(Map.of("tidegate.index_log", text))).indexLog());
        assertEquals(List.of("on", "off", "none").contains(text.strip()), unreadable.isEmpty());
    }

    @Test
    void aTopicHasAnIndexLogThoughItsNamespaceHasNone() {
        Map<String, String> namespace = Map.of("tidegate.index_log", "off", "tidegate.index_log[paid-*]", "on");
        assertFalse(of("sub", List.of(Map.of(), namespace)).indexLog());
        assertTrue(of("paid-eu", List.of(Map.of(), namespace)).indexLog());
        assertTrue(of("sub", List.of(Map.of("tidegate.index_log", "on"), namespace)).indexLog());
    }
}
