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
     * The cursor's metadata have another version than this broker knows: somebody else wrote them, or this very write was
     * done, its answer was lost, and the client sent it again.
     */
    final class ConflictException extends Exception {
        private static final long serialVersionUID = 1;

        public ConflictException(String message) {
            super(message);
        }
    }

    /** The outcome of changing the pointer. */
    enum Pointed {
        DONE,
        /** The pointer is not the expected one: somebody else has written it. Nothing was changed. */
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

    /** The beginning of a pointer. */
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

    /** Appends to a ledger created here; entries are stored in the order of the calls. */
    CompletableFuture<Void> append(long ledgerId, ByteBuffer entry);

    /** All entries of a ledger. Nobody can append to it any more. Completes on a thread that may take its time. */
    CompletableFuture<List<ByteBuffer>> read(long ledgerId);

    /** Changes the pointer from {@code former} to {@code next}. A {@link ConflictException}, too, may have been done. */
    CompletableFuture<Pointed> point(String former, String next);

    /**
     * Ledgers made at this broker by former trackers of the subscription, and left behind: at the time nobody knew if a
     * pointer names them.
     */
    default List<Long> leftBehind() {
        return List.of();
    }

    /** Deletes a ledger of overrides, in the background. */
    void delete(long ledgerId);

    /** Closes everything open. */
    void close();
}
