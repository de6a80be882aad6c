package tidegate.pulsar;

import java.util.HashMap;
import java.util.Map;
import org.apache.pulsar.common.policies.data.stats.TopicMetricBean;
import tidegate.pulsar.gate.TrackerCore;
import tidegate.pulsar.link.DaemonLink;
import tidegate.pulsar.wire.ReleasePace;

/** A tracker's numbers in the form of Pulsar's topic metrics; Prometheus shows them for each subscription. */
final class TrackerMetrics {
    private static final String PREFIX = "pulsar_delayed_tidegate_";

    private TrackerMetrics() {}

    static Map<String, TopicMetricBean> of(TrackerCore.Stats core, DaemonLink.Stats link) {
        Map<String, TopicMetricBean> metrics = new HashMap<>();
        put(metrics, "connected", link.connected() && core.open() ? 1 : 0);
        put(metrics, "tracked_entries", core.tracked());
        put(metrics, "near_entries", core.near());
        put(metrics, "handed_out_entries", core.handedOut());
        put(metrics, "pending_entries", core.pending() + core.undecided());
        put(metrics, "read_ahead_entries", core.readAhead());
        put(metrics, "settling_entries", core.settling());
        put(metrics, "paused", core.paused() ? 1 : 0);
        put(metrics, "release_paused", core.pace().isPaused() ? 1 : 0);
        put(metrics, "release_rate", core.pace().kind() == ReleasePace.Kind.RATE ? core.pace().amount() : 0);
        put(metrics, "release_spread_seconds", core.pace().kind() == ReleasePace.Kind.SPREAD ? core.pace().amount() / 1000.0 : 0);
        put(metrics, "held_back_entries", core.heldBack());
        put(metrics, "reconnects", link.reconnects());
        return metrics;
    }

    /** True if a dispatcher that shows these has a tracker of ours. */
    static boolean areOurs(Map<String, TopicMetricBean> metrics) {
        return metrics.containsKey(PREFIX + "connected");
    }

    private static void put(Map<String, TopicMetricBean> metrics, String name, double value) {
        metrics.put(PREFIX + name, new TopicMetricBean(PREFIX + name, value, null));
    }
}
