package tidegate.pulsar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.bookkeeper.mledger.AsyncCallbacks.ReadEntryCallback;
import org.apache.bookkeeper.mledger.Entry;
import org.apache.bookkeeper.mledger.ManagedLedger;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.pulsar.common.api.proto.MessageMetadata;
import org.apache.pulsar.common.protocol.Commands;
import org.junit.jupiter.api.Test;
import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.PositionBitmaps;

/** Reads for a PEEK, of a ledger in memory. */
class PeekOpTest {
    private static final long LEDGER_ID = 5;

    private final Map<Long, byte[]> stored = new TreeMap<>();
    private final Map<Long, ManagedLedgerException> failures = new TreeMap<>();
    private final List<ReadEntryCallback> waiting = new ArrayList<>();
    private final List<Long> asked = new ArrayList<>();
    private int released;

    private void store(long entryId, String key, String... properties) {
        MessageMetadata metadata = new MessageMetadata().setProducerName("p").setSequenceId(entryId).setPublishTime(1);
        if (key != null) {
            metadata.setPartitionKey(key);
        }
        for (int i = 0; i < properties.length; i += 2) {
            metadata.addProperty().setKey(properties[i]).setValue(properties[i + 1]);
        }
        ByteBuf bytes = Commands.serializeMetadataAndPayload(Commands.ChecksumType.None, metadata, Unpooled.wrappedBuffer(new byte[10]));
        byte[] copy = new byte[bytes.readableBytes()];
        bytes.readBytes(copy);
        stored.put(entryId, copy);
    }

    private ManagedLedger ledger() {
        return (ManagedLedger) Proxy.newProxyInstance(getClass().getClassLoader(), new Class<?>[] {ManagedLedger.class},
                (proxy, method, arguments) -> {
                    assertEquals("asyncReadEntry", method.getName());
                    asked.add(((org.apache.bookkeeper.mledger.Position) arguments[0]).getEntryId());
                    waiting.add((ReadEntryCallback) arguments[1]);
                    return null;
                });
    }

    private Entry entry(byte[] bytes) {
        ByteBuf data = Unpooled.wrappedBuffer(bytes);
        return (Entry) Proxy.newProxyInstance(getClass().getClassLoader(), new Class<?>[] {Entry.class},
                (proxy, method, arguments) -> switch (method.getName()) {
                    case "getDataBuffer" -> data;
                    case "getLength" -> data.readableBytes();
                    case "release" -> {
                        released++;
                        yield true;
                    }
                    default -> throw new AssertionError(method.getName());
                });
    }

    /** Has the reads that are under way come to their end. */
    private void answer() {
        List<ReadEntryCallback> now = List.copyOf(waiting);
        List<Long> ids = List.copyOf(asked.subList(asked.size() - now.size(), asked.size()));
        waiting.clear();
        for (int i = 0; i < now.size(); i++) {
            ManagedLedgerException failure = failures.get(ids.get(i));
            if (failure != null) {
                now.get(i).readEntryFailed(failure, null);
            } else {
                now.get(i).readEntryComplete(entry(stored.get(ids.get(i))), null);
            }
        }
    }

    private Frame.Peeked peek(int kind, String property, String value, PositionBitmaps positions) {
        AtomicReference<Frame.Peeked> answer = new AtomicReference<>();
        new PeekOp(ledger(), new Frame.Peek(kind, property, value, positions), Runnable::run, answer::set).go();
        while (answer.get() == null) {
            assertTrue(!waiting.isEmpty() && waiting.size() <= PeekOp.AT_ONCE, () -> waiting.size() + " reads are under way");
            answer();
        }
        return answer.get();
    }

    private static PositionBitmaps positions(long... entryIds) {
        PositionBitmaps made = new PositionBitmaps();
        for (long entryId : entryIds) {
            made.add(LEDGER_ID, entryId);
        }
        return made;
    }

    @Test
    void allMessagesAreReadAFewAtATime() {
        long[] all = new long[3 * PeekOp.AT_ONCE + 1];
        long sizeBytes = 0;
        for (int i = 0; i < all.length; i++) {
            store(i, i % 2 == 0 ? "even" : "odd", "number", String.valueOf(i));
            all[i] = i;
            sizeBytes += stored.get((long) i).length;
        }
        Frame.Peeked odd = peek(Frame.Peek.KEY, "", "odd", positions(all));
        assertEquals(positions(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23), odd.matching());
        assertEquals(new PositionBitmaps(), odd.unread());
        assertEquals(sizeBytes, odd.readBytes());
        assertEquals(all.length, released);
        assertEquals(positions(20), peek(Frame.Peek.PROPERTY, "number", "20", positions(all)).matching());
    }

    @Test
    void aMessageThatCannotBeReadNowIsNamedAndALostOneIsAnother() {
        for (long entryId = 0; entryId < 4; entryId++) {
            store(entryId, "k");
        }
        stored.put(3L, "no message".getBytes(StandardCharsets.UTF_8));
        failures.put(0L, new ManagedLedgerException("not now"));
        failures.put(1L, new ManagedLedgerException.NonRecoverableLedgerException("lost"));
        Frame.Peeked answer = peek(Frame.Peek.KEY, "", "k", positions(0, 1, 2, 3));
        assertEquals(positions(2), answer.matching());
        assertEquals(positions(0), answer.unread());
        assertEquals(2, released);
    }

    private void storeChunk(long entryId, String uuid, int number, int count) {
        MessageMetadata metadata = new MessageMetadata().setProducerName("p").setSequenceId(1).setPublishTime(1)
                .setUuid(uuid).setChunkId(number).setNumChunksFromMsg(count);
        ByteBuf bytes = Commands.serializeMetadataAndPayload(Commands.ChecksumType.None, metadata, Unpooled.wrappedBuffer(new byte[10]));
        byte[] copy = new byte[bytes.readableBytes()];
        bytes.readBytes(copy);
        stored.put(entryId, copy);
    }

    @Test
    void chunksAreTold() {
        storeChunk(0, "p\"-1", 0, 2);
        storeChunk(1, "p\"-1", 1, 2);
        storeChunk(2, "p-2", 0, 1);
        store(3, "k");
        storeChunk(4, "x".repeat(PeekOp.MAX_CONTENT), 0, 2);
        assertEquals("{\"chunks\":{\"5:0\":[0,2,\"p\\\"-1\"],\"5:1\":[1,2,\"p\\\"-1\"]}}",
                StandardCharsets.UTF_8.decode(peek(Frame.Peek.ANY, "", "", positions(0, 1, 2, 3)).content()).toString());
        assertEquals(0, peek(Frame.Peek.ANY, "", "", positions(0, 1, 4)).content().remaining(), "all chunks or none");
        assertEquals("{\"size_bytes\":" + stored.get(1L).length + ",\"properties\":{},\"chunks\":{\"5:1\":[1,2,\"p\\\"-1\"]}}",
                StandardCharsets.UTF_8.decode(peek(Frame.Peek.ANY, "", "", positions(1)).content()).toString());
        assertEquals(0, peek(Frame.Peek.ANY, "", "", positions(2, 3)).content().remaining());
        assertEquals(0, peek(Frame.Peek.KEY, "", "k", positions(0, 1)).content().remaining());
    }

    @Test
    void theContentOfOneMessageIsJson() {
        store(0, "a\"b", "naïve", "x\ny");
        Frame.Peeked answer = peek(Frame.Peek.ANY, "", "", positions(0));
        assertEquals("{\"size_bytes\":" + stored.get(0L).length + ",\"key\":\"a\\\"b\",\"properties\":{\"na\\u00efve\":\"x\\u000ay\"}}",
                StandardCharsets.UTF_8.decode(answer.content()).toString());
        store(1, null, "large", "x".repeat(PeekOp.MAX_CONTENT));
        assertEquals("{\"size_bytes\":" + stored.get(1L).length + "}",
                StandardCharsets.UTF_8.decode(peek(Frame.Peek.ANY, "", "", positions(1)).content()).toString());
        store(2, "k".repeat(PeekOp.MAX_CONTENT), "small", "x");
        assertEquals("{\"size_bytes\":" + stored.get(2L).length + "}",
                StandardCharsets.UTF_8.decode(peek(Frame.Peek.ANY, "", "", positions(2)).content()).toString());
        store(3, "k", "one", "x", "escaped", "ü".repeat(PeekOp.MAX_CONTENT / 2));
        assertEquals("{\"size_bytes\":" + stored.get(3L).length + ",\"key\":\"k\"}",
                StandardCharsets.UTF_8.decode(peek(Frame.Peek.ANY, "", "", positions(3)).content()).toString());
    }
}
