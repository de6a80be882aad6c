package tidegate.pulsar.gate;

import java.nio.ByteBuffer;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.position.MovedTimes;
import tidegate.pulsar.wire.OverrideEntry;
import tidegate.pulsar.wire.ProtocolException;

/**
 * Reads the overrides of the first existing ledger that a pointer names. Reading a ledger fences its writer. Stateless, needs
 * no lock.
 */
final class OverrideRecovery {
    private static final Logger LOG = LoggerFactory.getLogger(OverrideRecovery.class);

    /** The stored overrides: of messages that the cursor has as deleted, and the others. */
    record Found(MovedTimes live, MovedTimes acknowledged) {
        static Found nothing() {
            return new Found(new MovedTimes(), new MovedTimes());
        }
    }

    /** A ledger that may exist cannot be read now. */
    static final class UnreadableException extends Exception {
        private static final long serialVersionUID = 1;
        private final long ledgerId;

        private UnreadableException(long ledgerId, Throwable cause) {
            super(cause.getMessage(), cause);
            this.ledgerId = ledgerId;
        }

        long ledgerId() {
            return ledgerId;
        }
    }

    private final TrackerContext context;
    private final OverrideHome home;

    OverrideRecovery(TrackerContext context, OverrideHome home) {
        this.context = context;
        this.home = home;
    }

    /**
     * Fails with a {@link OverrideHome.NoLedgerException} if the overrides are lost, else with an
     * {@link UnreadableException}.
     */
    CompletableFuture<Found> read(String pointer) {
        List<Long> ledgers = OverrideHome.ledgersOf(pointer);
        return ledgers.isEmpty() ? CompletableFuture.completedFuture(Found.nothing())
                : read(ledgers);
    }

    private CompletableFuture<Found> read(List<Long> ledgers) {
        return home.read(ledgers.get(0))
                .handle((entries, error) -> {
                    if (error == null) {
                        return CompletableFuture.completedFuture(found(entries));
                    }
                    Throwable cause = error instanceof CompletionException && error.getCause() != null ? error.getCause() : error;
                    if (!(cause instanceof OverrideHome.NoLedgerException)) {
                        return CompletableFuture.<Found>failedFuture(new UnreadableException(ledgers.get(0), cause));
                    }
                    if (ledgers.size() == 1) {
                        return CompletableFuture.<Found>failedFuture(cause);
                    }
                    LOG.warn("[{}] Ledger {} of the times of moved messages does not exist, so the one before it is read: {}",
                            context.name(), ledgers.get(0), cause.getMessage());
                    return read(ledgers.subList(1, ledgers.size()));
                })
                .thenCompose(found -> found);
    }

    private Found found(List<ByteBuffer> entries) {
        MovedTimes stored = new MovedTimes();
        try {
            replay(entries, stored);
        } catch (ProtocolException e) {
            throw new CompletionException(new OverrideHome.NoLedgerException(e.getMessage()));
        }
        MovedTimes acknowledged = new MovedTimes();
        stored.forEach((ledgerId, entryId, timeMs) -> {
            if (context.isDeleted(ledgerId, entryId)) {
                acknowledged.put(ledgerId, entryId, timeMs);
            }
        });
        acknowledged.forEach((ledgerId, entryId, timeMs) -> stored.remove(ledgerId, entryId));
        return new Found(stored, acknowledged);
    }

    private static void replay(List<ByteBuffer> entries, MovedTimes stored) throws ProtocolException {
        for (ByteBuffer entry : entries) {
            OverrideEntry.read(entry, new OverrideEntry.Reader() {
                @Override
                public void moved(long ledgerId, long entryId, long deliverAtMs) {
                    stored.put(ledgerId, entryId, deliverAtMs);
                }

                @Override
                public void left(long ledgerId, long entryId) {
                    stored.remove(ledgerId, entryId);
                }
            });
        }
    }
}
