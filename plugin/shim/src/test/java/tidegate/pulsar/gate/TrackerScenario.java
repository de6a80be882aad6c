package tidegate.pulsar.gate;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.AfterEach;
import tidegate.pulsar.wire.Ownership;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.PositionBitmaps;

/** A tracker between the toy broker and the toy daemon; the daemon may find nothing to refuse, nor the tracker itself. */
abstract class TrackerScenario {
    final ToyWorld world = new ToyWorld(new Random(1));

    @AfterEach
    void theDaemonHadNothingToRefuse() {
        assertEquals(List.of(), world.daemon.violations);
    }

    Position publish(long entryId, long delayMs) {
        return world.broker.publish(new Position(1, entryId), delayMs < 0 ? -1 : world.now() + delayMs);
    }

    static PositionBitmaps positions(Position... positions) {
        PositionBitmaps all = new PositionBitmaps();
        for (Position position : positions) {
            all.add(position.ledgerId(), position.entryId());
        }
        return all;
    }

    void runFor(long ms) {
        world.runUntil(world.now() + ms);
    }

    List<Long> delivered() {
        return world.broker.deliveries.stream().map(delivery -> delivery.position().entryId()).toList();
    }

    void start() {
        world.broker.connect();
        world.settle();
    }

    ToyDaemon.Index index() {
        return world.daemon.index(ToyBroker.TOPIC, ToyBroker.SUBSCRIPTION);
    }

    /** The daemon has met the subscription before, and the cursor has the seal of then. */
    void theDaemonKnowsTheSubscription() {
        world.broker.recreate(Ownership.first(new Random(5)));
        world.broker.putSeal(77);
        index().incarnation = world.broker.ownership().incarnation();
        index().generation = 77;
    }

    /** All but one of ten are acknowledged, and the daemon knows. */
    void acknowledgeAllBut(long kept) {
        start();
        publish(0, -1);
        for (int entry = 1; entry < 10; entry++) {
            publish(entry, 100);
        }
        runFor(200);
        ToyBroker.ToyConsumer consumer = world.broker.consumers.get(0);
        for (Position position : List.copyOf(consumer.pending)) {
            if (position.entryId() != kept) {
                world.broker.acknowledge(consumer, position);
            }
        }
        world.broker.persistCursor(1000);
        runFor(2000);
        world.broker.deliveries.clear();
    }
}
