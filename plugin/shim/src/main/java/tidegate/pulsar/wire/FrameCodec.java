package tidegate.pulsar.wire;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.zip.CRC32;
import tidegate.pulsar.wire.Frame.Envelope;

/** The frame codec: bytes to frames and back, without I/O; {@link FramePayload} has the fields. Grammar: docs/protocol.md. */
public final class FrameCodec {
    /** The newest and the oldest protocol of the shim. */
    public static final int VERSION = 7;
    public static final int VERSION_MIN = 3;
    /** An older daemon takes no BYPASSED. */
    public static final int VERSION_WITH_BYPASSED = 4;
    /** An older daemon asks for no RESCHEDULE, and takes no MOVE. */
    public static final int VERSION_WITH_MOVE = 6;
    /** An older daemon takes no PACED. */
    public static final int VERSION_WITH_PACE = 6;
    static final int MAX_LENGTH = 4 * 1024 * 1024;
    static final int MIN_LENGTH = 20;
    /** A larger set of positions is cut into several frames. */
    public static final int MAX_SET_BYTES = 1024 * 1024;
    /** So many records stay far below the longest frame. */
    public static final int MAX_RECORDS = 8192;

    static final int LENGTH_BYTES = Integer.BYTES;
    private static final int CRC_AT = LENGTH_BYTES;
    private static final int BODY_AT = CRC_AT + Integer.BYTES;
    private static final int HEADER_BYTES = 16;
    private static final int PAYLOAD_AT = BODY_AT + HEADER_BYTES;

    private FrameCodec() {}

    /** The whole frame, ready to be written to the socket. */
    public static ByteBuffer encode(int stream, long seq, Frame frame) {
        int sizeBytes = PAYLOAD_AT + FramePayload.sizeBytes(frame);
        if (sizeBytes - LENGTH_BYTES > MAX_LENGTH) {
            throw new IllegalArgumentException(frame.name() + " of " + sizeBytes + " bytes is longer than a frame may be");
        }
        ByteBuffer out = ByteBuffer.allocate(sizeBytes).order(ByteOrder.LITTLE_ENDIAN);
        out.putInt(sizeBytes - LENGTH_BYTES).putInt(0);
        out.put((byte) frame.type()).put((byte) frame.flags()).putShort((short) 0).putInt(stream).putLong(seq);
        FramePayload.write(frame, out);
        CRC32 crc = new CRC32();
        crc.update(out.array(), BODY_AT, sizeBytes - BODY_AT);
        out.putInt(CRC_AT, (int) crc.getValue());
        return out.flip();
    }

    /**
     * Decodes the bytes after a length field; {@code in} is little-endian and holds exactly them.
     *
     * @throws ProtocolException if the frame breaks a rule of the protocol
     */
    static Envelope decode(ByteBuffer in) throws ProtocolException {
        int expected = in.getInt();
        CRC32 crc = new CRC32();
        crc.update(in.duplicate());
        if ((int) crc.getValue() != expected) {
            throw ProtocolException.malformed("a frame's checksum does not fit its bytes");
        }
        int type = Byte.toUnsignedInt(in.get());
        int flags = Byte.toUnsignedInt(in.get());
        if (in.getShort() != 0) {
            throw ProtocolException.malformed("reserved bits are set in a frame of type 0x" + Integer.toHexString(type));
        }
        if ((flags & ~FramePayload.knownFlags(type)) != 0) {
            throw ProtocolException.malformed("unknown flags 0x" + Integer.toHexString(flags) + " in a frame of type 0x"
                    + Integer.toHexString(type));
        }
        int stream = in.getInt();
        long seq = in.getLong();
        Frame frame;
        try {
            frame = FramePayload.read(type, flags, in);
        } catch (BufferUnderflowException e) {
            throw ProtocolException.malformed("a frame of type 0x" + Integer.toHexString(type) + " is shorter than its fields");
        }
        if (in.hasRemaining()) {
            throw ProtocolException.malformed(in.remaining() + " bytes too many in a frame of type 0x"
                    + Integer.toHexString(type));
        }
        return new Envelope(stream, seq, frame);
    }

    /** Checks a length field before anything is allocated for it. */
    static void checkLength(int length) throws ProtocolException {
        if (length > MAX_LENGTH || length < 0) {
            throw new ProtocolException(ProtocolException.OVERSIZED, "a frame of " + Integer.toUnsignedLong(length)
                    + " bytes is longer than " + MAX_LENGTH);
        }
        if (length < MIN_LENGTH) {
            throw ProtocolException.malformed("a frame of " + length + " bytes cannot hold a header");
        }
    }
}
