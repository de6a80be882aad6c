package tidegate.pulsar;

import java.time.Clock;
import java.time.Instant;
import java.time.ZoneId;
import java.time.ZoneOffset;

/** A clock that stands still until it is told to go on. */
final class VirtualClock extends Clock {
    private volatile long nowMs;

    VirtualClock(long nowMs) {
        this.nowMs = nowMs;
    }

    void set(long timeMs) {
        nowMs = timeMs;
    }

    void advance(long ms) {
        nowMs += ms;
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
