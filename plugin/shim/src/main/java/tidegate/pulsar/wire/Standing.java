package tidegate.pulsar.wire;

/** The reliability of an answer to CANCEL or RESCHEDULE. */
public enum Standing {
    /** The answer is stored; asked with ASK, it may not be. */
    SETTLED(0),
    /** Nothing was decided: ask again. */
    UNDECIDED(1),
    /** It may not be stored: ask again. */
    UNSTORED(2),
    /** There is no room for it: CANCELLED is then as UNSTORED, RESCHEDULED has moved nothing. */
    NO_ROOM(4);

    static final int FLAGS = 7;

    private final int flag;

    Standing(int flag) {
        this.flag = flag;
    }

    int flag() {
        return flag;
    }

    static Standing of(int flags) throws ProtocolException {
        for (Standing each : values()) {
            if (each.flag == flags) {
                return each;
            }
        }
        throw ProtocolException.malformed("an answer with flags " + flags);
    }
}
