package tidegate.pulsar;

import javax.servlet.Servlet;
import org.apache.pulsar.PulsarVersion;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.web.plugin.servlet.AdditionalServletWithPulsarService;
import org.apache.pulsar.common.configuration.PulsarConfiguration;
import org.eclipse.jetty.servlet.ServletHolder;
import tidegate.pulsar.link.SocketPeer;
import tidegate.pulsar.web.ApiServlet;
import tidegate.pulsar.web.ApiTarget;
import tidegate.pulsar.web.DaemonCalls;

/**
 * The servlet named by {@code additionalServlets}: Tidegate's API on the broker's web port, with the port's TLS and
 * authentication.
 *
 * <p>Pulsar 4.0 calls {@link #getServletHolder}, later versions {@link #getServletInstance}; 5.0 wraps a servlet of
 * {@code javax}. No method may name another Jetty class: later versions moved them.
 */
public final class WebApi implements AdditionalServletWithPulsarService {
    /** Longer than the daemon waits for a silent broker. */
    private static final long DAEMON_DEADLINE_MS = 40_000;
    private static final long DEADLINE_MS = 60_000;

    private PulsarService pulsar;
    private DaemonCalls daemon;

    @Override
    public void loadConfig(PulsarConfiguration configuration) {
        // The broker's service has it, too.
    }

    @Override
    public void setPulsarService(PulsarService service) {
        pulsar = service;
    }

    @Override
    public String getBasePath() {
        return ApiTarget.BASE;
    }

    /** Up to 4.1. */
    public ServletHolder getServletHolder() {
        return new ServletHolder(servlet());
    }

    /** From 4.2 on. */
    public Object getServletInstance() {
        return servlet();
    }

    private Servlet servlet() {
        ShimConfig config;
        try {
            config = ShimConfig.read(pulsar.getConfig().getProperties());
        } catch (ShimConfigException e) {
            throw new IllegalArgumentException(e.getMessage(), e);
        }
        daemon = new DaemonCalls(config.socket(), new SocketPeer(SocketPeer::ownUserAndRoot), "pulsar " + PulsarVersion.getVersion(),
                DAEMON_DEADLINE_MS);
        return new ApiServlet(new BrokerGuard(pulsar), daemon, DEADLINE_MS);
    }

    @Override
    public void close() {
        if (daemon != null) {
            daemon.close();
        }
    }
}
