package tidegate.pulsar.readahead;

import io.netty.buffer.ByteBuf;
import org.apache.pulsar.common.api.proto.MessageMetadata;
import org.apache.pulsar.common.protocol.Commands;
import org.apache.pulsar.common.protocol.Markers;

/**
 * Finds the due time of a stored entry, without looking at its payload.
 *
 * <p>It answers only where the dispatcher, had it read the entry, would only have asked the tracker. The dispatcher keeps an
 * entry without a delivery time, a marker, a message of a transaction (it may be aborted) and anything that does not parse.
 * Batches, chunks, compressed and encrypted payloads make no difference: Pulsar delays an entry as a whole, by its plain
 * metadata. Not thread-safe: it parses all metadata into one object.
 */
final class MetadataScan {
    /** The dispatcher decides about this entry. */
    static final long NOT_OURS = -1;

    private final MessageMetadata metadata = new MessageMetadata();

    /** The entry's due time, in ms since the epoch, or {@link #NOT_OURS}. Leaves the buffer unchanged. */
    long deliverAtMs(ByteBuf entry) {
        int start = entry.readerIndex();
        try {
            Commands.parseMessageMetadata(entry, metadata);
            boolean ours = metadata.hasDeliverAtTime() && metadata.getDeliverAtTime() >= 0
                    && !metadata.hasTxnidMostBits() && !metadata.hasTxnidLeastBits()
                    && !Markers.isServerOnlyMarker(metadata);
            return ours ? metadata.getDeliverAtTime() : NOT_OURS;
        } catch (RuntimeException e) {
            // The dispatcher reads this entry, too, and handles it.
            return NOT_OURS;
        } finally {
            entry.readerIndex(start);
        }
    }
}
