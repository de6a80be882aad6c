package tidegate.pulsar.wire;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** The payload of each type of frame: its fields to bytes and back. Grammar: docs/protocol.md. */
final class FramePayload {
    private static final int MAGIC = 'T' | 'I' << 8 | 'D' << 16 | 'E' << 24;
    private static final int PACE_BYTES = 1 + Integer.BYTES;
    private static final int MAX_STRING_BYTES = 0xFFFF;
    private static final long MAX_ENTRY_ID = 0xFFFF_FFFFL;

    private FramePayload() {}

    /** The flags that frames of the type may have. */
    static int knownFlags(int type) {
        return switch (type) {
            case Frame.Held.TYPE -> Frame.Held.LAST;
            case Frame.Add.TYPE -> Frame.Add.NEAR;
            case Frame.Cancel.TYPE -> Frame.Cancel.ASK;
            case Frame.Cancelled.TYPE, Frame.Rescheduled.TYPE -> Standing.FLAGS;
            case Frame.Reschedule.TYPE -> Frame.Reschedule.ASK;
            case Frame.Move.TYPE -> Frame.Move.NEAR;
            case Frame.Pace.TYPE -> Frame.Pace.ASK;
            default -> 0;
        };
    }

    /** The size of {@link #write}'s output in bytes. */
    static int sizeBytes(Frame frame) {
        if (frame instanceof Frame.Hello f) {
            return 4 + 2 + 2 + 1 + stringBytes(f.clientName()) + stringBytes(f.product());
        } else if (frame instanceof Frame.Welcome f) {
            return 2 + 4 + 8 + stringBytes(f.product());
        } else if (frame instanceof Frame.Error f) {
            return 2 + stringBytes(f.message());
        } else if (frame instanceof Frame.Open f) {
            return Incarnation.SIZE + 8 + 8 + 4 + 4 + 16 + stringBytes(f.topic()) + stringBytes(f.subscription())
                    + f.inFlight().sizeBytes() + stringBytes(f.logHome()) + stringBytes(f.logPointer())
                    + Short.BYTES + f.claims().size() * Integer.BYTES + 16;
        } else if (frame instanceof Frame.Held f) {
            return f.held().sizeBytes() + f.acknowledged().sizeBytes();
        } else if (frame instanceof Frame.Add f) {
            return recordsBytes(f.records());
        } else if (frame instanceof Frame.Due f) {
            return recordsBytes(f.records());
        } else if (frame instanceof Frame.Credit) {
            return 4;
        } else if (frame instanceof Frame.Ack f) {
            return f.positions().sizeBytes();
        } else if (frame instanceof Frame.Unack f) {
            return f.positions().sizeBytes();
        } else if (frame instanceof Frame.Unheld f) {
            return f.positions().sizeBytes();
        } else if (frame instanceof Frame.Cancel f) {
            return f.positions().sizeBytes();
        } else if (frame instanceof Frame.Cancelled f) {
            return f.cancelled().sizeBytes() + f.tooLate().sizeBytes() + f.acknowledged().sizeBytes();
        } else if (frame instanceof Frame.Reschedule f) {
            return recordsBytes(f.records());
        } else if (frame instanceof Frame.Rescheduled f) {
            return f.moved().sizeBytes() + f.tooLate().sizeBytes() + f.acknowledged().sizeBytes();
        } else if (frame instanceof Frame.Move f) {
            return recordsBytes(f.records());
        } else if (frame instanceof Frame.Pace) {
            return PACE_BYTES;
        } else if (frame instanceof Frame.Behind) {
            return Integer.BYTES;
        } else if (frame instanceof Frame.Paced f) {
            return PACE_BYTES + Integer.BYTES + stringBytes(f.why());
        } else if (frame instanceof Frame.Peek f) {
            return 1 + stringBytes(f.property()) + stringBytes(f.value()) + f.positions().sizeBytes();
        } else if (frame instanceof Frame.Peeked f) {
            return f.matching().sizeBytes() + f.unread().sizeBytes() + Long.BYTES + f.content().remaining();
        } else if (frame instanceof Frame.MarkDelete) {
            return 16;
        } else if (frame instanceof Frame.LogRequest f) {
            return 1 + 3 * Long.BYTES + stringBytes(f.oldPointer()) + stringBytes(f.newPointer()) + f.entry().remaining();
        } else if (frame instanceof Frame.LogAnswer f) {
            return 1 + Long.BYTES + stringBytes(f.message()) + Integer.BYTES
                    + f.entries().stream().mapToInt(entry -> Integer.BYTES + entry.remaining()).sum();
        } else if (frame instanceof Frame.Bypassed f) {
            return Integer.BYTES + Short.BYTES + f.named().stream().mapToInt(one -> stringBytes(one.topic())
                    + stringBytes(one.subscription()) + Long.BYTES + stringBytes(one.reason())).sum();
        } else if (frame instanceof Frame.HttpRequest f) {
            return stringBytes(f.method()) + stringBytes(f.target()) + stringBytes(f.clientRole()) + f.body().remaining();
        } else if (frame instanceof Frame.HttpResponse f) {
            return Short.BYTES + stringBytes(f.contentType()) + f.body().remaining();
        }
        return 0;
    }

    static void write(Frame frame, ByteBuffer out) {
        if (frame instanceof Frame.Hello f) {
            out.putInt(MAGIC).putShort((short) f.minVersion()).putShort((short) f.maxVersion()).put((byte) f.role());
            writeString(f.clientName(), out);
            writeString(f.product(), out);
        } else if (frame instanceof Frame.Welcome f) {
            out.putShort((short) f.version()).putInt(f.heartbeatMs()).putLong(f.daemonId());
            writeString(f.product(), out);
        } else if (frame instanceof Frame.Error f) {
            out.putShort((short) f.code());
            writeString(f.message(), out);
        } else if (frame instanceof Frame.Open f) {
            out.put(f.incarnation().bytes()).putLong(f.epoch()).putLong(f.generation()).putInt(f.horizonMs());
            out.putInt(f.credit()).putLong(f.markDeleteLedgerId()).putLong(f.markDeleteEntryId());
            writeString(f.topic(), out);
            writeString(f.subscription(), out);
            f.inFlight().write(out);
            writeString(f.logHome(), out);
            writeString(f.logPointer(), out);
            out.putShort((short) f.claims().size());
            f.claims().forEach(out::putInt);
            out.putLong(f.endLedgerId()).putLong(f.endEntryId());
        } else if (frame instanceof Frame.Held f) {
            f.held().write(out);
            f.acknowledged().write(out);
        } else if (frame instanceof Frame.Add f) {
            writeRecords(f.records(), out);
        } else if (frame instanceof Frame.Due f) {
            writeRecords(f.records(), out);
        } else if (frame instanceof Frame.Credit f) {
            out.putInt(f.more());
        } else if (frame instanceof Frame.Ack f) {
            f.positions().write(out);
        } else if (frame instanceof Frame.Unack f) {
            f.positions().write(out);
        } else if (frame instanceof Frame.Unheld f) {
            f.positions().write(out);
        } else if (frame instanceof Frame.Cancel f) {
            f.positions().write(out);
        } else if (frame instanceof Frame.Cancelled f) {
            f.cancelled().write(out);
            f.tooLate().write(out);
            f.acknowledged().write(out);
        } else if (frame instanceof Frame.Reschedule f) {
            writeRecords(f.records(), out);
        } else if (frame instanceof Frame.Rescheduled f) {
            f.moved().write(out);
            f.tooLate().write(out);
            f.acknowledged().write(out);
        } else if (frame instanceof Frame.Move f) {
            writeRecords(f.records(), out);
        } else if (frame instanceof Frame.Pace f) {
            writePace(f.pace(), out);
        } else if (frame instanceof Frame.Behind f) {
            out.putInt((int) f.entries());
        } else if (frame instanceof Frame.Paced f) {
            writePace(f.pace(), out);
            out.putInt(f.heldBack());
            writeString(f.why(), out);
        } else if (frame instanceof Frame.Peek f) {
            out.put((byte) f.kind());
            writeString(f.property(), out);
            writeString(f.value(), out);
            f.positions().write(out);
        } else if (frame instanceof Frame.Peeked f) {
            f.matching().write(out);
            f.unread().write(out);
            out.putLong(f.readBytes()).put(f.content().duplicate());
        } else if (frame instanceof Frame.MarkDelete f) {
            out.putLong(f.ledgerId()).putLong(f.entryId());
        } else if (frame instanceof Frame.LogRequest f) {
            out.put((byte) f.op()).putLong(f.ledgerId()).putLong(f.first()).putLong(f.last());
            writeString(f.oldPointer(), out);
            writeString(f.newPointer(), out);
            out.put(f.entry().duplicate());
        } else if (frame instanceof Frame.LogAnswer f) {
            out.put((byte) f.code()).putLong(f.number());
            writeString(f.message(), out);
            out.putInt(f.entries().size());
            f.entries().forEach(entry -> out.putInt(entry.remaining()).put(entry.duplicate()));
        } else if (frame instanceof Frame.Bypassed f) {
            out.putInt(f.dispatchers()).putShort((short) f.named().size());
            f.named().forEach(one -> {
                writeString(one.topic(), out);
                writeString(one.subscription(), out);
                out.putLong(one.delayed());
                writeString(one.reason(), out);
            });
        } else if (frame instanceof Frame.HttpRequest f) {
            writeString(f.method(), out);
            writeString(f.target(), out);
            writeString(f.clientRole(), out);
            out.put(f.body().duplicate());
        } else if (frame instanceof Frame.HttpResponse f) {
            out.putShort((short) f.status());
            writeString(f.contentType(), out);
            out.put(f.body().duplicate());
        }
    }

    /** @throws ProtocolException if the payload breaks a rule of its type; BufferUnderflowException if it is too short */
    static Frame read(int type, int flags, ByteBuffer in) throws ProtocolException {
        return switch (type) {
            case Frame.Hello.TYPE -> {
                if (in.getInt() != MAGIC) {
                    throw ProtocolException.malformed("the greeting is not one of this protocol");
                }
                yield new Frame.Hello(u16(in), u16(in), Byte.toUnsignedInt(in.get()), readString(in), readString(in));
            }
            case Frame.Welcome.TYPE -> new Frame.Welcome(u16(in), in.getInt(), in.getLong(), readString(in));
            case Frame.Error.TYPE -> new Frame.Error(u16(in), readString(in));
            case Frame.Ping.TYPE -> new Frame.Ping();
            case Frame.Pong.TYPE -> new Frame.Pong();
            case Frame.Open.TYPE -> {
                byte[] incarnation = new byte[Incarnation.SIZE];
                in.get(incarnation);
                long epoch = in.getLong();
                yield new Frame.Open(new Incarnation(incarnation), epoch, readGeneration(in), in.getInt(), in.getInt(),
                        in.getLong(), in.getLong(), readString(in), readString(in), PositionBitmaps.read(in), readString(in),
                        readString(in), readClaims(in), in.getLong(), in.getLong());
            }
            case Frame.Held.TYPE ->
                    new Frame.Held((flags & Frame.Held.LAST) != 0, PositionBitmaps.read(in), PositionBitmaps.read(in));
            case Frame.Add.TYPE -> new Frame.Add((flags & Frame.Add.NEAR) != 0, readRecords(in));
            case Frame.Durable.TYPE -> new Frame.Durable();
            case Frame.Due.TYPE -> new Frame.Due(readRecords(in));
            case Frame.Credit.TYPE -> new Frame.Credit(in.getInt());
            case Frame.Ack.TYPE -> new Frame.Ack(PositionBitmaps.read(in));
            case Frame.Unack.TYPE -> new Frame.Unack(PositionBitmaps.read(in));
            case Frame.MarkDelete.TYPE -> new Frame.MarkDelete(in.getLong(), in.getLong());
            case Frame.Clear.TYPE -> new Frame.Clear();
            case Frame.Close.TYPE -> new Frame.Close();
            case Frame.Unheld.TYPE -> new Frame.Unheld(PositionBitmaps.read(in));
            case Frame.Cancel.TYPE -> new Frame.Cancel((flags & Frame.Cancel.ASK) != 0, PositionBitmaps.read(in));
            case Frame.Cancelled.TYPE -> new Frame.Cancelled(Standing.of(flags), PositionBitmaps.read(in),
                    PositionBitmaps.read(in), PositionBitmaps.read(in));
            case Frame.Reschedule.TYPE -> new Frame.Reschedule((flags & Frame.Reschedule.ASK) != 0, readTimes(in));
            case Frame.Rescheduled.TYPE -> new Frame.Rescheduled(Standing.of(flags), PositionBitmaps.read(in),
                    PositionBitmaps.read(in), PositionBitmaps.read(in));
            case Frame.Move.TYPE -> new Frame.Move((flags & Frame.Move.NEAR) != 0, readTimes(in));
            case Frame.Pace.TYPE -> new Frame.Pace((flags & Frame.Pace.ASK) != 0, readPace(in));
            case Frame.Behind.TYPE -> new Frame.Behind(Integer.toUnsignedLong(in.getInt()));
            case Frame.Paced.TYPE -> new Frame.Paced(readPace(in), in.getInt(), readString(in));
            case Frame.Peek.TYPE -> readPeek(in);
            case Frame.Peeked.TYPE -> new Frame.Peeked(PositionBitmaps.read(in), PositionBitmaps.read(in), in.getLong(),
                    readBytes(in, in.remaining()));
            case Frame.LogRequest.TYPE -> new Frame.LogRequest(Byte.toUnsignedInt(in.get()), in.getLong(), in.getLong(),
                    in.getLong(), readString(in), readString(in), readBytes(in, in.remaining()));
            case Frame.LogAnswer.TYPE -> new Frame.LogAnswer(Byte.toUnsignedInt(in.get()), in.getLong(), readString(in),
                    readEntries(in));
            case Frame.Bypassed.TYPE -> readBypassed(in);
            case Frame.HttpRequest.TYPE -> new Frame.HttpRequest(readString(in), readString(in), readString(in),
                    readBytes(in, in.remaining()));
            case Frame.HttpResponse.TYPE -> new Frame.HttpResponse(u16(in), readString(in), readBytes(in, in.remaining()));
            default -> throw ProtocolException.malformed("frames of type 0x" + Integer.toHexString(type) + " are not known");
        };
    }

    private static long readGeneration(ByteBuffer in) throws ProtocolException {
        long generation = in.getLong();
        if (generation < 0) {
            throw ProtocolException.malformed("generation " + Long.toUnsignedString(generation) + " has more than 63 bits");
        }
        return generation;
    }

    private static List<Integer> readClaims(ByteBuffer in) throws ProtocolException {
        int count = u16(in);
        if (count > Ownership.MAX_CLAIMS) {
            throw ProtocolException.malformed(count + " claims, and there are at most " + Ownership.MAX_CLAIMS);
        }
        List<Integer> claims = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            claims.add(in.getInt());
        }
        return claims;
    }

    private static void writePace(ReleasePace pace, ByteBuffer out) {
        out.put((byte) pace.kind().ordinal()).putInt(pace.amount());
    }

    private static ReleasePace readPace(ByteBuffer in) throws ProtocolException {
        int kind = Byte.toUnsignedInt(in.get());
        int amount = in.getInt();
        ReleasePace.Kind[] kinds = ReleasePace.Kind.values();
        try {
            if (kind < kinds.length) {
                return new ReleasePace(kinds[kind], amount);
            }
        } catch (IllegalArgumentException e) {
            // Out of its bounds, as below.
        }
        throw ProtocolException.malformed("a pace of kind " + kind + " with " + Integer.toUnsignedLong(amount));
    }

    private static Frame.Peek readPeek(ByteBuffer in) throws ProtocolException {
        int kind = Byte.toUnsignedInt(in.get());
        if (kind > Frame.Peek.PROPERTY) {
            throw ProtocolException.malformed("a PEEK of kind " + kind);
        }
        return new Frame.Peek(kind, readString(in), readString(in), PositionBitmaps.read(in));
    }

    private static Frame.Bypassed readBypassed(ByteBuffer in) throws ProtocolException {
        int dispatchers = in.getInt();
        int count = u16(in);
        if (count > Math.min(dispatchers, Frame.Bypassed.MOST_NAMED)) {
            throw ProtocolException.malformed(count + " of " + dispatchers + " dispatchers are named, "
                    + Frame.Bypassed.MOST_NAMED + " at most can be");
        }
        List<Frame.Bypassed.Dispatcher> named = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            named.add(new Frame.Bypassed.Dispatcher(readString(in), readString(in), in.getLong(), readString(in)));
        }
        return new Frame.Bypassed(dispatchers, named);
    }

    private static List<ByteBuffer> readEntries(ByteBuffer in) {
        int count = in.getInt();
        List<ByteBuffer> entries = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            entries.add(readBytes(in, in.getInt()));
        }
        return entries;
    }

    /** A copy, because the socket's buffer is reused. */
    private static ByteBuffer readBytes(ByteBuffer in, int sizeBytes) {
        if (sizeBytes < 0 || sizeBytes > in.remaining()) {
            throw new BufferUnderflowException();
        }
        byte[] bytes = new byte[sizeBytes];
        in.get(bytes);
        return ByteBuffer.wrap(bytes);
    }

    private static int u16(ByteBuffer in) {
        return Short.toUnsignedInt(in.getShort());
    }

    private static int stringBytes(String text) {
        return Short.BYTES + text.getBytes(StandardCharsets.UTF_8).length;
    }

    private static void writeString(String text, ByteBuffer out) {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        if (bytes.length > MAX_STRING_BYTES) {
            throw new IllegalArgumentException("a string of " + bytes.length + " bytes does not fit into a frame");
        }
        out.putShort((short) bytes.length).put(bytes);
    }

    private static String readString(ByteBuffer in) throws ProtocolException {
        int sizeBytes = u16(in);
        if (sizeBytes > in.remaining()) {
            throw new BufferUnderflowException();
        }
        String text = utf8(in.slice(in.position(), sizeBytes));
        in.position(in.position() + sizeBytes);
        return text;
    }

    private static String utf8(ByteBuffer bytes) throws ProtocolException {
        try {
            return StandardCharsets.UTF_8.newDecoder().decode(bytes).toString();
        } catch (CharacterCodingException e) {
            throw ProtocolException.malformed("a string is not UTF-8");
        }
    }

    private static int recordsBytes(Records records) {
        return Integer.BYTES + records.size() * Records.WIDTH * Long.BYTES;
    }

    private static void writeRecords(Records records, ByteBuffer out) {
        out.putInt(records.size());
        for (int i = 0; i < records.size(); i++) {
            out.putLong(records.ledgerId(i)).putLong(records.entryId(i)).putLong(records.deliverAtMs(i));
        }
    }

    private static Records readRecords(ByteBuffer in) throws ProtocolException {
        int count = in.getInt();
        if (count < 0 || (long) count * Records.WIDTH * Long.BYTES != in.remaining()) {
            throw ProtocolException.malformed("a frame says " + Integer.toUnsignedLong(count) + " records and has "
                    + in.remaining() + " bytes of them");
        }
        Records records = new Records(count);
        for (int i = 0; i < count; i++) {
            long ledgerId = in.getLong();
            long entryId = in.getLong();
            // The sets index pages by entry id: a wild one would make them allocate without end.
            if (ledgerId < 0 || entryId < 0 || entryId > MAX_ENTRY_ID) {
                throw ProtocolException.malformed("a record names entry " + entryId + " of ledger " + ledgerId
                        + ", which cannot be");
            }
            records.add(ledgerId, entryId, in.getLong());
        }
        return records;
    }

    /** Records whose times count for long: a time before 1970 is refused. */
    private static Records readTimes(ByteBuffer in) throws ProtocolException {
        Records records = readRecords(in);
        for (int i = 0; i < records.size(); i++) {
            if (records.deliverAtMs(i) < 0) {
                throw ProtocolException.malformed("a record has the time " + records.deliverAtMs(i) + ", which is before 1970");
            }
        }
        return records;
    }
}
