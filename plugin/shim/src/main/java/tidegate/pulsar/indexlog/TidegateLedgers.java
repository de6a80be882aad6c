package tidegate.pulsar.indexlog;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import org.apache.bookkeeper.client.api.BKException;
import org.apache.bookkeeper.client.api.BookKeeper;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedgerConfig;

/**
 * Tidegate's ledgers in BookKeeper, with the topic's own quorums, digest and password, and a mark of ours, so that a wrong
 * number fences or deletes no ledger of messages.
 */
final class TidegateLedgers {
    /** Shown by BookKeeper's tools; it also identifies ours. */
    private static final String APPLICATION = "application";
    private static final String OURS = "tidegate";

    private TidegateLedgers() {}

    static CompletableFuture<WriteHandle> create(BookKeeper client, ManagedCursor cursor, String component) {
        ManagedLedgerConfig config = cursor.getManagedLedger().getConfig();
        return client.newCreateLedgerOp()
                .withEnsembleSize(config.getEnsembleSize())
                .withWriteQuorumSize(config.getWriteQuorumSize())
                .withAckQuorumSize(config.getAckQuorumSize())
                .withDigestType(config.getDigestType())
                .withPassword(config.getPassword())
                .withCustomMetadata(Map.of(
                        APPLICATION, bytes(OURS),
                        "component", bytes(component),
                        "pulsar/managed-ledger", bytes(cursor.getManagedLedger().getName()),
                        "pulsar/cursor", bytes(cursor.getName())))
                .execute();
    }

    /** Opens one of ours with recovery, which fences its writer. */
    static CompletableFuture<ReadHandle> recover(BookKeeper client, ManagedCursor cursor, long ledgerId) {
        ManagedLedgerConfig config = cursor.getManagedLedger().getConfig();
        return requireOurs(client, ledgerId).thenCompose(ours -> client.newOpenLedgerOp()
                .withLedgerId(ledgerId)
                .withRecovery(true)
                .withDigestType(config.getDigestType())
                .withPassword(config.getPassword())
                .execute());
    }

    private static CompletableFuture<Void> requireOurs(BookKeeper client, long ledgerId) {
        return client.getLedgerMetadata(ledgerId).thenAccept(metadata -> {
            byte[] application = metadata.getCustomMetadata().get(APPLICATION);
            if (application == null || !Arrays.equals(application, bytes(OURS))) {
                throw new IllegalArgumentException("ledger " + ledgerId + " is not Tidegate's");
            }
        });
    }

    /** Deletes one of ours; it may be gone already. */
    static CompletableFuture<Void> delete(BookKeeper client, long ledgerId) {
        return requireOurs(client, ledgerId)
                .thenCompose(ours -> client.newDeleteLedgerOp().withLedgerId(ledgerId).execute())
                .exceptionally(error -> {
            if (isGone(error)) {
                return null;
            }
            throw new CompletionException(cause(error));
        });
    }

    static boolean isGone(Throwable error) {
        return code(error) == BKException.Code.NoSuchLedgerExistsException
                || code(error) == BKException.Code.NoSuchLedgerExistsOnMetadataServerException;
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static Throwable cause(Throwable error) {
        return error instanceof CompletionException && error.getCause() != null ? error.getCause() : error;
    }

    static int code(Throwable error) {
        return cause(error) instanceof BKException failed ? failed.getCode() : BKException.Code.UnexpectedConditionException;
    }
}
