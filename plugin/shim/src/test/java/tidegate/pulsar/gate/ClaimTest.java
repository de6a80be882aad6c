package tidegate.pulsar.gate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

/** A new subscription is claimed while a consumer is connected; clients that come and go do not put it off. */
class ClaimTest extends TrackerScenario {
    private static final long FAR_MS = 600_000;

    private void leaveBeforeTheClaim() {
        world.broker.isStored = false;
        world.broker.connect();
        publish(0, FAR_MS);
        world.runBroker();
        world.broker.disconnectAll();
    }

    @Test
    void itWaitsForAConsumerAndNoLonger() {
        leaveBeforeTheClaim();
        world.runUntil(world.now() + 60_000);
        assertNull(world.broker.ownership(), "a reset may be under way");
        assertEquals(1, world.core().stats().undecided(), "nobody has asked the daemon in vain");
        world.broker.connect();
        world.runUntil(world.now() + 50);
        assertTrue(world.core().stats().open());
        assertEquals(0, world.core().stats().undecided());
        assertEquals(1, index().held.size());
    }

    @Test
    void oneThatGoesAmidTheClaimCostsNoPause() {
        leaveBeforeTheClaim();
        for (int i = 0; i < 20; i++) {
            world.broker.connect();
            world.core().monitor().claim();
            world.broker.disconnectAll();
            world.runUntil(world.now() + 50);
        }
        world.broker.connect();
        world.runUntil(world.now() + 50);
        assertTrue(world.core().stats().open());
    }

    /** As Pulsar 5 has it while its metadata go to another store. */
    @Test
    void aStoreThatTakesNoWriteDelaysTheClaimAndNoMessage() {
        world.daemonWaitMs = 500;
        world.broker.connect();
        world.broker.refusesMetadata = true;
        publish(0, FAR_MS);
        for (int entry = 1; entry <= 20; entry++) {
            publish(entry, 1_000 * entry);
        }
        world.runUntil(ToyWorld.START_MS + 15_000);
        assertFalse(world.core().stats().open(), "nothing was written");
        assertTrue(index().held.isEmpty());
        assertEquals(15, delivered().size());
        world.broker.refusesMetadata = false;
        world.runUntil(ToyWorld.START_MS + 30_000);
        assertTrue(world.core().stats().open());
        assertEquals(21, index().held.size(), "the far one, and those in the consumer's hands");
        for (ToyBroker.Delivery delivery : world.broker.deliveries) {
            assertEquals(delivery.deliverAtMs(), delivery.atMs(), "entry " + delivery.position());
        }
        assertEquals(20, delivered().size());
    }
}
