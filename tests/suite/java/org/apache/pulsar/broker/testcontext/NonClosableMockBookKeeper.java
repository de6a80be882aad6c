package org.apache.pulsar.broker.testcontext;

import java.lang.reflect.Proxy;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.client.AsyncCallback.OpenCallback;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.PulsarMockBookKeeper;
import org.apache.bookkeeper.client.api.CreateBuilder;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.common.util.OrderedExecutor;

/**
 * In the place of the one in Pulsar's tests: a mock of BookKeeper that outlives its broker.
 *
 * <p>The mocks of 4.0.8, the newest on Maven Central, know neither the opening of a ledger as 4.2.4 asks for it nor the creation as
 * 5.0.1 does.
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

    /** The mock's own builder refuses; here it passes the password and the metadata on. */
    @Override
    public CreateBuilder newCreateLedgerOp() {
        Wanted wanted = new Wanted();
        return (CreateBuilder) Proxy.newProxyInstance(CreateBuilder.class.getClassLoader(), new Class<?>[] {CreateBuilder.class},
                (builder, method, arguments) -> {
                    switch (method.getName()) {
                        case "withPassword" -> wanted.password = (byte[]) arguments[0];
                        case "withCustomMetadata" -> wanted.metadata = asMetadata(arguments[0]);
                        case "execute" -> {
                            return create(wanted);
                        }
                        default -> {
                            // Sizes of ensemble and quorums, digest, logger: one mocked bookie has no use for them.
                        }
                    }
                    return builder;
                });
    }

    private CompletableFuture<WriteHandle> create(Wanted wanted) {
        CompletableFuture<WriteHandle> created = new CompletableFuture<>();
        asyncCreateLedger(1, 1, 1, DigestType.CRC32C, wanted.password, (code, ledger, context) -> {
            if (code == BKException.Code.OK) {
                created.complete(ledger);
            } else {
                created.completeExceptionally(BKException.create(code));
            }
        }, null, wanted.metadata);
        return created;
    }

    @SuppressWarnings("unchecked") // the builder's own parameter
    private static Map<String, byte[]> asMetadata(Object argument) {
        return (Map<String, byte[]>) argument;
    }

    private static final class Wanted {
        private byte[] password = new byte[0];
        private Map<String, byte[]> metadata = Map.of();
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
