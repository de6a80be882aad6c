package tidegate.pulsar.wire;

/** The other side broke a rule of the protocol; the answering ERROR frame carries {@code code}. */
public final class ProtocolException extends Exception {
    public static final int VERSION = 1;
    public static final int MALFORMED = 2;
    static final int OVERSIZED = 3;
    public static final int OUT_OF_ORDER = 4;
    static final int UNKNOWN_STREAM = 5;
    static final int ALREADY_OPEN = 6;
    public static final int STALE_EPOCH = 7;
    public static final int STORAGE = 8;
    static final int SHUTTING_DOWN = 9;
    public static final int FAILED = 11;

    private static final long serialVersionUID = 1L;

    private final int code;

    public ProtocolException(int code, String message) {
        super(message);
        this.code = code;
    }

    public int code() {
        return code;
    }

    public static ProtocolException malformed(String message) {
        return new ProtocolException(MALFORMED, message);
    }
}
