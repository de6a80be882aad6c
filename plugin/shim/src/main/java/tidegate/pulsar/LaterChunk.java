package tidegate.pulsar;

import java.util.concurrent.Executor;
import java.util.function.Consumer;
import java.util.function.Predicate;
import org.apache.bookkeeper.mledger.AsyncCallbacks.ReadEntryCallback;
import org.apache.bookkeeper.mledger.Entry;
import org.apache.bookkeeper.mledger.ManagedLedger;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.ManagedLedgerException.LedgerNotExistException;
import org.apache.bookkeeper.mledger.ManagedLedgerException.NonRecoverableLedgerException;
import org.apache.bookkeeper.mledger.Position;
import org.apache.pulsar.common.api.proto.MessageMetadata;
import org.apache.pulsar.common.protocol.Commands;
import tidegate.pulsar.gate.TrackerContext.Readable;

/**
 * The state of a later chunk of a message: looks back in the topic for the first chunk, entry by entry. A producer publishes
 * chunks in order, so that one is before it, or acknowledged and trimmed.
 *
 * <p>Invariants: at most one read is under way; at most {@link #MAX_ENTRIES} and about {@link #MAX_BYTES} are read; a first
 * chunk not found within these bounds counts as unacknowledged.
 */
final class LaterChunk {
    static final int MAX_ENTRIES = 1024;
    private static final long MAX_BYTES = 64L * 1024 * 1024;

    private final ManagedLedger ledger;
    private final Predicate<Position> isDeleted;
    private final Position markDelete;
    private final Executor executor;
    private final Position lone;
    private final String uuid;
    private final Consumer<Position> waiting;
    private final Consumer<Readable> done;
    private int readEntries;
    private long readBytes;

    /**
     * {@code markDelete}: everything up to it is acknowledged. {@code executor} begins each read. {@code lone}: an earlier
     * chunk of this message with an acknowledged first chunk, or null. {@code waiting} hears of a first chunk found
     * unacknowledged.
     */
    LaterChunk(ManagedLedger ledger, Predicate<Position> isDeleted, Position markDelete, Executor executor, Position lone,
            String uuid, Consumer<Position> waiting, Consumer<Readable> done) {
        this.ledger = ledger;
        this.isDeleted = isDeleted;
        this.markDelete = markDelete;
        this.executor = executor;
        this.lone = lone;
        this.uuid = uuid;
        this.waiting = waiting;
        this.done = done;
    }

    /** The UUID of the message of a later chunk, null for any other entry. */
    static String uuidOf(Entry entry) {
        MessageMetadata metadata = metadata(entry);
        return metadata != null && isChunk(metadata) && metadata.getChunkId() > 0 ? metadata.getUuid() : null;
    }

    /** Calls {@code done} with LONE_CHUNK if the first chunk is acknowledged, else with LATER_CHUNK. */
    void lookBefore(Position later) {
        Position previous = ledger.getPreviousPosition(later);
        if (previous.getEntryId() < 0 || previous.compareTo(markDelete) <= 0 || previous.equals(lone) && isDeleted.test(lone)) {
            done.accept(Readable.LONE_CHUNK);
        } else if (readEntries == MAX_ENTRIES || readBytes > MAX_BYTES) {
            done.accept(Readable.LATER_CHUNK);
        } else {
            executor.execute(() -> read(previous));
        }
    }

    private void read(Position position) {
        ledger.asyncReadEntry(position, new ReadEntryCallback() {
            @Override
            public void readEntryComplete(Entry entry, Object ctx) {
                boolean isFirst;
                try {
                    readEntries++;
                    readBytes += entry.getLength();
                    MessageMetadata metadata = metadata(entry);
                    isFirst = metadata != null && isChunk(metadata) && metadata.getChunkId() == 0 && metadata.getUuid().equals(uuid);
                } finally {
                    entry.release();
                }
                if (isFirst && isDeleted.test(position)) {
                    done.accept(Readable.LONE_CHUNK);
                } else if (isFirst) {
                    waiting.accept(position);
                    done.accept(Readable.LATER_CHUNK);
                } else {
                    lookBefore(position);
                }
            }

            @Override
            public void readEntryFailed(ManagedLedgerException e, Object ctx) {
                boolean isLost = e instanceof NonRecoverableLedgerException || e instanceof LedgerNotExistException;
                if (isLost && isDeleted.test(position)) {
                    // Skipped as lost; a skipped first chunk is acknowledged.
                    readEntries++;
                    lookBefore(position);
                } else {
                    done.accept(Readable.LATER_CHUNK);
                }
            }
        }, null);
    }

    private static boolean isChunk(MessageMetadata metadata) {
        return metadata.hasUuid() && metadata.hasChunkId();
    }

    /** Null if it does not parse: the dispatcher handles such entries. */
    private static MessageMetadata metadata(Entry entry) {
        try {
            MessageMetadata metadata = new MessageMetadata();
            Commands.parseMessageMetadata(entry.getDataBuffer().duplicate(), metadata);
            return metadata;
        } catch (RuntimeException e) {
            return null;
        }
    }
}
