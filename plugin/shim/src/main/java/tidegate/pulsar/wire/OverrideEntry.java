package tidegate.pulsar.wire;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * An entry of the ledger that keeps a subscription's overrides: docs/format.md. BookKeeper checks its bytes.
 *
 * <p>Little-endian: version, kind, then records (kind 1: these hold from now on) or positions (kind 2: these hold no more).
 */
public final class OverrideEntry {
    /** More records come in several entries: this many take less than 256 KiB. */
    public static final int MAX_RECORDS = 10_000;

    private static final byte VERSION = 1;
    private static final byte MOVED = 1;
    private static final byte LEFT = 2;
    private static final int HEAD_BYTES = 2;

    private OverrideEntry() {}

    /** Gets an entry's contents. */
    public interface Reader {
        void moved(long ledgerId, long entryId, long deliverAtMs);

        void left(long ledgerId, long entryId);
    }

    /** The records from {@code from} to {@code to}, exclusive. */
    public static ByteBuffer moved(Records records, int from, int to) {
        ByteBuffer out = head(MOVED, Integer.BYTES + (to - from) * Records.WIDTH * Long.BYTES);
        out.putInt(to - from);
        for (int i = from; i < to; i++) {
            out.putLong(records.ledgerId(i)).putLong(records.entryId(i)).putLong(records.deliverAtMs(i));
        }
        return out.flip();
    }

    public static ByteBuffer left(PositionBitmaps positions) {
        ByteBuffer out = head(LEFT, positions.sizeBytes());
        positions.write(out);
        return out.flip();
    }

    private static ByteBuffer head(byte kind, int sizeBytes) {
        return ByteBuffer.allocate(HEAD_BYTES + sizeBytes).order(ByteOrder.LITTLE_ENDIAN).put(VERSION).put(kind);
    }

    /** @throws ProtocolException if this version does not know the entry */
    public static void read(ByteBuffer entry, Reader reader) throws ProtocolException {
        ByteBuffer in = entry.duplicate().order(ByteOrder.LITTLE_ENDIAN);
        if (in.remaining() < HEAD_BYTES || in.get() != VERSION) {
            throw new ProtocolException(ProtocolException.VERSION, "an entry of overrides of another version");
        }
        byte kind = in.get();
        if (kind == LEFT) {
            positions(in).forEach(reader::left);
            return;
        }
        if (kind != MOVED || in.remaining() < Integer.BYTES) {
            throw ProtocolException.malformed("an entry of overrides of an unknown kind");
        }
        int count = in.getInt();
        if (count < 0 || (long) count * Records.WIDTH * Long.BYTES != in.remaining()) {
            throw ProtocolException.malformed("an entry of overrides that is cut off");
        }
        for (int i = 0; i < count; i++) {
            reader.moved(in.getLong(), in.getLong(), in.getLong());
        }
    }

    private static PositionBitmaps positions(ByteBuffer in) throws ProtocolException {
        try {
            return PositionBitmaps.read(in);
        } catch (BufferUnderflowException e) {
            throw ProtocolException.malformed("an entry of overrides that is cut off");
        }
    }
}
