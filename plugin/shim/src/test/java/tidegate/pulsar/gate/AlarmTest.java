package tidegate.pulsar.gate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import tidegate.pulsar.position.NearTier;
import tidegate.pulsar.position.Overrides;
import tidegate.pulsar.position.SoughtPositions;
import tidegate.pulsar.position.TrackedPositions;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.ReleasePace;

class AlarmTest {
    private final VirtualClock clock = new VirtualClock(ToyWorld.START_MS);
    private final ToyBroker context = new ToyBroker(clock);
    private final NearTier near = new NearTier();
    private final TrackedPositions positions = new TrackedPositions(near, new SoughtPositions(), new Overrides());
    private final Pacer pacer = new Pacer(near, clock, context.pace());
    private final StuckDetector stuckDetector = new StuckDetector(context, pacer);
    private final Alarm alarm = new Alarm(context, pacer, stuckDetector);

    /** One consumer's message goes back and forth in vain, so the looks at it have become rare. */
    private void lookSeldom() {
        context.connect();
        context.negativeAcknowledge(context.consumers.get(0), new Position(1, 9));
        stuckDetector.begin(clock.millis());
        for (int i = 0; i < 20; i++) {
            clock.set(Math.max(clock.millis(), stuckDetector.lookMs()));
            alarm.ring(clock.millis());
        }
        assertTrue(stuckDetector.lookMs() - clock.millis() > 5_000);
    }

    @Test
    void aTimerThatIsDueIsNotReplacedByALaterOne() {
        lookSeldom();
        long dueMs = clock.millis() + 100;
        positions.gate(1, 1, dueMs);
        alarm.arm(clock.millis());
        assertEquals(dueMs, context.wakeMs);
        clock.set(dueMs);
        // Another thread has the lock before the timer's.
        alarm.arm(clock.millis());
        assertEquals(dueMs, context.wakeMs);
        assertTrue(alarm.ring(clock.millis()));
    }

    @Test
    void oneThatIsLostIsReplaced() {
        lookSeldom();
        positions.gate(1, 1, clock.millis() + 100);
        alarm.arm(clock.millis());
        clock.advance(1_000);
        alarm.arm(clock.millis());
        assertEquals(stuckDetector.lookMs(), context.wakeMs);
    }

    /** A look at the entries takes time, and a clock goes on meanwhile: what comes due then is awaited. */
    @Test
    void whatComesDueWhileItIsLookedAtIsAwaited() {
        long dueMs = clock.millis() + 1;
        positions.gate(1, 1, dueMs);
        long nowMs = clock.millis();
        clock.set(dueMs);
        assertFalse(alarm.isDue(nowMs));
        assertEquals(dueMs, context.wakeMs);
        assertTrue(alarm.ring(clock.millis()));
    }

    @Test
    void whatComesDueWhileATimerRingsTooEarlyIsAwaited() {
        long dueMs = clock.millis() + 1_500;
        positions.gate(1, 1, dueMs);
        alarm.arm(clock.millis());
        clock.set(dueMs - 1);
        long nowMs = clock.millis();
        clock.set(dueMs);
        context.wakeMs = NearTier.NONE;
        assertFalse(alarm.ring(nowMs));
        assertEquals(dueMs, context.wakeMs);
    }

    /** A permit may come between two questions, too. */
    @Test
    void whatMayLeaveWhileItIsLookedAtIsAwaited() {
        pacer.set(ReleasePace.rate(2));
        positions.gate(1, 1, clock.millis());
        clock.advance(499);
        long nowMs = clock.millis();
        clock.advance(1);
        assertFalse(alarm.isDue(nowMs));
        assertEquals(clock.millis(), context.wakeMs);
        assertTrue(alarm.ring(clock.millis()));
    }
}
