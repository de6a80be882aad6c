package tidegate.pulsar;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.Executor;
import java.util.function.Consumer;
import org.apache.bookkeeper.mledger.AsyncCallbacks.ReadEntryCallback;
import org.apache.bookkeeper.mledger.Entry;
import org.apache.bookkeeper.mledger.ManagedLedger;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.ManagedLedgerException.LedgerNotExistException;
import org.apache.bookkeeper.mledger.ManagedLedgerException.NonRecoverableLedgerException;
import org.apache.bookkeeper.mledger.PositionFactory;
import org.apache.pulsar.common.api.proto.KeyValue;
import org.apache.pulsar.common.api.proto.MessageMetadata;
import org.apache.pulsar.common.protocol.Commands;
import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.JsonText;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.PositionBitmaps;

/**
 * The answer to one PEEK: reads its messages through the managed ledger, and inspects their metadata.
 *
 * <p>Invariants: at most {@link #AT_ONCE} reads are under way, and the next ones begin after all of these; no consumer's
 * state changes. A message with unreadable metadata matches nothing.
 */
final class PeekOp {
    static final int AT_ONCE = 8;
    /** The properties of a message are omitted if they have more characters. */
    static final int MAX_CONTENT = 1024 * 1024;

    private final ManagedLedger ledger;
    private final Frame.Peek peek;
    private final Executor executor;
    private final Consumer<Frame.Peeked> done;
    @GuardedBy("this")
    private final Iterator<Position> left;
    @GuardedBy("this")
    private final PositionBitmaps matching = new PositionBitmaps();
    @GuardedBy("this")
    private final PositionBitmaps unread = new PositionBitmaps();
    @GuardedBy("this")
    private final MessageMetadata metadata = new MessageMetadata();
    @GuardedBy("this")
    private long readBytes;
    @GuardedBy("this")
    private int underWay;
    /** The content of the one message, without its braces. */
    @GuardedBy("this")
    private String content = "";
    /** Chunks of larger messages. */
    @GuardedBy("this")
    private final StringBuilder chunks = new StringBuilder();
    @GuardedBy("this")
    private boolean hasTooManyChunks;
    private final boolean isOfOne;

    /** {@code executor} begins all reads but the first: a read may end within its call. */
    PeekOp(ManagedLedger ledger, Frame.Peek peek, Executor executor, Consumer<Frame.Peeked> done) {
        this.ledger = ledger;
        this.peek = peek;
        this.executor = executor;
        this.done = done;
        List<Position> all = new ArrayList<>();
        peek.positions().forEach((ledgerId, entryId) -> all.add(new Position(ledgerId, entryId)));
        left = all.iterator();
        isOfOne = all.size() == 1;
    }

    void go() {
        List<Position> next = new ArrayList<>();
        Frame.Peeked all;
        synchronized (this) {
            while (left.hasNext() && next.size() < AT_ONCE) {
                next.add(left.next());
            }
            underWay = next.size();
            all = new Frame.Peeked(matching, unread, readBytes, ByteBuffer.wrap(next.isEmpty() ? json() : new byte[0]));
        }
        if (next.isEmpty()) {
            done.accept(all);
        }
        next.forEach(this::read);
    }

    private void read(Position position) {
        ledger.asyncReadEntry(PositionFactory.create(position.ledgerId(), position.entryId()), new ReadEntryCallback() {
            @Override
            public void readEntryComplete(Entry entry, Object ctx) {
                try {
                    look(position, entry);
                } finally {
                    entry.release();
                    ended();
                }
            }

            @Override
            public void readEntryFailed(ManagedLedgerException e, Object ctx) {
                failed(position, e);
                ended();
            }
        }, null);
    }

    private synchronized void look(Position position, Entry entry) {
        int sizeBytes = entry.getLength();
        readBytes += sizeBytes;
        metadata.clear();
        try {
            // Parsing moves the reader's index to the payload.
            Commands.parseMessageMetadata(entry.getDataBuffer().duplicate(), metadata);
        } catch (RuntimeException e) {
            return;
        }
        if (matches()) {
            matching.add(position.ledgerId(), position.entryId());
            if (peek.kind() == Frame.Peek.ANY) {
                content = isOfOne ? content(sizeBytes) : "";
                addChunk(position);
            }
        }
    }

    @GuardedBy("this")
    private boolean matches() {
        return switch (peek.kind()) {
            case Frame.Peek.KEY -> metadata.hasPartitionKey() && metadata.getPartitionKey().equals(peek.value());
            case Frame.Peek.PROPERTY -> metadata.getPropertiesList().stream().anyMatch(this::isSought);
            default -> true;
        };
    }

    private boolean isSought(KeyValue property) {
        return property.getKey().equals(peek.property()) && property.getValue().equals(peek.value());
    }

    /** Adds {@code "LEDGER:ENTRY":[NUMBER,COUNT,"UUID"]}, numbers from 0; drops all chunks if one does not fit. */
    @GuardedBy("this")
    private void addChunk(Position position) {
        boolean isChunk = metadata.hasUuid() && metadata.hasChunkId() && metadata.hasNumChunksFromMsg()
                && metadata.getNumChunksFromMsg() > 1;
        if (isChunk && !hasTooManyChunks) {
            chunks.append(chunks.isEmpty() ? "" : ",").append('"').append(position.ledgerId()).append(':').append(position.entryId())
                    .append("\":[").append(metadata.getChunkId()).append(',').append(metadata.getNumChunksFromMsg());
            hasTooManyChunks = !quote(",", metadata.getUuid(), chunks);
            chunks.append(']');
            if (hasTooManyChunks) {
                chunks.setLength(0);
            }
        }
    }

    @GuardedBy("this")
    private byte[] json() {
        if (content.isEmpty() && chunks.isEmpty()) {
            return new byte[0];
        }
        String comma = content.isEmpty() || chunks.isEmpty() ? "" : ",";
        String told = chunks.isEmpty() ? "" : comma + "\"chunks\":{" + chunks + "}";
        return ("{" + content + told + "}").getBytes(StandardCharsets.UTF_8);
    }

    /** On a BookKeeper thread that others need: writes no more text than the answer takes. */
    @GuardedBy("this")
    private String content(int sizeBytes) {
        StringBuilder text = new StringBuilder("\"size_bytes\":").append(sizeBytes);
        int withoutKey = text.length();
        boolean fits = !metadata.hasPartitionKey() || quote(",\"key\":", metadata.getPartitionKey(), text);
        if (!fits) {
            text.setLength(withoutKey);
        }
        int withoutProperties = text.length();
        text.append(",\"properties\":{");
        String comma = "";
        for (int i = 0; fits && i < metadata.getPropertiesCount(); i++) {
            KeyValue property = metadata.getPropertyAt(i);
            fits = quote(comma, property.getKey(), text) && quote(":", property.getValue(), text);
            comma = ",";
        }
        text.append('}');
        if (!fits) {
            text.setLength(withoutProperties);
        }
        return text.toString();
    }

    /** Appends a quoted text; false if there is no room. */
    private static boolean quote(String before, String value, StringBuilder text) {
        if (text.length() + value.length() > MAX_CONTENT) {
            return false;
        }
        JsonText.quote(value, text.append(before));
        return text.length() <= MAX_CONTENT;
    }

    private synchronized void failed(Position position, ManagedLedgerException e) {
        if (!(e instanceof NonRecoverableLedgerException || e instanceof LedgerNotExistException)) {
            unread.add(position.ledgerId(), position.entryId());
        }
    }

    private void ended() {
        boolean all;
        synchronized (this) {
            underWay--;
            all = underWay == 0;
        }
        if (all) {
            executor.execute(this::go);
        }
    }
}
