package org.apache.pulsar.broker.testcontext;

import org.apache.bookkeeper.client.AsyncCallback.OpenCallback;
import org.apache.bookkeeper.client.PulsarMockBookKeeper;
import org.apache.bookkeeper.common.util.OrderedExecutor;

/**
 * In the place of the one in Pulsar's tests: a mock of BookKeeper that outlives its broker.
 *
 * <p>The mocks of 4.0.8, the newest on Maven Central, do not know the opening of a ledger as 4.2.4 asks for it.
 */
public class NonClosableMockBookKeeper extends PulsarMockBookKeeper {
    public NonClosableMockBookKeeper(OrderedExecutor executor) throws Exception {
        super(executor);
    }

    /** 4.0.8 has no such method to override. */
    public void asyncOpenLedger(long ledgerId, DigestType digest, byte[] password, OpenCallback callback, Object context,
            boolean keepUpdateMetadata) {
        asyncOpenLedger(ledgerId, digest, password, callback, context);
    }

    @Override
    public void close() {
        // Not with a broker.
    }

    @Override
    public void shutdown() {
        // Not with a broker.
    }

    public void reallyShutdown() {
        super.shutdown();
    }
}
