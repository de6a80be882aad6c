package tidegate.pulsar.gate;

import java.time.Clock;
import java.time.Instant;
import java.time.ZoneId;
import java.time.ZoneOffset;

/** A clock that stands still until it is told to go on. */
public final class VirtualClock extends Clock {
    private volatile long nowMs;
    private volatile long monotonicMs;

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

    public void advance(long ms) {
        set(nowMs + ms);
    }

    /** Of a clock that nobody sets back. */
    long monotonicMs() {
        return monotonicMs;
    }

    @Override
    public long millis() {
        return nowMs;
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
