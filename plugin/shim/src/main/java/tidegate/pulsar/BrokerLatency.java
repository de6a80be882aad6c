package tidegate.pulsar;

import io.prometheus.client.Collector;
import io.prometheus.client.CollectorRegistry;
import java.util.Collections;
import java.util.Set;
import java.util.concurrent.RejectedExecutionException;
import java.util.function.Supplier;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.service.BrokerService;
import tidegate.pulsar.readahead.LatencySampler;
import tidegate.pulsar.readahead.ReadAheadLimiter;

/**
 * {@link LatencySampler} of a Pulsar broker: its own summary of publish latency over all topics, and a task's wait for the
 * dispatch threads.
 *
 * <p>Reports nothing for a broker version without one of the two figures.
 */
final class BrokerLatency implements LatencySampler {
    private static final String COUNT = "pulsar_broker_publish_latency_count";
    private static final String SUM_MS = "pulsar_broker_publish_latency_sum";
    private static final Set<String> PUBLISH = Set.of(COUNT, SUM_MS);

    private final PulsarService pulsar;
    private double count;
    private double sumMs;
    private int turn;

    private long askedNs;
    /** True while a task waits for its turn. */
    private volatile boolean asked;
    private volatile long waitedNs = -1;

    BrokerLatency(PulsarService pulsar) {
        this.pulsar = pulsar;
    }

    @Override
    public ReadAheadLimiter.Felt sample() {
        double dispatchMs = dispatchMs();
        return new ReadAheadLimiter.Felt(publishMs(), dispatchMs);
    }

    private double publishMs() {
        try {
            return publishedMs();
        } catch (LinkageError e) {
            // This Pulsar counts differently.
            return Double.NaN;
        }
    }

    private double publishedMs() {
        double nextCount = 0;
        double nextSumMs = 0;
        for (Collector.MetricFamilySamples family
                : Collections.list(CollectorRegistry.defaultRegistry.filteredMetricFamilySamples(PUBLISH))) {
            for (Collector.MetricFamilySamples.Sample sample : family.samples) {
                nextCount += sample.name.equals(COUNT) ? sample.value : 0;
                nextSumMs += sample.name.equals(SUM_MS) ? sample.value : 0;
            }
        }
        double published = nextCount - count;
        double tookMs = nextSumMs - sumMs;
        count = nextCount;
        sumMs = nextSumMs;
        return published > 0 ? tookMs / published : Double.NaN;
    }

    private double dispatchMs() {
        double felt = Double.NaN;
        if (asked) {
            felt = (System.nanoTime() - askedNs) / 1e6;
        } else if (waitedNs >= 0) {
            felt = waitedNs / 1e6;
        }
        if (!asked) {
            ask();
        }
        return felt;
    }

    /**
     * The threads that dispatch read entries: the topics' own, or the managed ledgers', where reads end (the default in
     * Pulsar 5.0).
     */
    static <T> T dispatchThreads(ServiceConfiguration conf, Supplier<T> ofTopics, Supplier<T> ofLedgers) {
        return (conf.isDispatcherDispatchMessagesInSubscriptionThread() ? ofTopics : ofLedgers).get();
    }

    private void ask() {
        BrokerService broker = pulsar.getBrokerService();
        if (broker == null) {
            return;
        }
        long nowNs = System.nanoTime();
        askedNs = nowNs;
        asked = true;
        try {
            dispatchThreads(pulsar.getConfiguration(), broker::getTopicOrderedExecutor,
                    () -> pulsar.getBookKeeperClient().getMainWorkerPool()).chooseThread(turn++).execute(() -> {
                waitedNs = System.nanoTime() - nowNs;
                asked = false;
            });
        } catch (RejectedExecutionException e) {
            // The broker is stopping.
            asked = false;
        }
    }
}
