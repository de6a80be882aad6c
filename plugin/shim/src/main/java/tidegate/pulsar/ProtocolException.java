package tidegate.pulsar;

/** The other side broke a rule of the protocol; the answering ERROR frame carries {@code code}. */
final class ProtocolException extends Exception {
    static final int VERSION = 1;
    static final int MALFORMED = 2;
    static final int OVERSIZED = 3;
    static final int OUT_OF_ORDER = 4;
    static final int UNKNOWN_STREAM = 5;
    static final int ALREADY_OPEN = 6;
    static final int STALE_EPOCH = 7;
    static final int STORAGE = 8;
    static final int SHUTTING_DOWN = 9;
    static final int FAILED = 11;

    private static final long serialVersionUID = 1L;

    private final int code;

    ProtocolException(int code, String message) {
        super(message);
        this.code = code;
    }

    int code() {
        return code;
    }
}
