package tidegate.pulsar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.lang.reflect.Proxy;
import java.util.ArrayDeque;
import java.util.HashSet;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.bookkeeper.mledger.AsyncCallbacks.ReadEntryCallback;
import org.apache.bookkeeper.mledger.Entry;
import org.apache.bookkeeper.mledger.ManagedLedger;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.ManagedLedgerException.NonRecoverableLedgerException;
import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.PositionFactory;
import org.apache.pulsar.common.api.proto.MessageMetadata;
import org.apache.pulsar.common.protocol.Commands;
import org.junit.jupiter.api.Test;
import tidegate.pulsar.gate.TrackerContext.Readable;

/** Looks for the first chunk of a message, in a ledger in memory. */
class LaterChunkTest {
    private static final long LEDGER_ID = 5;
    private static final Position NONE = at(-1);

    private final Map<Long, byte[]> stored = new TreeMap<>();
    private final Set<Long> lost = new HashSet<>();
    private Position lone;
    private Position waiting;
    private int reads;
    private int released;

    private static Position at(long entryId) {
        return PositionFactory.create(LEDGER_ID, entryId);
    }

    private void store(long entryId, String uuid, int chunkId) {
        MessageMetadata metadata = new MessageMetadata().setProducerName("p").setSequenceId(entryId).setPublishTime(1);
        if (uuid != null) {
            metadata.setUuid(uuid).setChunkId(chunkId).setNumChunksFromMsg(3);
        }
        ByteBuf bytes = Commands.serializeMetadataAndPayload(Commands.ChecksumType.None, metadata, Unpooled.wrappedBuffer(new byte[10]));
        byte[] copy = new byte[bytes.readableBytes()];
        bytes.readBytes(copy);
        stored.put(entryId, copy);
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

    private ManagedLedger ledger() {
        return (ManagedLedger) Proxy.newProxyInstance(getClass().getClassLoader(), new Class<?>[] {ManagedLedger.class},
                (proxy, method, arguments) -> {
                    Position position = (Position) arguments[0];
                    if (method.getName().equals("getPreviousPosition")) {
                        return at(position.getEntryId() - 1);
                    }
                    assertEquals("asyncReadEntry", method.getName());
                    reads++;
                    ReadEntryCallback answer = (ReadEntryCallback) arguments[1];
                    byte[] bytes = stored.get(position.getEntryId());
                    if (lost.contains(position.getEntryId())) {
                        answer.readEntryFailed(new NonRecoverableLedgerException("no bookie has it"), null);
                    } else if (bytes == null) {
                        answer.readEntryFailed(new ManagedLedgerException("not now"), null);
                    } else {
                        answer.readEntryComplete(entry(bytes), null);
                    }
                    return null;
                });
    }

    private Readable state(long later, Position markDelete, Long... deleted) {
        AtomicReference<Readable> answer = new AtomicReference<>();
        Queue<Runnable> tasks = new ArrayDeque<>();
        String uuid = LaterChunk.uuidOf(entry(stored.get(later)));
        new LaterChunk(ledger(), one -> Set.of(deleted).contains(one.getEntryId()), markDelete, tasks::add, lone, uuid,
                first -> waiting = first, answer::set)
                .lookBefore(at(later));
        for (Runnable task; (task = tasks.poll()) != null; ) {
            task.run();
        }
        return answer.get();
    }

    @Test
    void itIsLoneOnceTheFirstOneIsAcknowledged() {
        store(0, null, 0);
        store(1, "p-1", 0);
        store(2, "p-2", 0);
        store(3, "p-1", 1);
        store(4, "p-1", 2);
        assertEquals(Readable.LATER_CHUNK, state(4, NONE));
        assertEquals(Readable.LATER_CHUNK, state(4, NONE, 2L, 3L), "other chunks do not count");
        assertEquals(at(1), waiting);
        waiting = null;
        assertEquals(Readable.LONE_CHUNK, state(4, NONE, 1L));
        assertNull(waiting);
        assertEquals(Readable.LONE_CHUNK, state(3, NONE, 1L));
        assertEquals(reads, released);
    }

    @Test
    void whatIsUpToMarkDeleteIsAcknowledgedAndNotRead() {
        store(5, "p-1", 1);
        assertEquals(Readable.LONE_CHUNK, state(5, at(4)));
        assertEquals(0, reads);
        store(0, "p-1", 1);
        assertEquals(Readable.LONE_CHUNK, state(0, NONE), "of a ledger that was trimmed");
    }

    @Test
    void whatIsNotFoundIsNotTakenForAcknowledged() {
        store(1, "p-1", 1);
        assertEquals(Readable.LATER_CHUNK, state(1, NONE), "the one before cannot be read now");
        long far = LaterChunk.MAX_ENTRIES + 10L;
        store(0, "p-1", 0);
        for (long entryId = 1; entryId < far; entryId++) {
            store(entryId, null, 0);
        }
        store(far, "p-1", 1);
        reads = 0;
        assertEquals(Readable.LATER_CHUNK, state(far, NONE, 0L));
        assertEquals(LaterChunk.MAX_ENTRIES, reads);
    }

    /** Each chunk of a long message is found by the one before it, however far back the first one is. */
    @Test
    void theOneBehindALoneChunkIsLone() {
        store(0, "p-1", 0);
        for (long entryId = 1; entryId < 9; entryId++) {
            store(entryId, "p-1", (int) entryId);
        }
        lone = at(7);
        assertEquals(Readable.LONE_CHUNK, state(8, NONE, 0L, 7L));
        assertEquals(0, reads);
        assertEquals(Readable.LATER_CHUNK, state(8, NONE, 6L), "a reset has taken its acknowledgement back");
    }

    @Test
    void aLostAndSkippedEntryMayHaveBeenTheFirstOne() {
        store(0, "p-2", 0);
        lost.add(1L);
        store(2, "p-1", 1);
        assertEquals(Readable.LATER_CHUNK, state(2, NONE), "it is not skipped yet");
        assertEquals(Readable.LONE_CHUNK, state(2, at(0), 1L));
    }

    @Test
    void otherEntriesAreNoLaterChunks() {
        store(0, null, 0);
        store(1, "p-1", 0);
        stored.put(2L, new byte[] {1, 2, 3});
        for (long entryId = 0; entryId < 3; entryId++) {
            assertNull(LaterChunk.uuidOf(entry(stored.get(entryId))));
        }
    }
}
