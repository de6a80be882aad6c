package tidegate.pulsar.gate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;

import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import tidegate.pulsar.wire.Position;

/** A tracker that ends while its stream is to be opened again under another seal. */
class LifecycleTest extends TrackerScenario {
    private long former;

    @BeforeEach
    void acknowledgedUnderASealThatTheDaemonDoesNotKnowYet() {
        start();
        for (int entry = 1; entry <= 3; entry++) {
            publish(entry, 100);
        }
        world.runUntil(world.now() + 200);
        assertEquals(List.of(1L, 2L, 3L), delivered());
        former = index().generation;
        // As a skip of messages does that moves nothing.
        world.broker.putSeal(Seal.NONE);
        world.watch();
        ToyBroker.ToyConsumer consumer = world.broker.consumers.get(0);
        world.broker.acknowledge(consumer, new Position(1, 2));
        world.broker.acknowledge(consumer, new Position(1, 3));
        world.broker.deliveries.clear();
    }

    @Test
    void itsLastAcknowledgementsAreToldUnderTheirOwnSeal() {
        ToyBroker left = world.unloadBroker(0);
        world.settle();
        assertNotEquals(former, index().generation);
        assertEquals(left.seal(), index().generation);
        assertEquals(Set.of(new Position(1, 2), new Position(1, 3)), index().acknowledged);
        world.takeOver(left);
        onlyTheUnacknowledgedOneComes();
    }

    @Test
    void itsSuccessorTellsThem() {
        world.unload(0);
        onlyTheUnacknowledgedOneComes();
    }

    private void onlyTheUnacknowledgedOneComes() {
        world.broker.connect();
        world.runBroker();
        world.runUntil(world.now() + 5_000);
        assertEquals(List.of(1L), delivered());
    }
}
