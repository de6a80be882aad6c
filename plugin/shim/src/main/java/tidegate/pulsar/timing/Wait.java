package tidegate.pulsar.timing;

/** A wait by a clock that may be set: setting it back begins the wait anew, so that it never lasts for long. Not thread-safe. */
public final class Wait {
    private long sinceMs;
    private boolean begun;

    public void begin(long nowMs) {
        sinceMs = nowMs;
        begun = true;
    }

    /** True if {@code waitMs} have passed since the wait began; one that never did is over. */
    public boolean isOver(long nowMs, long waitMs) {
        if (nowMs < sinceMs) {
            sinceMs = nowMs;
        }
        return !begun || nowMs - sinceMs >= waitMs;
    }
}
