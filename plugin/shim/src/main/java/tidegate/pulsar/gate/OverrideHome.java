package tidegate.pulsar.gate;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/**
 * Where the overrides of one subscription are stored: ledgers, and a pointer to them among the cursor's properties.
 *
 * <p>Any thread may call it. It returns at once, never throws, and completes on any thread; what fails has perhaps been done.
 */
public interface OverrideHome {
    /** The ledger does not exist, or is none of overrides: reading it again would not help. */
    final class NoLedgerException extends Exception {
        private static final long serialVersionUID = 1;

        public NoLedgerException(String message) {
            super(message);
        }
    }

    /**
     * The cursor's metadata have another version than this broker knows: somebody else wrote them, or this very write was done, its
     * answer was lost, and the client sent it again.
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
        /** It is another one than expected: somebody else has written it. Nothing was changed. */
        STALE,
        /** The cursor's metadata take nothing now. Nothing was changed. */
        REFUSED
    }

    /** The home of a subscription that stores no overrides. */
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

    /** A pointer begins with it. */
    String VERSION = "1;";

    /** The ledgers that a pointer names, that of the present first. */
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

    /** True if something can be stored, as far as is known. */
    boolean isAvailable();

    /** The pointer as this broker last read or wrote it; empty if there is none. */
    String pointer();

    /** A new ledger, open for {@link #append}. */
    CompletableFuture<Long> create();

    /** Appends to a ledger that was created here; entries are stored in the order of the calls. */
    CompletableFuture<Void> append(long ledgerId, ByteBuffer entry);

    /** All entries of a ledger. Nobody can append to it any more. Completes on a thread that may take its time. */
    CompletableFuture<List<ByteBuffer>> read(long ledgerId);

    /** Changes the pointer from {@code former} to {@code next}. A {@link ConflictException}, too, has perhaps been done. */
    CompletableFuture<Pointed> point(String former, String next);

    /**
     * Ledgers that former trackers of the subscription have made at this broker, and left behind: it was not known then if a
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
