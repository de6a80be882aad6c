package tidegate.pulsar.position;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class TrackedPositionsTest {
    private final NearTier near = new NearTier();
    private final TrackedPositions positions = new TrackedPositions(near, new SoughtPositions(), new Overrides());

    @BeforeEach
    void aContainedPosition() {
        positions.enter(1, 2);
    }

    @Test
    void whatTheDaemonMayNotHaveIsGatedHere() {
        positions.gateAgain(1, 2, 100);
        assertEquals(100, near.headMs());
        positions.check();
    }

    @Test
    void whatIsSettlingIsNotGatedAgain() {
        positions.settle(1, 2);
        assertNotGatedAgain();
        assertTrue(positions.isSettling(1, 2));
    }

    @Test
    void whatWasHandedOutIsNotGatedAgain() {
        positions.handOut(1, 2);
        assertNotGatedAgain();
        assertTrue(positions.isHandedOut(1, 2));
    }

    private void assertNotGatedAgain() {
        positions.gateAgain(1, 2, 100);
        assertEquals(NearTier.NONE, near.headMs());
        assertFalse(near.contains(1, 2));
        positions.check();
    }
}
