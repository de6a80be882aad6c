package tidegate.pulsar;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import tidegate.pulsar.cursor.IndividualAcks;
import tidegate.pulsar.cursor.StoredSeals;
import tidegate.pulsar.gate.PendingBudget;
import tidegate.pulsar.gate.ToyBroker;
import tidegate.pulsar.gate.ToyWorld;
import tidegate.pulsar.gate.TrackerCore;
import tidegate.pulsar.gate.TrackerSettings;
import tidegate.pulsar.gate.VirtualClock;
import tidegate.pulsar.wire.Ownership;
import tidegate.pulsar.wire.Position;

@Timeout(30)
class AckWatchTest {
    private final VirtualClock clock = new VirtualClock(ToyWorld.START_MS);
    private final StoredSeals seals = new StoredSeals(new Random(3), new IndividualAcks(false), cursor -> null, System::nanoTime);

    private TrackerCore newCore(ToyBroker context) {
        context.core = new TrackerCore(context, clock, new TrackerSettings("topic", "sub", Ownership.first(new Random(1)),
                2000, 100, 100, 60_000), new Random(2), new PendingBudget(1000));
        return context.core;
    }

    @Test
    void aCursorThatFailsIsLookedAtAgainAndSoAreTheOthers() throws InterruptedException {
        CountDownLatch failures = new CountDownLatch(3);
        CountDownLatch looks = new CountDownLatch(3);
        ToyBroker failing = new ToyBroker(clock) {
            @Override
            public Position markDelete() {
                if (core != null) {
                    failures.countDown();
                    throw new NoClassDefFoundError("a class that the broker no longer has");
                }
                return super.markDelete();
            }
        };
        ToyBroker healthy = new ToyBroker(clock) {
            @Override
            public Position markDelete() {
                looks.countDown();
                return super.markDelete();
            }
        };
        try (AckWatch watch = new AckWatch(1, seals, () -> { })) {
            watch.add(newCore(failing));
            watch.add(newCore(healthy));
            watch.start();
            assertTrue(failures.await(20, TimeUnit.SECONDS));
            assertTrue(looks.await(20, TimeUnit.SECONDS));
        }
    }
}
