package tidegate.pulsar.readahead;

import java.util.concurrent.TimeUnit;

/**
 * Sets the speed of reading ahead: the limit while nobody publishes, else a speed that live traffic does not feel, and never
 * less than a dispatcher's own. Figures: docs/decisions/read-ahead.md.
 *
 * <p>The measure is live traffic's latency while nothing is read ahead. Above twice that, plus some ms, the speed halves at
 * each look. Below, it rises by a small part, smaller near the speed that live traffic felt last, and not beyond the speed
 * in use. If even the lowest speed does not help, live traffic feels another load, and its latency becomes the measure.
 *
 * <p>Beside live traffic, reads are small pieces, one after the other, each followed by a rest twice as long: a slow piece
 * shows a busy machine at once, a mean too late. A rest is no longer than the lowest speed allows.
 *
 * <p>A small backlog is read in a hurry, at full speed whoever publishes: its first due message waits for all of it. The
 * allowance is some hundred thousand entries, and refills in some minutes. Latency felt meanwhile does not count. Pure:
 * times and figures are passed in. Not thread-safe.
 */
public final class ReadAheadLimiter {
    /** Live traffic's latency since the last look, a mean in ms; NaN without traffic. */
    public record Felt(double publishMs, double dispatchMs) {
        public static final Felt NOTHING = new Felt(Double.NaN, Double.NaN);
    }

    /** A dispatcher's speed: a slower pass would make its subscription wait. */
    static final long LOWEST_PER_SECOND = 50_000;
    /** The most entries read in a hurry at once. */
    static final long MOST_HURRIED = 120_000;
    /** Entries a second read in a hurry in the long run: in 100 s a fifth of {@link #MOST_HURRIED}. */
    private static final double HURRIED_PER_SECOND = MOST_HURRIED / 500.0;
    /** The first speed where somebody publishes. */
    private static final long FIRST_PER_SECOND = 100_000;
    private static final double FALL = 0.5;
    private static final double RISE = 1.1;
    /** Within this factor of the speed that live traffic felt last, the speed rises more slowly. */
    private static final double NEAR_FACTOR = 1.25;
    private static final double NEAR_RISE = 1.005;
    /** Looks without a publication until nobody counts as publishing. */
    private static final int QUIET_LOOKS = 20;
    /** Batches a second beside live traffic: a longer batch delays the requests behind it. */
    private static final long BATCHES_PER_SECOND = 200;
    private static final long SMALLEST_BATCH = 256;
    /** About 2 ms of processor time from the bookie to the daemon. */
    private static final long LARGEST_BATCH = 512;
    /** The rest after a piece, by the piece's time: live traffic has two thirds of the time to itself. */
    private static final double REST_FACTOR = 2;
    /** A longer, hung piece does not show how busy the machine is. */
    private static final long LONGEST_YIELD_NS = TimeUnit.MILLISECONDS.toNanos(100);
    /** How long a pass may still use unused speed. */
    private static final long BURST_NS = TimeUnit.MILLISECONDS.toNanos(20);

    /** Latency of one kind, now and without reading ahead: means, since a single look may be chance. */
    private static final class Latency {
        private static final double UNKNOWN_LIMIT_MS = 10;
        private static final double FACTOR = 2;
        private static final double LOOK_WEIGHT = 0.4;
        private final double slackMs;
        private double nowMs = Double.NaN;
        private double calmMs = Double.NaN;

        Latency(double slackMs) {
            this.slackMs = slackMs;
        }

        void look(double feltMs) {
            nowMs = mean(nowMs, feltMs, LOOK_WEIGHT);
        }

        void learn(double weight) {
            calmMs = mean(calmMs, nowMs, weight);
        }

        boolean isHigh() {
            return nowMs > (Double.isNaN(calmMs) ? UNKNOWN_LIMIT_MS : calmMs * FACTOR + slackMs);
        }

        private static double mean(double before, double nextMs, double weight) {
            if (Double.isNaN(nextMs)) {
                return before;
            }
            return Double.isNaN(before) ? nextMs : before + (nextMs - before) * weight;
        }
    }

    private static final double PUBLISH_SLACK_MS = 2;
    /** With as few processors as pieces under way, a task waits for a piece or two. */
    private static final double DISPATCH_SLACK_MS = 5;
    /** The longest rest, however much was read at once. */
    private static final long LONGEST_REST_NS = TimeUnit.SECONDS.toNanos(1);
    private static final double IDLE_WEIGHT = 0.2;
    private static final double LOWEST_WEIGHT = 0.1;

    private final long lowest;
    private final long highest;
    private final Latency publish = new Latency(PUBLISH_SLACK_MS);
    private final Latency dispatch = new Latency(DISPATCH_SLACK_MS);
    private double perSecond;
    /** The speed at which live traffic felt it last. */
    private double feltPerSecond = Double.MAX_VALUE;
    private int quietLooks;
    /** When the speed allows more, and when the rest after the last piece ends. */
    private long freeAtNs;
    private long restUntilNs;
    private boolean spent;
    /** True if a higher speed would have read more since the last look. */
    private boolean limited;
    /** True while reading in a hurry; the second, if so since the last look. */
    private boolean hurries;
    private boolean hasHurried;
    /** The entries that may still be read in a hurry, and that figure's time. */
    private double hurriesLeft = MOST_HURRIED;
    private long hurriesLeftAtNs;

    public ReadAheadLimiter(long highestPerSecond, long nowNs) {
        highest = highestPerSecond;
        lowest = Math.min(LOWEST_PER_SECOND, highest);
        perSecond = Math.min(FIRST_PER_SECOND, highest);
        freeAtNs = nowNs;
        restUntilNs = nowNs;
        hurriesLeftAtNs = nowNs;
    }

    long perSecond() {
        return (long) perSecond;
    }

    /** Takes the entries left to all passes: a hurry if the allowance covers them. */
    void want(long entries, long nowNs) {
        hurriesLeft = Math.min(MOST_HURRIED, hurriesLeft + (nowNs - hurriesLeftAtNs) / 1e9 * HURRIED_PER_SECOND);
        hurriesLeftAtNs = nowNs;
        hurries = entries > 0 && entries <= hurriesLeft && highest > lowest && !isQuiet();
        if (hurries && !hasHurried) {
            hasHurried = true;
            freeAtNs = nowNs;
            restUntilNs = nowNs;
        }
    }

    /** Takes live traffic's latency since the last look, a short while ago. */
    void look(Felt felt) {
        boolean wasReading = spent;
        boolean wasLimited = limited;
        boolean wasHurried = hasHurried;
        spent = false;
        limited = false;
        hasHurried = hurries;
        if (!wasHurried) {
            publish.look(felt.publishMs());
            dispatch.look(felt.dispatchMs());
        }
        boolean isPublished = !Double.isNaN(felt.publishMs());
        boolean wasQuiet = isQuiet();
        // Between two passes the looks are far apart: one is enough.
        quietLooks = isPublished ? 0 : wasReading ? quietLooks + 1 : QUIET_LOOKS;
        if (!wasReading && !wasHurried) {
            learn(IDLE_WEIGHT);
        }
        if (isQuiet()) {
            perSecond = highest;
            feltPerSecond = Double.MAX_VALUE;
        } else if (wasQuiet || !wasReading) {
            perSecond = Math.min(perSecond, Math.min(FIRST_PER_SECOND, highest));
        } else if (!wasHurried) {
            adapt(isPublished && (publish.isHigh() || dispatch.isHigh()), wasLimited);
        }
    }

    private boolean isQuiet() {
        return quietLooks >= QUIET_LOOKS;
    }

    private boolean isAtFullSpeed() {
        return hurries || isQuiet();
    }

    private void adapt(boolean isFelt, boolean isLimited) {
        if (!isFelt) {
            if (!isLimited) {
                return;
            }
            boolean near = perSecond * NEAR_FACTOR > feltPerSecond && perSecond < feltPerSecond * NEAR_FACTOR;
            perSecond = Math.min(highest, perSecond * (near ? NEAR_RISE : RISE));
        } else if (perSecond <= lowest) {
            learn(LOWEST_WEIGHT);
        } else {
            feltPerSecond = perSecond;
            perSecond = Math.max(lowest, perSecond * FALL);
        }
    }

    private void learn(double weight) {
        publish.learn(weight);
        dispatch.learn(weight);
    }

    /** Entries to ask for at once, {@code most} at most. */
    int batch(int most) {
        if (isAtFullSpeed()) {
            return most;
        }
        long piece = Math.min(LARGEST_BATCH, Math.max(SMALLEST_BATCH, (long) perSecond / BATCHES_PER_SECOND));
        return (int) Math.min(most, piece);
    }

    /** Reads that may be under way, {@code most} at most. */
    int reads(int most) {
        return isAtFullSpeed() ? most : 1;
    }

    /** True if another read may begin now. */
    boolean mayRead(long nowNs) {
        return restNs(nowNs) <= 0;
    }

    /** The time until another read may begin, in ns; 0 or less for now. */
    long restNs(long nowNs) {
        return Math.max(freeAtNs - nowNs, restUntilNs - nowNs);
    }

    /** Counts entries read, and the time from the request to the end of their handling. */
    void spend(long entries, long tookNs, long nowNs) {
        if (entries > 0) {
            spent = true;
            hurriesLeft = hurries ? Math.max(0, hurriesLeft - entries) : hurriesLeft;
            if (freeAtNs - nowNs < -BURST_NS) {
                freeAtNs = nowNs - BURST_NS;
            }
            freeAtNs += (long) Math.min(LONGEST_REST_NS, entries * 1e9 / (hurries ? highest : perSecond));
            restUntilNs = nowNs + (isAtFullSpeed() ? 0 : yieldNs(entries, tookNs));
            limited |= freeAtNs - restUntilNs >= 0;
        }
    }

    private long yieldNs(long entries, long tookNs) {
        double longestNs = Math.max(0, entries * 1e9 / lowest - tookNs);
        return (long) Math.min(longestNs, Math.min(LONGEST_YIELD_NS, tookNs * REST_FACTOR));
    }
}
