package tidegate.pulsar.gate;

import java.time.Clock;
import java.time.Instant;
import java.time.ZoneId;
import java.time.ZoneOffset;

/** A clock that stands still until it is told to go on, or was read so many times. */
public final class VirtualClock extends Clock {
    private volatile long nowMs;
    private volatile long monotonicMs;
    /** After so many more readings it is {@link #jumpMs}; 0: never. */
    private int readingsLeft;
    private long jumpMs;

    public VirtualClock(long nowMs) {
        this.nowMs = nowMs;
    }

    /** Sets it; a step forward also counts as passed time. */
    void set(long timeMs) {
        monotonicMs += Math.max(0, timeMs - nowMs);
        nowMs = timeMs;
    }

    /** Somebody sets it, and no time passes. */
    public void step(long ms) {
        nowMs += ms;
    }

    /** As {@link #set}, never back. */
    void reach(long timeMs) {
        if (timeMs > nowMs) {
            set(timeMs);
        }
    }

    /** After so many more readings it is that time, as if the machine had paused there. */
    void jumpAfter(int readings, long toMs) {
        readingsLeft = readings;
        jumpMs = toMs;
    }

    /** True if a jump is still to come. */
    boolean isToJump() {
        return readingsLeft > 0;
    }

    public void advance(long ms) {
        set(nowMs + ms);
    }

    /** Of a clock that nobody sets back. */
    long monotonicMs() {
        return monotonicMs;
    }

    @Override
    public long millis() {
        long readMs = nowMs;
        if (readingsLeft > 0 && --readingsLeft == 0) {
            reach(jumpMs);
        }
        return readMs;
    }

    @Override
    public Instant instant() {
        return Instant.ofEpochMilli(nowMs);
    }

    @Override
    public ZoneId getZone() {
        return ZoneOffset.UTC;
    }

    @Override
    public Clock withZone(ZoneId zone) {
        return this;
    }
}
