package tidegate.pulsar;

import java.util.concurrent.TimeUnit;

/**
 * How fast is read ahead: as fast as is allowed while live traffic does not feel it, slower as soon as it does, and never
 * slower than a dispatcher would read by itself.
 *
 * <p>What live traffic takes while nothing is read is the measure. Above twice that, and 2 ms, the speed falls by a part at
 * each look; below, it rises by a smaller one. If even the lowest speed does not help, it is something else that live traffic
 * feels, and this becomes the measure. While nobody publishes there is no live traffic. Pure: times and figures are passed
 * in. Not thread-safe.
 */
final class Pace {
    /** What live traffic took since the last look, a mean in ms; NaN where there was none. */
    record Felt(double publishMs, double dispatchMs) {
        static final Felt NOTHING = new Felt(Double.NaN, Double.NaN);
    }

    /** As fast as a dispatcher reads: less would make a subscription wait for what is meant to help it. */
    static final long LOWEST_PER_SECOND = 50_000;
    private static final long FIRST_PER_SECOND = 200_000;
    private static final double FALL = 0.8;
    private static final double RISE = 1.1;
    /** A batch is what is read in so long: a longer one holds up whatever comes behind it on the way. */
    private static final long BATCHES_PER_SECOND = 50;
    private static final long SMALLEST_BATCH = 1024;
    /** What was not used of the speed so long ago may be made up for. */
    private static final long BURST_NS = TimeUnit.MILLISECONDS.toNanos(20);

    /** One kind of latency: what it is now, and what it is without reading ahead; means, for one look alone may be by chance. */
    private static final class Latency {
        private static final double UNKNOWN_LIMIT_MS = 10;
        private static final double FACTOR = 2;
        private static final double SLACK_MS = 2;
        private static final double LOOK_WEIGHT = 0.4;
        private double nowMs = Double.NaN;
        private double calmMs = Double.NaN;

        void look(double feltMs) {
            nowMs = mean(nowMs, feltMs, LOOK_WEIGHT);
        }

        void learn(double weight) {
            calmMs = mean(calmMs, nowMs, weight);
        }

        boolean isHigh() {
            return nowMs > (Double.isNaN(calmMs) ? UNKNOWN_LIMIT_MS : calmMs * FACTOR + SLACK_MS);
        }

        private static double mean(double before, double nextMs, double weight) {
            if (Double.isNaN(nextMs)) {
                return before;
            }
            return Double.isNaN(before) ? nextMs : before + (nextMs - before) * weight;
        }
    }

    /** However much was read at once. */
    private static final long LONGEST_REST_NS = TimeUnit.SECONDS.toNanos(1);
    private static final double IDLE_WEIGHT = 0.2;
    private static final double LOWEST_WEIGHT = 0.1;

    private final long lowest;
    private final long highest;
    private final Latency publish = new Latency();
    private final Latency dispatch = new Latency();
    private double perSecond;
    private long freeAtNs;
    private boolean spent;

    Pace(long highestPerSecond, long nowNs) {
        highest = highestPerSecond;
        lowest = Math.min(LOWEST_PER_SECOND, highest);
        perSecond = Math.min(FIRST_PER_SECOND, highest);
        freeAtNs = nowNs;
    }

    long perSecond() {
        return (long) perSecond;
    }

    /** Takes what live traffic has felt since the last look, which is a short while ago. */
    void look(Felt felt) {
        boolean wasReading = spent;
        spent = false;
        publish.look(felt.publishMs());
        dispatch.look(felt.dispatchMs());
        boolean isPublished = !Double.isNaN(felt.publishMs());
        if (!wasReading) {
            learn(IDLE_WEIGHT);
        } else if (isPublished && (publish.isHigh() || dispatch.isHigh())) {
            if (perSecond <= lowest) {
                learn(LOWEST_WEIGHT);
            }
            perSecond = Math.max(lowest, perSecond * FALL);
        } else {
            perSecond = Math.min(highest, perSecond * RISE);
        }
    }

    private void learn(double weight) {
        publish.learn(weight);
        dispatch.learn(weight);
    }

    /** How many entries to ask for at once, {@code most} at most. */
    int batch(int most) {
        return (int) Math.min(most, Math.max(SMALLEST_BATCH, perSecond / BATCHES_PER_SECOND));
    }

    /** Whether more may be asked for now. */
    boolean mayRead(long nowNs) {
        return freeAtNs - nowNs <= 0;
    }

    /** So many entries were read. */
    void spend(long entries, long nowNs) {
        if (entries > 0) {
            spent = true;
            if (freeAtNs - nowNs < -BURST_NS) {
                freeAtNs = nowNs - BURST_NS;
            }
            freeAtNs += (long) Math.min(LONGEST_REST_NS, entries * 1e9 / perSecond);
        }
    }
}
