package tidegate.pulsar.wire;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import tidegate.pulsar.wire.Frame.Envelope;

/**
 * Cuts a byte stream into frames. Bytes go in as they come from the socket; a frame comes out once whole.
 *
 * <p>Holds at most one incomplete frame. Not thread-safe.
 */
public final class FrameReader {
    private static final int FIRST_CAPACITY = 64 * 1024;

    /** The unread bytes are those between position and limit. */
    private ByteBuffer buffer = ByteBuffer.allocate(FIRST_CAPACITY).order(ByteOrder.LITTLE_ENDIAN).limit(0);

    public void feed(ByteBuffer bytes) {
        int needed = buffer.remaining() + bytes.remaining();
        if (buffer.capacity() - buffer.limit() < bytes.remaining()) {
            int capacity = buffer.capacity();
            while (capacity < needed) {
                capacity *= 2;
            }
            ByteBuffer target =
                    capacity == buffer.capacity() ? buffer : ByteBuffer.allocate(capacity).order(ByteOrder.LITTLE_ENDIAN);
            if (target == buffer) {
                buffer.compact().flip();
            } else {
                buffer = target.put(buffer).flip();
            }
        }
        int end = buffer.limit();
        buffer.limit(end + bytes.remaining());
        buffer.duplicate().position(end).put(bytes);
    }

    /** The next whole frame, or null. */
    public Envelope next() throws ProtocolException {
        if (buffer.remaining() < FrameCodec.LENGTH_BYTES) {
            return null;
        }
        int length = buffer.getInt(buffer.position());
        FrameCodec.checkLength(length);
        if (buffer.remaining() < FrameCodec.LENGTH_BYTES + length) {
            return null;
        }
        ByteBuffer frame =
                buffer.slice(buffer.position() + FrameCodec.LENGTH_BYTES, length).order(ByteOrder.LITTLE_ENDIAN);
        buffer.position(buffer.position() + FrameCodec.LENGTH_BYTES + length);
        return FrameCodec.decode(frame);
    }

    /** True if bytes of an incomplete frame are left: the stream is torn if it ends now. */
    public boolean hasPartialFrame() {
        return buffer.hasRemaining();
    }
}
