package tidegate.pulsar;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.pulsar.common.policies.data.stats.TopicMetricBean;
import tidegate.pulsar.gate.Lateness;
import tidegate.pulsar.gate.TrackerCore;
import tidegate.pulsar.link.DaemonLink;
import tidegate.pulsar.wire.ReleasePace;

/** A tracker's numbers as Pulsar topic metrics; Prometheus shows them for each subscription. */
final class TrackerMetrics {
    private static final String PREFIX = "pulsar_delayed_tidegate_";
    private static final double MS_PER_SECOND = 1000.0;

    private TrackerMetrics() {}

    static Map<String, TopicMetricBean> of(TrackerCore.Stats core, DaemonLink.Stats link, long prefetched) {
        Map<String, TopicMetricBean> metrics = new HashMap<>();
        put(metrics, "connected", link.connected() && core.open() ? 1 : 0);
        put(metrics, "tracked_entries", core.tracked());
        put(metrics, "near_entries", core.near());
        put(metrics, "handed_out_entries", core.handedOut());
        put(metrics, "pending_entries", core.pending() + core.undecided());
        put(metrics, "read_ahead_entries", core.readAhead());
        put(metrics, "prefetched_entries", prefetched);
        put(metrics, "settling_entries", core.settling());
        put(metrics, "paused", core.paused() ? 1 : 0);
        put(metrics, "release_paused", core.pace().isPaused() ? 1 : 0);
        put(metrics, "release_rate", core.pace().kind() == ReleasePace.Kind.RATE ? core.pace().amount() : 0);
        put(metrics, "release_spread_seconds", core.pace().kind() == ReleasePace.Kind.SPREAD ? core.pace().amount() / 1000.0 : 0);
        put(metrics, "held_back_entries", core.heldBack());
        put(metrics, "quota_entries", core.quota());
        put(metrics, "overrides_unread", core.overridesUnread() ? 1 : 0);
        put(metrics, "reconnects", link.reconnects());
        put(metrics, "overdue_seconds", core.overdueMs() / MS_PER_SECOND);
        put(metrics, "early_entries", core.lateness().early());
        putLateness(metrics, core.lateness());
        return metrics;
    }

    /** Puts a histogram: one series for each bound, and one for all. */
    private static void putLateness(Map<String, TopicMetricBean> metrics, Lateness.Figures lateness) {
        String name = PREFIX + "lateness_seconds_bucket";
        List<Long> upTo = lateness.upTo();
        for (int i = 0; i < upTo.size(); i++) {
            boolean isLast = i == Lateness.BOUNDS_MS.size();
            String bound = isLast ? "+Inf" : Double.toString(Lateness.BOUNDS_MS.get(i) / MS_PER_SECOND);
            // The key tells them apart; name and label go to Prometheus.
            metrics.put(name + "_" + bound, new TopicMetricBean(name, upTo.get(i), new String[] {"le", bound}));
        }
        put(metrics, "lateness_seconds_count", upTo.get(upTo.size() - 1));
        put(metrics, "lateness_seconds_sum", lateness.sumMs() / MS_PER_SECOND);
    }

    static boolean areOurs(Map<String, TopicMetricBean> metrics) {
        return metrics.containsKey(PREFIX + "connected");
    }

    private static void put(Map<String, TopicMetricBean> metrics, String name, double value) {
        metrics.put(PREFIX + name, new TopicMetricBean(PREFIX + name, value, null));
    }
}
