import io.netty.util.HashedWheelTimer;
import io.netty.util.Timeout;
import io.netty.util.Timer;
import io.netty.util.TimerTask;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.TimeUnit;

/**
 * The timer of a broker's trackers: a wheel that turns once a tick, as Pulsar's factories make it, until told to turn faster.
 */
final class TickTimer implements Timer {
    private final HashedWheelTimer slow;
    private final HashedWheelTimer fast;
    private volatile HashedWheelTimer current;

    TickTimer(long tickMs, long fastTickMs) {
        slow = new HashedWheelTimer(tickMs, TimeUnit.MILLISECONDS);
        fast = new HashedWheelTimer(fastTickMs, TimeUnit.MILLISECONDS);
        current = slow;
    }

    /** From now on new timeouts go to the wheel with the shorter tick. */
    void quicken() {
        current = fast;
    }

    @Override
    public Timeout newTimeout(TimerTask task, long delay, TimeUnit unit) {
        return current.newTimeout(task, delay, unit);
    }

    @Override
    public Set<Timeout> stop() {
        Set<Timeout> left = new HashSet<>(slow.stop());
        left.addAll(fast.stop());
        return left;
    }
}
