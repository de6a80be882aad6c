package tidegate.pulsar.gate;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.function.BooleanSupplier;
import java.util.random.RandomGenerator;
import tidegate.pulsar.link.LinkSession;
import tidegate.pulsar.link.TrackerTable;
import tidegate.pulsar.position.NearTier;
import tidegate.pulsar.readahead.ReadAheadLimiter;
import tidegate.pulsar.readahead.ReadAhead;
import tidegate.pulsar.readahead.ScanPass;
import tidegate.pulsar.wire.Ownership;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.ProtocolException;

/**
 * A toy broker and a toy daemon on one machine, joined by the real {@link TrackerCore}, {@link TrackerTable},
 * {@link LinkSession} and codec, with virtual time and in one thread: the same calls give the same history. The topic may
 * move to another machine.
 */
public final class ToyWorld {
    public static final long START_MS = 1_767_225_600_000L;

    final VirtualClock clock = new VirtualClock(START_MS);
    public final ToyDaemon daemon = new ToyDaemon();
    final RandomGenerator random;
    private final RandomGenerator claims = new Random(7);
    /** The topic, or null while another machine has it. */
    public ToyBroker broker = new ToyBroker(clock);
    TrackerTable table = new TrackerTable();
    private final List<TrackerCore> watched = new ArrayList<>();
    private final List<TrackerCore> made = new ArrayList<>();
    private LinkSession session;

    int horizonMs = 2000;
    int credit = 100;
    long nearMaxEntries = 1000;
    long maxPendingEntries = 1_000_000;
    long daemonWaitMs = Long.MAX_VALUE / 2;
    /** Null: nothing is read ahead. */
    public ScanPass.Stride stride;
    public long maxWaiting = 100;
    public int readFailures = 2;
    /** The topic's ledgers never answer. */
    public boolean readsHang;
    /** Made with the first tracker, unless it is another world's, too. */
    public ReadAhead readAhead;
    private long nanos;
    public ToyReader reader;
    /** The daemon is up and would take a connection. */
    boolean daemonUp = true;

    public ToyWorld(RandomGenerator random) {
        this.random = random;
    }

    public long now() {
        return clock.millis();
    }

    public TrackerCore core() {
        return broker == null ? null : broker.core;
    }

    /** Claims have their own luck: no decision depends on the number, and a history stays the same. */
    private RandomGenerator trackersLuck() {
        return new RandomGenerator() {
            @Override
            public long nextLong() {
                return random.nextLong();
            }

            @Override
            public int nextInt() {
                return claims.nextInt();
            }
        };
    }

    private TrackerCore makeTracker() {
        ToyBroker owner = broker;
        owner.reachesDaemon = this::isConnected;
        Ownership known = owner.ownership();
        TrackerCore core = new TrackerCore(owner, clock, new TrackerSettings(ToyBroker.TOPIC, ToyBroker.SUBSCRIPTION,
                known == null ? Ownership.first(random) : known, horizonMs, credit, nearMaxEntries, daemonWaitMs),
                trackersLuck(), new PendingBudget(maxPendingEntries));
        if (stride != null) {
            if (readAhead == null) {
                readAhead = new ReadAhead(clock, this::nanoTime, stride, new ReadAheadLimiter(Long.MAX_VALUE, nanos),
                        () -> ReadAheadLimiter.Felt.NOTHING, maxWaiting);
            }
            reader = new ToyReader(owner, random);
            reader.failures = readFailures;
            reader.hangs = readsHang;
            readAhead.add(core, reader);
        }
        core.monitor().claim();
        table.register(core);
        watched.add(core);
        made.add(core);
        return core;
    }

    /** Another broker's tracker has claimed the subscription before. */
    void hasAFormerOwner() {
        broker.recreate(Ownership.first(new Random(5)).next(false, new Random(6)));
    }

    // ---- the connection ----

    public void connect() {
        if (session == null && daemonUp) {
            session = new LinkSession("toy", "toy", clock.monotonicMs(), () -> { });
            table.connected(session);
        }
    }

    boolean isConnected() {
        return session != null;
    }

    /** The connection breaks; bytes on their way are lost. */
    public void disconnect() {
        if (session != null) {
            session = null;
            table.lost();
        }
        daemon.disconnect();
    }

    void crashDaemon() {
        daemon.crash();
        disconnect();
    }

    public void wipeDaemon() {
        daemon.wipe();
        disconnect();
    }

    /** Moves the shim's bytes to the daemon. */
    public void toDaemon() {
        if (session == null) {
            return;
        }
        try {
            // Finished ones, too: nobody watches them, and they may have the rest to send on another stream.
            table.restartFailed(clock.monotonicMs());
            for (TrackerCore core : made) {
                table.framesWaiting(core);
            }
            session.tick(clock.monotonicMs());
            for (ByteBuffer bytes; (bytes = session.output()) != null; ) {
                int length = bytes.remaining();
                daemon.receive(bytes);
                session.written(length, clock.monotonicMs());
            }
        } catch (ProtocolException e) {
            throw new AssertionError(e);
        }
    }

    /** Moves at most {@code frames} frames of the daemon's to the shim. */
    public void toShim(int frames) {
        try {
            for (int i = 0; i < frames && session != null; i++) {
                ByteBuffer bytes = daemon.poll();
                if (bytes == null) {
                    return;
                }
                session.received(bytes, clock.monotonicMs());
            }
        } catch (ProtocolException e) {
            throw new AssertionError(e);
        }
    }

    // ---- the broker's threads ----

    /** All present work of the broker's threads. */
    public void runBroker() {
        if (broker == null) {
            return;
        }
        if (broker.wakeMs <= now() && core() != null) {
            broker.wakeMs = NearTier.NONE;
            core().queue().onWake();
        }
        // A few reads a turn: the others have their turn too while a backlog is read.
        for (int i = 0; i < 4 && broker.readRequested; i++) {
            if (broker.readMore(this::makeTracker)) {
                broker.readRequested = true;
            }
        }
    }

    /** Moves forward by a millisecond at each call, whatever the real time. */
    public long nanoTime() {
        return nanos += 1_000_000;
    }

    /** Entries read ahead that the trackers took. */
    public long takenAhead() {
        return made.stream().mapToLong(core -> core.stats().readAhead()).sum();
    }

    /** All present work of the reading-ahead thread, and some of BookKeeper's. */
    public void readAhead() {
        if (readAhead != null) {
            readAhead.turn();
            reader.answerSome();
        }
    }

    public void watch() {
        for (TrackerCore core : List.copyOf(watched)) {
            core.monitor().look();
            if (core.isFinished()) {
                watched.remove(core);
            }
        }
        if (broker != null) {
            broker.runCursor();
        }
        table.forgetClosed(clock.monotonicMs());
        watched.forEach(TrackerCore::check);
    }

    /** Lets everybody do all pending work, at one instant. */
    public void settle() {
        for (int i = 0; i < 20; i++) {
            connect();
            toDaemon();
            daemon.commit();
            daemon.tick(now());
            toShim(Integer.MAX_VALUE);
            runBroker();
            readAhead();
            watch();
        }
    }

    /** Lets the time pass in steps of at most 50 ms, settling at each and at each wake-up. */
    public void runUntil(long timeMs) {
        while (now() < timeMs) {
            long next = Math.min(timeMs, now() + 50);
            if (broker.wakeMs > now()) {
                next = Math.min(next, broker.wakeMs);
            }
            clock.reach(next);
            settle();
        }
    }

    public boolean runUntil(BooleanSupplier condition, long limitMs) {
        long end = now() + limitMs;
        while (!condition.getAsBoolean() && now() < end) {
            runUntil(now() + 50);
        }
        return condition.getAsBoolean();
    }

    void acknowledgeAll() {
        for (ToyBroker.ToyConsumer consumer : broker.consumers) {
            for (Position position : List.copyOf(consumer.pending)) {
                broker.acknowledge(consumer, position);
            }
        }
        broker.readRequested = true;
    }

    // ---- the broker's fate ----

    /** kill -9 of the broker; the cursor as persisted last. */
    public void crashBroker() {
        takeOver(killBroker());
    }

    /** kill -9 of the broker; returns the topic, for its next owner. */
    ToyBroker killBroker() {
        session = null;
        daemon.disconnect();
        table = new TrackerTable();
        readAhead = null;
        watched.clear();
        return giveAway();
    }

    private ToyBroker giveAway() {
        ToyBroker given = broker;
        broker = null;
        return given;
    }

    /** This machine's broker loads the topic of another, or of an earlier one here. */
    void takeOver(ToyBroker former) {
        broker = former.next(clock);
    }

    /** The topic is unloaded and loaded again by the same broker. */
    void unload(int persistedAcknowledgements) {
        takeOver(unloadBroker(persistedAcknowledgements));
    }

    /** The topic is unloaded; returns it, for its next owner. */
    ToyBroker unloadBroker(int persistedAcknowledgements) {
        broker.closeDispatcher();
        broker.closeCursor(persistedAcknowledgements);
        return giveAway();
    }
}
