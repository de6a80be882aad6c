package tidegate.pulsar.wire;

import java.nio.ByteBuffer;
import java.util.Comparator;
import java.util.List;

/**
 * The frames of docs/protocol.md, a record for each type, with the fields in the payload's order.
 *
 * <p>QUERY, REPLY and INGEST are missing: brokers neither send nor get them. The broker's servlet, a control client, sends
 * HTTP_REQUEST.
 *
 * <p>{@code stream} and {@code seq} belong to the envelope ({@link Envelope}).
 */
public sealed interface Frame {
    /** The type byte. */
    int type();

    /** The flag byte, derived from the fields that travel as flags. */
    default int flags() {
        return 0;
    }

    record Envelope(int stream, long seq, Frame frame) {}

    /** The frame's name in log lines. */
    default String name() {
        return getClass().getSimpleName().toUpperCase(java.util.Locale.ROOT);
    }

    /** First frame of a client; {@code role} 1 = broker. */
    record Hello(int minVersion, int maxVersion, int role, String clientName, String product) implements Frame {
        static final int TYPE = 0x01;
        public static final int ROLE_BROKER = 1;
        public static final int ROLE_CONTROL = 2;

        @Override
        public int type() {
            return TYPE;
        }
    }

    /** The daemon's answer to HELLO. */
    record Welcome(int version, int heartbeatMs, long daemonId, String product) implements Frame {
        static final int TYPE = 0x02;

        @Override
        public int type() {
            return TYPE;
        }
    }

    /** A broken rule or a failure; on stream 0 the sender then closes. */
    record Error(int code, String message) implements Frame {
        static final int TYPE = 0x03;

        @Override
        public int type() {
            return TYPE;
        }
    }

    /** Asks for a PONG with the same seq. */
    record Ping() implements Frame {
        static final int TYPE = 0x04;

        @Override
        public int type() {
            return TYPE;
        }
    }

    /** Answers a PING. */
    record Pong() implements Frame {
        static final int TYPE = 0x05;

        @Override
        public int type() {
            return TYPE;
        }
    }

    /**
     * Opens a stream: one subscription. {@code generation} = the cursor's seal, 0 without one; {@code inFlight} = near tier
     * and handed-out positions; {@code logHome} = the index log's place, empty for none; {@code logPointer} = its present
     * place; {@code claims} = those of the last epochs, 64 at most, that of {@code epoch} last; {@code end} = the topic's
     * last position when the epoch was claimed, -1:-1 if unknown.
     */
    record Open(Incarnation incarnation, long epoch, long generation, int horizonMs, int credit, long markDeleteLedgerId,
                long markDeleteEntryId, String topic, String subscription, PositionBitmaps inFlight, String logHome,
                String logPointer, List<Integer> claims, long endLedgerId, long endEntryId) implements Frame {
        static final int TYPE = 0x10;

        @Override
        public int type() {
            return TYPE;
        }
    }

    /** Answers OPEN, in as many frames as needed. */
    record Held(boolean last, PositionBitmaps held, PositionBitmaps acknowledged) implements Frame {
        static final int TYPE = 0x11;
        static final int LAST = 1;

        @Override
        public int type() {
            return TYPE;
        }

        @Override
        public int flags() {
            return last ? LAST : 0;
        }
    }

    /** New entries; {@code near}: the broker hands them out itself. */
    record Add(boolean near, Records records) implements Frame {
        static final int TYPE = 0x12;
        static final int NEAR = 1;

        @Override
        public int type() {
            return TYPE;
        }

        @Override
        public int flags() {
            return near ? NEAR : 0;
        }
    }

    /** Everything of the stream up to the envelope's seq is on disk. */
    record Durable() implements Frame {
        static final int TYPE = 0x13;

        @Override
        public int type() {
            return TYPE;
        }
    }

    /** Entries that are due within the horizon. */
    record Due(Records records) implements Frame {
        static final int TYPE = 0x14;

        @Override
        public int type() {
            return TYPE;
        }
    }

    /** Allows the daemon to send this many more DUE records. */
    record Credit(int more) implements Frame {
        static final int TYPE = 0x15;

        @Override
        public int type() {
            return TYPE;
        }
    }

    /** Positions now known acknowledged. */
    record Ack(PositionBitmaps positions) implements Frame {
        static final int TYPE = 0x16;

        @Override
        public int type() {
            return TYPE;
        }
    }

    /** Positions that are not acknowledged after all: the cursor refuses to delete them. */
    record Unack(PositionBitmaps positions) implements Frame {
        static final int TYPE = 0x17;

        @Override
        public int type() {
            return TYPE;
        }
    }

    /** The cursor's persisted mark-delete position has moved forward. */
    record MarkDelete(long ledgerId, long entryId) implements Frame {
        static final int TYPE = 0x18;

        @Override
        public int type() {
            return TYPE;
        }
    }

    /** Forget every entry and acknowledgement of the subscription. */
    record Clear() implements Frame {
        static final int TYPE = 0x19;

        @Override
        public int type() {
            return TYPE;
        }
    }

    /** The stream ends; the index stays. */
    record Close() implements Frame {
        static final int TYPE = 0x1a;

        @Override
        public int type() {
            return TYPE;
        }
    }

    /** Positions that the index no longer answers for. */
    record Unheld(PositionBitmaps positions) implements Frame {
        static final int TYPE = 0x1b;

        @Override
        public int type() {
            return TYPE;
        }
    }

    /** Positions to take back before consumers have them; {@code ask}: only report their state. */
    record Cancel(boolean ask, PositionBitmaps positions) implements Frame {
        static final int TYPE = 0x40;
        static final int ASK = 1;

        @Override
        public int type() {
            return TYPE;
        }

        @Override
        public int flags() {
            return ask ? ASK : 0;
        }
    }

    /**
     * Answers CANCEL, with the same seq. {@code cancelled}: taken back, or would be; {@code tooLate}: handed out. A
     * requested position in no set is no waiting message.
     */
    record Cancelled(Standing standing, PositionBitmaps cancelled, PositionBitmaps tooLate, PositionBitmaps acknowledged)
            implements Frame {
        static final int TYPE = 0x41;

        public static Cancelled notYet() {
            return new Cancelled(Standing.UNDECIDED, new PositionBitmaps(), new PositionBitmaps(), new PositionBitmaps());
        }

        @Override
        public int type() {
            return TYPE;
        }

        @Override
        public int flags() {
            return standing.flag();
        }
    }

    /** Messages to be due at other times, unless consumers have them; {@code ask}: only report their state. */
    record Reschedule(boolean ask, Records records) implements Frame {
        static final int TYPE = 0x42;
        static final int ASK = 1;

        @Override
        public int type() {
            return TYPE;
        }

        @Override
        public int flags() {
            return ask ? ASK : 0;
        }
    }

    /**
     * Answers RESCHEDULE, with the same seq. {@code moved}: due at their new times, or would be; {@code tooLate}: handed
     * out. A requested position in no set is no waiting message.
     */
    record Rescheduled(Standing standing, PositionBitmaps moved, PositionBitmaps tooLate, PositionBitmaps acknowledged)
            implements Frame {
        static final int TYPE = 0x43;

        public static Rescheduled notYet() {
            return new Rescheduled(Standing.UNDECIDED, new PositionBitmaps(), new PositionBitmaps(), new PositionBitmaps());
        }

        @Override
        public int type() {
            return TYPE;
        }

        @Override
        public int flags() {
            return standing.flag();
        }
    }

    /** The times that hold for waiting entries, whatever ADD says; {@code near}: the broker hands them out itself. */
    record Move(boolean near, Records records) implements Frame {
        static final int TYPE = 0x1f;
        static final int NEAR = 1;

        @Override
        public int type() {
            return TYPE;
        }

        @Override
        public int flags() {
            return near ? NEAR : 0;
        }
    }

    /** The pace of due entries from now on; {@code ask}: only report the one in force. */
    record Pace(boolean ask, ReleasePace pace) implements Frame {
        static final int TYPE = 0x44;
        static final int ASK = 1;

        @Override
        public int type() {
            return TYPE;
        }

        @Override
        public int flags() {
            return ask ? ASK : 0;
        }
    }

    /**
     * Answers PACE, with the same seq; with seq 0 it brings the stored pace to a new stream. {@code pace}: the one in force,
     * in the cursor's record. {@code heldBack}: due entries of the near tier that wait for nothing else. {@code why}: the
     * reason against the requested pace; empty if it is in force.
     */
    record Paced(ReleasePace pace, int heldBack, String why) implements Frame {
        static final int TYPE = 0x45;

        @Override
        public int type() {
            return TYPE;
        }
    }

    /** The number of the daemon's due entries beyond its credit. */
    record Behind(long entries) implements Frame {
        static final int TYPE = 0x46;

        @Override
        public int type() {
            return TYPE;
        }
    }

    /**
     * Asks which stored messages have a key ({@code value}) or a property ({@code property} with {@code value}), or, with
     * {@link #ANY}, for the content of one.
     */
    record Peek(int kind, String property, String value, PositionBitmaps positions) implements Frame {
        static final int TYPE = 0x47;
        public static final int ANY = 0;
        public static final int KEY = 1;
        public static final int PROPERTY = 2;

        @Override
        public int type() {
            return TYPE;
        }
    }

    /**
     * Answers PEEK, with the same seq. {@code unread}: not readable now; a position in neither set is another message, or its
     * ledger is gone. {@code content}: of one message, as JSON, if asked for and found.
     */
    record Peeked(PositionBitmaps matching, PositionBitmaps unread, long readBytes, ByteBuffer content) implements Frame {
        static final int TYPE = 0x48;

        @Override
        public int type() {
            return TYPE;
        }
    }

    /** The daemon requests an operation on the index log; the answer carries the same seq. */
    record LogRequest(int op, long ledgerId, long first, long last, String oldPointer, String newPointer, ByteBuffer entry)
            implements Frame {
        static final int TYPE = 0x1c;
        public static final int CREATE = 1;
        public static final int APPEND = 2;
        public static final int OPEN = 3;
        public static final int READ = 4;
        public static final int CLOSE = 5;
        public static final int DELETE = 6;
        public static final int POINT = 7;

        @Override
        public int type() {
            return TYPE;
        }
    }

    /**
     * All dispatchers that bypass Tidegate at this broker: how many have delayed messages outside our trackers, and the
     * first of them by name.
     */
    record Bypassed(int dispatchers, List<Dispatcher> named) implements Frame {
        static final int TYPE = 0x1e;
        public static final int MOST_NAMED = 32;
        public static final Bypassed NOTHING = new Bypassed(0, List.of());

        /** One of them, with its delayed messages and the reason why they are not ours. */
        public record Dispatcher(String topic, String subscription, long delayed, String reason) implements Comparable<Dispatcher> {
            @Override
            public int compareTo(Dispatcher other) {
                return Comparator.comparing(Dispatcher::topic).thenComparing(Dispatcher::subscription).compare(this, other);
            }
        }

        @Override
        public int type() {
            return TYPE;
        }
    }

    /**
     * A request of the broker's web service, which the daemon answers as its own HTTP side would. {@code target}: path and
     * query. {@code clientRole}: the authenticated role, empty without authentication.
     */
    record HttpRequest(String method, String target, String clientRole, ByteBuffer body) implements Frame {
        static final int TYPE = 0x23;

        @Override
        public int type() {
            return TYPE;
        }

        @Override
        public String name() {
            return "HTTP_REQUEST";
        }
    }

    /** Answers HTTP_REQUEST, with the same seq. */
    record HttpResponse(int status, String contentType, ByteBuffer body) implements Frame {
        static final int TYPE = 0x24;

        @Override
        public int type() {
            return TYPE;
        }

        @Override
        public String name() {
            return "HTTP_RESPONSE";
        }
    }

    /** {@code number}: the new ledger's id, the appended entry's number or the last entry's, depending on the request. */
    record LogAnswer(int code, long number, String message, List<ByteBuffer> entries) implements Frame {
        static final int TYPE = 0x1d;
        public static final int OK = 0;
        public static final int FENCED = 1;
        public static final int NO_LEDGER = 2;
        public static final int STALE = 3;
        public static final int AWAY = 4;
        public static final int REFUSED = 5;

        private static final int MAX_MESSAGE = 1_000;

        public static LogAnswer ok(long number) {
            return new LogAnswer(OK, number, "", List.of());
        }

        public static LogAnswer failed(int code, String message) {
            return new LogAnswer(code, -1, message.substring(0, Math.min(message.length(), MAX_MESSAGE)), List.of());
        }

        @Override
        public int type() {
            return TYPE;
        }
    }
}
