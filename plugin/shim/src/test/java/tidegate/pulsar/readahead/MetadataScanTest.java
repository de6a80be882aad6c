package tidegate.pulsar.readahead;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import org.apache.pulsar.common.api.proto.CompressionType;
import org.apache.pulsar.common.api.proto.MarkerType;
import org.apache.pulsar.common.api.proto.MessageMetadata;
import org.apache.pulsar.common.protocol.Commands;
import org.junit.jupiter.api.Test;

/** Tests which stored entries are known to be delayed: these and no others. */
class MetadataScanTest {
    private final MetadataScan scan = new MetadataScan();

    private static MessageMetadata message() {
        return new MessageMetadata().setProducerName("p").setSequenceId(1).setPublishTime(2);
    }

    private static ByteBuf entry(MessageMetadata metadata) {
        ByteBuf buffer = Unpooled.buffer();
        buffer.writeInt(metadata.getSerializedSize());
        metadata.writeTo(buffer);
        return buffer.writeBytes(new byte[] {1, 2, 3});
    }

    private long scan(MessageMetadata metadata) {
        return scan.deliverAtMs(entry(metadata));
    }

    @Test
    void aDelayedMessageIsDueWhenItSays() {
        ByteBuf entry = entry(message().setDeliverAtTime(1234));
        int before = entry.readableBytes();
        assertEquals(1234, scan.deliverAtMs(entry));
        assertEquals(before, entry.readableBytes());
    }

    @Test
    void batchesChunksCompressedAndEncryptedPayloadsMakeNoDifference() {
        MessageMetadata metadata = message().setDeliverAtTime(5).setNumMessagesInBatch(7).setChunkId(1)
                .setNumChunksFromMsg(3).setUuid("u").setCompression(CompressionType.ZSTD).setEncryptionAlgo("AES");
        metadata.addEncryptionKey().setKey("k").setValue(new byte[] {9});
        assertEquals(5, scan(metadata));
    }

    @Test
    void theBrokersOwnMetadataIsPassedOver() {
        ByteBuf entry = Unpooled.buffer().writeShort(Commands.magicBrokerEntryMetadata).writeInt(2).writeByte(8).writeByte(1);
        assertEquals(77, scan.deliverAtMs(entry.writeBytes(entry(message().setDeliverAtTime(77)))));
    }

    @Test
    void whatIsNotSimplyDelayedIsTheDispatchers() {
        assertEquals(MetadataScan.NOT_OURS, scan(message()));
        assertEquals(MetadataScan.NOT_OURS, scan(message().setDeliverAtTime(-3)));
        assertEquals(MetadataScan.NOT_OURS, scan(message().setDeliverAtTime(9).setTxnidMostBits(1).setTxnidLeastBits(2)));
        assertEquals(MetadataScan.NOT_OURS,
                scan(message().setDeliverAtTime(9).setMarkerType(MarkerType.TXN_COMMIT.getValue())));
    }

    @Test
    void nothingOfAFormerMessageIsLeft() {
        assertEquals(9, scan(message().setDeliverAtTime(9)));
        assertEquals(MetadataScan.NOT_OURS, scan(message()));
    }

    @Test
    void whatDoesNotParseIsTheDispatchers() {
        assertEquals(MetadataScan.NOT_OURS, scan.deliverAtMs(Unpooled.EMPTY_BUFFER));
        assertEquals(MetadataScan.NOT_OURS, scan.deliverAtMs(Unpooled.wrappedBuffer(new byte[] {0, 0, 1, 0, 5, 5})));
        assertEquals(MetadataScan.NOT_OURS, scan.deliverAtMs(Unpooled.wrappedBuffer(new byte[] {-1, -1, -1, -1, 5, 5})));
        ByteBuf cut = entry(message().setDeliverAtTime(9));
        assertEquals(MetadataScan.NOT_OURS, scan.deliverAtMs(cut.slice(0, cut.readableBytes() - 8)));
    }
}
