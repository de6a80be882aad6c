package tidegate.pulsar;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.apache.pulsar.broker.ServiceConfiguration;
import org.junit.jupiter.api.Test;

/** Tests on which threads the wait for a turn is measured. */
class BrokerLatencyTest {
    @Test
    void theThreadsThatDispatchAreAsked() {
        ServiceConfiguration conf = new ServiceConfiguration();
        conf.setDispatcherDispatchMessagesInSubscriptionThread(true);
        assertEquals("topics'", BrokerLatency.dispatchThreads(conf, () -> "topics'", () -> "ledgers'"));
        conf.setDispatcherDispatchMessagesInSubscriptionThread(false);
        assertEquals("ledgers'", BrokerLatency.dispatchThreads(conf, () -> "topics'", () -> "ledgers'"));
    }
}
