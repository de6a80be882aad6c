package tidegate.pulsar.timing;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import tidegate.pulsar.gate.VirtualClock;

class WakeupsTest {
    private static final long START_MS = 1_700_000_000_000L;

    @Test
    void aClockThatIsSetAheadMakesNoWakeUpLateByTheTimeThatItSkipped() throws InterruptedException {
        VirtualClock clock = new VirtualClock(START_MS);
        CountDownLatch woken = new CountDownLatch(1);
        try (Wakeups wakeups = new Wakeups(clock)) {
            long dueMs = START_MS + TimeUnit.HOURS.toMillis(1);
            wakeups.at(dueMs, woken::countDown);
            clock.step(dueMs - START_MS);
            assertTrue(woken.await(20, TimeUnit.SECONDS), "it looks at the clock again soon");
        }
    }
}
