package tidegate.pulsar.timing;

/** A wait by a clock that may be set: setting it back begins the wait anew, so it never lasts long. Not thread-safe. */
public final class Wait {
    private long sinceMs;
    private boolean begun;

    public void begin(long nowMs) {
        sinceMs = nowMs;
        begun = true;
    }

    /** True if {@code waitMs} have passed since the wait began; a wait that never began is over. */
    public boolean isOver(long nowMs, long waitMs) {
        if (nowMs < sinceMs) {
            sinceMs = nowMs;
        }
        return !begun || nowMs - sinceMs >= waitMs;
    }
}
