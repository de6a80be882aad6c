package tidegate.pulsar.readahead;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import tidegate.pulsar.gate.Seal;
import tidegate.pulsar.gate.ToyBroker;
import tidegate.pulsar.gate.ToyDaemon;
import tidegate.pulsar.gate.ToyWorld;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.Records;

/** One promise of reading ahead at a time, against the toy broker and the toy daemon. */
class ScanPassTest {
    private static final int BACKLOG = 2000;

    private final ToyWorld world = new ToyWorld(new Random(1));

    @BeforeEach
    void readAhead() {
        world.stride = new ScanPass.Stride(20, 64, 8, 200, 10);
        world.maxWaiting = 1000;
        world.readFailures = 0;
    }

    @AfterEach
    void theDaemonHadNothingToRefuseAndEverythingReadWasClosed() {
        assertEquals(List.of(), world.daemon.violations);
        assertEquals(0, world.reader.unclosed);
    }

    private Position publish(long entryId, long delayMs) {
        return world.broker.publish(new Position(1, entryId), delayMs < 0 ? -1 : world.now() + delayMs);
    }

    private void publishFar(int count) {
        for (int entry = 0; entry < count; entry++) {
            publish(entry, 3_600_000);
        }
    }

    private List<Long> delivered() {
        return world.broker.deliveries.stream().map(delivery -> delivery.position().entryId()).toList();
    }

    private ToyDaemon.Index index() {
        return world.daemon.index(ToyBroker.TOPIC, ToyBroker.SUBSCRIPTION);
    }

    private void attach() {
        world.broker.connect();
        world.runUntil(world.now() + 5_000);
    }

    @Test
    void aBacklogIsReadAheadOfTheDispatcher() {
        publishFar(BACKLOG);
        attach();
        assertEquals(BACKLOG, index().held.size());
        assertTrue(world.takenAhead() > BACKLOG / 2, world.takenAhead() + " taken");
        assertTrue(world.broker.reads < BACKLOG / 2, world.broker.reads + " read by the dispatcher");
        assertEquals(BACKLOG, world.core().queue().delayedMessages());
    }

    @Test
    void meanwhileTheDispatcherReadsNothingInVain() {
        publishFar(BACKLOG);
        attach();
        // Before there was a tracker, and at both ends of a pass.
        assertTrue(world.broker.reads <= 6 * world.stride.reach(), world.broker.reads + " read by the dispatcher");
    }

    @Test
    void whatIsPlainOrDueComesInBetween() {
        for (int entry = 0; entry < BACKLOG; entry++) {
            publish(entry, entry % 100 == 7 ? -1 : entry % 100 == 8 ? 0 : 3_600_000);
        }
        world.broker.permits = BACKLOG;
        attach();
        assertEquals(BACKLOG / 50, delivered().size());
        assertEquals(BACKLOG - BACKLOG / 50, world.core().queue().delayedMessages());
    }

    @Test
    void whatTheDaemonHoldsIsNotReadAgain() {
        publishFar(BACKLOG);
        attach();
        world.crashBroker();
        attach();
        assertTrue(world.reader.read <= 2 * world.stride.batch(), world.reader.read + " read ahead");
        assertEquals(BACKLOG, world.core().queue().delayedMessages());
    }

    /** Messages published while the topic moved would be read twice, by the dispatcher and ahead of it. */
    @Test
    void aFewBehindManyThatAreHeldAreTheDispatchers() {
        int few = world.stride.worthwhile() / 2;
        publishFar(BACKLOG);
        attach();
        world.crashBroker();
        for (int entry = BACKLOG; entry < BACKLOG + few; entry++) {
            publish(entry, 3_600_000);
        }
        world.broker.connect();
        world.runBroker();
        // The dispatcher has made the tracker, and gives the pass time.
        int permits = world.broker.permits;
        world.broker.permits = 0;
        world.runUntil(world.now() + 5_000);
        assertEquals(0, world.reader.read);
        world.broker.permits = permits;
        world.broker.readMore();
        world.runUntil(world.now() + 5_000);
        assertEquals(0, world.reader.read);
        assertEquals(BACKLOG + few, world.core().queue().delayedMessages());
    }

    @Test
    void whatIsAcknowledgedIsNeitherReadNorAdded() {
        publishFar(BACKLOG);
        world.broker.connect();
        ToyBroker.ToyConsumer consumer = world.broker.consumers.get(0);
        for (int entry = 100; entry < BACKLOG - 100; entry++) {
            world.broker.acknowledge(consumer, new Position(1, entry));
        }
        attach();
        assertEquals(200, index().held.size());
        assertTrue(world.reader.read < 200 + 2 * world.stride.batch(), world.reader.read + " read ahead");
    }

    @Test
    void nothingBehindAnOpenTransactionIsTold() {
        publishFar(BACKLOG);
        world.broker.connect();
        world.runBroker();
        world.reader.visible = new Position(1, 300);
        // The dispatcher would stop there, too; here it may not read at all.
        world.broker.permits = 0;
        world.runUntil(world.now() + 5_000);
        assertEquals(301, index().held.size());
    }

    @Test
    void aLedgerThatCannotBeReadIsTheDispatchers() {
        publishFar(BACKLOG);
        world.broker.connect();
        world.runBroker();
        world.reader.failures = 100;
        world.runUntil(world.now() + 20_000);
        assertEquals(BACKLOG, world.core().queue().delayedMessages());
        assertEquals(0, world.takenAhead());
    }

    @Test
    void howeverManyLedgersAreElsewhereThoseThatAreHereAreRead() {
        for (int ledger = 1; ledger <= 20; ledger++) {
            for (int entry = 0; entry < 100; entry++) {
                world.broker.publish(new Position(ledger, entry), world.now() + 3_600_000);
            }
        }
        world.broker.connect();
        world.runBroker();
        // The dispatcher does not get through the entries that are not here.
        world.broker.permits = 0;
        world.reader.elsewhere = 10;
        world.runUntil(world.now() + 5_000);
        assertEquals(1000, world.takenAhead());
    }

    @Test
    void aTopicWhereReadingAheadIsNotAllowedIsTheDispatchers() {
        publishFar(BACKLOG);
        world.broker.connect();
        world.runBroker();
        world.reader.allowed = false;
        world.runUntil(world.now() + 20_000);
        assertEquals(BACKLOG, world.core().queue().delayedMessages());
        assertEquals(0, world.reader.read);
    }

    @Test
    void aBacklogOfPlainMessagesIsNotReadTwice() {
        publish(0, 3_600_000);
        for (int entry = 1; entry < BACKLOG; entry++) {
            publish(entry, -1);
        }
        attach();
        assertTrue(world.reader.read < 2 * world.stride.sample(), world.reader.read + " read ahead");
    }

    @Test
    void whatTheDaemonLostIsReadBehindTheDispatcher() {
        publishFar(BACKLOG);
        publish(BACKLOG, -1);
        attach();
        assertEquals(List.of((long) BACKLOG), delivered());
        long ahead = world.takenAhead();
        int readByDispatcher = world.broker.reads;
        world.wipeDaemon();
        world.runUntil(world.now() + 5_000);
        assertEquals(BACKLOG, index().held.size());
        assertTrue(world.takenAhead() - ahead > BACKLOG / 2, world.takenAhead() - ahead + " of " + BACKLOG + " taken");
        assertEquals(readByDispatcher, world.broker.reads, "nothing was rewound");
        assertEquals(List.of((long) BACKLOG), delivered());
    }

    @Test
    void nothingIsTakenUnderAFormerTicket() {
        publish(0, 3_600_000);
        attach();
        long ticket = world.core().backlog().begin();
        Records records = Records.of(1, 50, world.now() + 3_600_000, 1, 51, world.now());
        assertTrue(world.core().backlog().mayAdd(ticket));
        world.broker.disconnectAll();
        world.core().queue().clear();
        assertEquals(-1, world.core().backlog().add(ticket, records, 0, 2));
        assertFalse(world.core().queue().contains(1, 50));
    }

    @Test
    void nothingIsTakenWithoutTheDaemonOrAfterAReset() {
        publish(0, 3_600_000);
        attach();
        long ticket = world.core().backlog().begin();
        Records records = Records.of(1, 50, world.now() + 3_600_000);
        world.broker.putSeal(Seal.NONE);
        assertEquals(-1, world.core().backlog().add(ticket, records, 0, 1));
        world.settle();
        ticket = world.core().backlog().begin();
        world.disconnect();
        assertEquals(-1, world.core().backlog().add(ticket, records, 0, 1));
        assertFalse(world.core().queue().contains(1, 50));
    }

    @Test
    void moreIsNotReadThanMayWaitForTheDaemon() {
        publishFar(BACKLOG);
        world.maxWaiting = 100;
        world.broker.readBatch = 1;
        world.broker.connect();
        world.connect();
        for (int i = 0; i < 300; i++) {
            world.toDaemon();
            world.daemon.tick(world.now());
            world.toShim(Integer.MAX_VALUE);
            // Once, for the tracker to be made.
            if (world.core() == null) {
                world.runBroker();
            }
            world.watch();
            world.readAhead();
        }
        assertTrue(world.takenAhead() >= 100, world.takenAhead() + " taken");
        // Those that were under way come, too.
        assertTrue(world.takenAhead() <= 100 + 4L * world.stride.batch(), world.takenAhead() + " taken");
        world.runUntil(world.now() + 5_000);
    }
}
