package tidegate.pulsar;

import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.util.Optional;
import java.util.Properties;
import java.util.regex.Pattern;
import tidegate.pulsar.indexlog.LogLedgers;

/**
 * The shim's keys of broker.conf. Times are in ms, sizes in entries.
 *
 * @param socket the daemon's Unix domain socket ({@code tidegateSocket})
 * @param brokerName this broker's name at the daemon, in place of its listening address ({@code tidegateBrokerName})
 * @param horizonMs entries due within it are pushed to the broker ahead of time ({@code tidegateHorizonMillis})
 * @param credit pushed entries of one subscription that the broker holds at most ({@code tidegateCredit})
 * @param nearMaxEntries own entries that are gated here at most while the daemon is there
 *     ({@code tidegateNearMaxEntries})
 * @param maxPendingEntries entries of the broker that may wait for the daemon before reading pauses
 *     ({@code tidegateMaxPendingEntries})
 * @param ackPollMs how often the shim looks for acknowledgements ({@code tidegateAckPollMillis})
 * @param daemonWaitMs how long a new tracker waits for the daemon before it decides alone ({@code tidegateDaemonWaitMillis})
 * @param readAhead true if backlogs that no index has are read ahead of the dispatcher ({@code tidegateReadAhead})
 * @param readAheadEntries entries of a subscription that may wait for the daemon while it is read ahead
 *     ({@code tidegateReadAheadEntries})
 * @param readAheadPerSecond entries of the broker that are read ahead in a second at most
 *     ({@code tidegateReadAheadPerSecond})
 * @param prefetchEntries entries of a subscription that are read into the broker's cache before they are handed out, at
 *     most; 0: none ({@code tidegatePrefetchEntries})
 * @param indexLog the home of index logs: {@code bookkeeper}, a URL or {@code none} ({@code tidegateIndexLog})
 */
record ShimConfig(Path socket, Optional<String> brokerName, int horizonMs, int credit, long nearMaxEntries,
                  long maxPendingEntries, int ackPollMs, long daemonWaitMs, boolean readAhead, long readAheadEntries, long readAheadPerSecond,
                  int prefetchEntries, String indexLog) {
    static final String SOCKET = "tidegateSocket";
    static final String BROKER_NAME = "tidegateBrokerName";
    static final String HORIZON = "tidegateHorizonMillis";
    static final String CREDIT = "tidegateCredit";
    static final String NEAR_MAX = "tidegateNearMaxEntries";
    static final String MAX_PENDING = "tidegateMaxPendingEntries";
    static final String ACK_POLL = "tidegateAckPollMillis";
    static final String DAEMON_WAIT = "tidegateDaemonWaitMillis";
    static final String INDEX_LOG = "tidegateIndexLog";
    static final String READ_AHEAD = "tidegateReadAhead";
    static final String READ_AHEAD_ENTRIES = "tidegateReadAheadEntries";
    static final String READ_AHEAD_PER_SECOND = "tidegateReadAheadPerSecond";
    static final String PREFETCH_ENTRIES = "tidegatePrefetchEntries";
    static final String ALLOW_UNKNOWN_VERSION = "tidegateAllowUnknownVersion";

    /** Compiled and tested against 4.0, 4.2 and 5.0. 4.1 lies between them and is untried. */
    private static final Pattern KNOWN_VERSIONS = Pattern.compile("(4\\.[012]|5\\.0)\\.\\d+.*");

    private static final Pattern URL = Pattern.compile("[a-z][a-z0-9+.-]*://[!-?A-~]{1,1000}");
    private static final int MAX_SOCKET_BYTES = 107;

    /**
     * Reads the keys.
     *
     * @throws ShimConfigException if a key is missing or has an impossible value
     */
    static ShimConfig read(Properties properties) throws ShimConfigException {
        return new ShimConfig(
                socket(properties),
                Optional.of(text(properties, BROKER_NAME, "")).filter(name -> !name.isEmpty()),
                (int) number(properties, HORIZON, 2_000, 1, 3_600_000),
                (int) number(properties, CREDIT, 20_000, 1, 10_000_000),
                number(properties, NEAR_MAX, 200_000, 0, 100_000_000),
                number(properties, MAX_PENDING, 1_000_000, 1_000, 1_000_000_000),
                (int) number(properties, ACK_POLL, 50, 1, 10_000),
                number(properties, DAEMON_WAIT, 10_000, 0, 86_400_000),
                flag(properties, READ_AHEAD, true),
                number(properties, READ_AHEAD_ENTRIES, 100_000, 1_000, 100_000_000),
                number(properties, READ_AHEAD_PER_SECOND, 1_000_000, 1_000, 100_000_000),
                (int) number(properties, PREFETCH_ENTRIES, 2_000, 0, 100_000),
                indexLog(properties));
    }

    private static String indexLog(Properties properties) throws ShimConfigException {
        String value = text(properties, INDEX_LOG, LogLedgers.NONE);
        if (value.equals(LogLedgers.NONE) || value.equals(LogLedgers.BOOKKEEPER)) {
            return value;
        }
        // The daemon reports other errors of a URL: only it uses the URL.
        if (!URL.matcher(value).matches()) {
            throw new ShimConfigException(INDEX_LOG + " is neither bookkeeper, none nor a URL such as s3://bucket/folder"
                    + " without name and password");
        }
        return value;
    }

    /**
     * Refuses a Pulsar of a line that the shim does not know.
     *
     * @throws ShimConfigException unless the version is known or the configuration allows any
     */
    static void checkVersion(Properties properties, String pulsarVersion) throws ShimConfigException {
        boolean allowed = Boolean.parseBoolean(text(properties, ALLOW_UNKNOWN_VERSION, "false"));
        if (!allowed && !KNOWN_VERSIONS.matcher(pulsarVersion).matches()) {
            throw new ShimConfigException("Tidegate knows Pulsar 4.0.x, 4.1.x, 4.2.x and 5.0.x; this is " + pulsarVersion
                    + ". Use a Tidegate for this version, or set " + ALLOW_UNKNOWN_VERSION + "=true to try it");
        }
    }

    /** The broker's name for the daemon: as configured, else its listening address; empty until it listens. */
    Optional<String> brokerName(String address, Optional<Integer> listenPort, Optional<Integer> listenPortTls) {
        return brokerName.or(() -> listenPort.or(() -> listenPortTls).map(port -> address + ":" + port));
    }

    private static Path socket(Properties properties) throws ShimConfigException {
        String value = text(properties, SOCKET, "");
        if (value.isEmpty()) {
            throw new ShimConfigException(SOCKET + " is not set: name the socket that `tidegate serve --socket` listens on");
        }
        Path path;
        try {
            path = Path.of(value);
        } catch (InvalidPathException e) {
            throw new ShimConfigException(SOCKET + "=" + value + " is not a path: " + e.getReason());
        }
        if (!path.isAbsolute()) {
            throw new ShimConfigException(SOCKET + "=" + value + " is not an absolute path");
        }
        if (value.getBytes(java.nio.charset.StandardCharsets.UTF_8).length > MAX_SOCKET_BYTES) {
            throw new ShimConfigException(SOCKET + "=" + value + " is longer than the " + MAX_SOCKET_BYTES
                    + " bytes that a Unix domain socket's path may have");
        }
        return path;
    }

    private static String text(Properties properties, String key, String otherwise) {
        Object value = properties.get(key);
        return value == null || value.toString().isBlank() ? otherwise : value.toString().trim();
    }

    private static boolean flag(Properties properties, String key, boolean otherwise) throws ShimConfigException {
        String value = text(properties, key, Boolean.toString(otherwise));
        if (!value.equals("true") && !value.equals("false")) {
            throw new ShimConfigException(key + "=" + value + " is neither true nor false");
        }
        return value.equals("true");
    }

    private static long number(Properties properties, String key, long otherwise, long min, long max)
            throws ShimConfigException {
        String value = text(properties, key, Long.toString(otherwise));
        long number;
        try {
            number = Long.parseLong(value);
        } catch (NumberFormatException e) {
            throw new ShimConfigException(key + "=" + value + " is not a whole number");
        }
        if (number < min || number > max) {
            throw new ShimConfigException(key + "=" + value + " is not between " + min + " and " + max);
        }
        return number;
    }
}
