package tidegate.pulsar.gate;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/**
 * The home of one subscription's overrides: ledgers, and a pointer to them among the cursor's properties.
 *
 * <p>Any thread may call it. It returns at once, never throws, and completes on any thread; a failed operation may be done
 * all the same.
 */
public interface OverrideHome {
    /** The ledger does not exist, or has no overrides: reading it again would not help. */
    final class NoLedgerException extends Exception {
        private static final long serialVersionUID = 1;

        public NoLedgerException(String message) {
            super(message);
        }
    }

    /**
     * The cursor's metadata have another version than this broker knows: another writer came first, or the client repeated
     * this very write, whose answer was lost.
     */
    final class ConflictException extends Exception {
        private static final long serialVersionUID = 1;

        public ConflictException(String message) {
            super(message);
        }
    }

    enum Pointed {
        DONE,
        /** The pointer is not the expected one: another writer came first. Nothing was changed. */
        STALE,
        /** The cursor's metadata take nothing now. Nothing was changed. */
        REFUSED
    }

    /** The home of a subscription without stored overrides. */
    OverrideHome NONE = new OverrideHome() {
        @Override
        public boolean isAvailable() {
            return false;
        }

        @Override
        public String pointer() {
            return "";
        }

        @Override
        public CompletableFuture<Long> create() {
            return refused();
        }

        @Override
        public CompletableFuture<Void> append(long ledgerId, ByteBuffer entry) {
            return refused();
        }

        @Override
        public CompletableFuture<List<ByteBuffer>> read(long ledgerId) {
            return refused();
        }

        @Override
        public CompletableFuture<Pointed> point(String former, String next) {
            return refused();
        }

        @Override
        public void delete(long ledgerId) {
            // There is none.
        }

        @Override
        public void close() {
            // Nothing to close.
        }

        private <T> CompletableFuture<T> refused() {
            return CompletableFuture.failedFuture(new UnsupportedOperationException("no overrides are stored here"));
        }
    };

    String VERSION = "1;";

    /** The ledgers that a pointer names, the present one first. */
    static List<Long> ledgersOf(String pointer) {
        List<Long> ledgers = new ArrayList<>();
        if (pointer.startsWith(VERSION)) {
            for (String id : pointer.substring(VERSION.length()).split(",")) {
                if (id.matches("[0-9]{1,18}")) {
                    ledgers.add(Long.parseLong(id));
                }
            }
        }
        return ledgers;
    }

    /** True if something can be stored, as far as known. */
    boolean isAvailable();

    /** The pointer as this broker last read or wrote it; empty without one. */
    String pointer();

    /** A new ledger, open for {@link #append}. */
    CompletableFuture<Long> create();

    /** Appends to a ledger created here; entries are stored in call order. */
    CompletableFuture<Void> append(long ledgerId, ByteBuffer entry);

    /** All entries of a ledger, to which no more can be appended. Completes on a thread that may take its time. */
    CompletableFuture<List<ByteBuffer>> read(long ledgerId);

    /** Changes the pointer from {@code former} to {@code next}. Even a {@link ConflictException} may have been done. */
    CompletableFuture<Pointed> point(String former, String next);

    /** Ledgers that the subscription's former trackers at this broker left behind, unsure if a pointer names them. */
    default List<Long> leftBehind() {
        return List.of();
    }

    /** Deletes a ledger of overrides, in the background. */
    void delete(long ledgerId);

    void close();
}
