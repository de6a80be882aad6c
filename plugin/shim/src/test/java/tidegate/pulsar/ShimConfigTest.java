package tidegate.pulsar;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.Optional;
import java.util.Properties;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class ShimConfigTest {
    private final Properties properties = new Properties();

    private ShimConfig read() throws ShimConfigException {
        return ShimConfig.read(properties);
    }

    @Test
    void onlyTheSocketHasNoDefault() throws ShimConfigException {
        properties.setProperty("tidegateSocket", " /run/tidegate.sock ");
        assertEquals(new ShimConfig(Path.of("/run/tidegate.sock"), Optional.empty(), 2000, 20_000, 200_000, 1_000_000, 50,
                10_000, true, 100_000, 1_000_000, 2_000, "none"), read());
    }

    @Test
    void everyKeyCounts() throws ShimConfigException {
        properties.setProperty("tidegateSocket", "/s");
        properties.setProperty("tidegateBrokerName", "b1");
        properties.setProperty("tidegateHorizonMillis", "100");
        properties.setProperty("tidegateCredit", "7");
        properties.setProperty("tidegateNearMaxEntries", "8");
        properties.setProperty("tidegateMaxPendingEntries", "9000");
        properties.setProperty("tidegateAckPollMillis", "10");
        properties.setProperty("tidegateDaemonWaitMillis", "0");
        properties.setProperty("tidegateIndexLog", "bookkeeper");
        properties.setProperty("tidegateReadAhead", "false");
        properties.setProperty("tidegateReadAheadEntries", "5000");
        properties.setProperty("tidegateReadAheadPerSecond", "6000");
        properties.setProperty("tidegatePrefetchEntries", "0");
        assertEquals(new ShimConfig(Path.of("/s"), Optional.of("b1"), 100, 7, 8, 9000, 10, 0, false, 5000, 6000, 0,
                "bookkeeper"), read());
    }

    @ParameterizedTest
    @CsvSource({
        "tidegateSocket, ''", "tidegateSocket, relative.sock", "tidegateHorizonMillis, 0", "tidegateHorizonMillis, soon",
        "tidegateCredit, -1", "tidegateCredit, 1.5", "tidegateMaxPendingEntries, 10", "tidegateAckPollMillis, 0",
        "tidegateDaemonWaitMillis, -5", "tidegateIndexLog, somewhere", "tidegateIndexLog, s3://key:secret@bucket",
        "tidegateNearMaxEntries, many", "tidegateReadAhead, yes",
        "tidegateReadAheadEntries, 0", "tidegateReadAheadPerSecond, 0", "tidegatePrefetchEntries, -1", "tidegatePrefetchEntries, all"
    })
    void aBadValueIsRefusedByItsName(String key, String value) {
        properties.setProperty("tidegateSocket", "/run/tidegate.sock");
        properties.setProperty(key, value);
        String message = assertThrows(ShimConfigException.class, this::read).getMessage();
        assertTrue(message.contains(key), message);
    }

    @Test
    void aSocketPathThatTheSystemCannotBindIsRefused() {
        properties.setProperty("tidegateSocket", "/" + "x".repeat(200));
        assertTrue(assertThrows(ShimConfigException.class, this::read).getMessage().contains("107"));
    }

    @Test
    void aBrokerIsNamedByWhereItListens() throws ShimConfigException {
        assertEquals(Optional.of("b.example:6650"), nameOf(Optional.of(6650), Optional.of(6651)));
        assertEquals(Optional.of("b.example:6651"), nameOf(Optional.empty(), Optional.of(6651)));
        assertEquals(Optional.empty(), nameOf(Optional.empty(), Optional.empty()), "it does not listen yet");
    }

    @Test
    void aConfiguredNameGoesBeforeWhereTheBrokerListens() throws ShimConfigException {
        properties.setProperty("tidegateBrokerName", "b1");
        assertEquals(Optional.of("b1"), nameOf(Optional.of(6650), Optional.empty()));
        assertEquals(Optional.of("b1"), nameOf(Optional.empty(), Optional.empty()));
    }

    private Optional<String> nameOf(Optional<Integer> listenPort, Optional<Integer> listenPortTls) throws ShimConfigException {
        properties.setProperty("tidegateSocket", "/s");
        return read().brokerName("b.example", listenPort, listenPortTls);
    }

    @ParameterizedTest
    @ValueSource(strings = {"4.0.0", "4.0.8", "4.1.1", "4.2.4", "4.0.9-SNAPSHOT", "5.0.0", "5.0.1"})
    void knownVersionsAreAccepted(String version) {
        assertDoesNotThrow(() -> ShimConfig.checkVersion(properties, version));
    }

    @ParameterizedTest
    @ValueSource(strings = {"3.3.9", "4.3.0", "5.1.0", "4.10.1", "unknown", ""})
    void otherVersionsOnlyIfAllowed(String version) {
        String message = assertThrows(ShimConfigException.class,
                () -> ShimConfig.checkVersion(properties, version)).getMessage();
        assertTrue(message.contains("tidegateAllowUnknownVersion"), message);
        properties.setProperty("tidegateAllowUnknownVersion", "true");
        assertDoesNotThrow(() -> ShimConfig.checkVersion(properties, version));
    }
}
