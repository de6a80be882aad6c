package tidegate.pulsar.gate;

import java.time.Clock;
import java.util.random.RandomGenerator;
import tidegate.pulsar.position.NearTier;
import tidegate.pulsar.position.Overrides;
import tidegate.pulsar.position.PositionStates;
import tidegate.pulsar.position.SoughtPositions;

/**
 * The parts of a tracker's state, and the one lock that guards them all.
 *
 * <p>A part knows only the parts that its constructor got. Callers of a tracker go through one of its sides
 * ({@link DispatcherSide}, {@link DaemonSide}, {@link AheadSide}, {@link WatchSide}): a side takes the lock, has the parts
 * decide, and acts outside without it. The order of locks is dispatcher, then this one: code that takes the dispatcher's lock is
 * not called with this one held.
 */
final class TrackerParts {
    final Object lock = new Object();
    final TrackerHost host;
    final Clock clock;
    final TrackerSettings settings;
    final Seal seal;
    final Claim claim;
    final NearTier near = new NearTier();
    final Pacer pacer;
    final PaceNews paceNews;
    final SoughtPositions sought = new SoughtPositions();
    final Overrides overrides = new Overrides();
    final PositionStates positions = new PositionStates(near, sought, overrides);
    final Outbox outbox = new Outbox();
    final AheadGate ahead = new AheadGate();
    final OverrideLog overrideLog;
    final DaemonStream stream;
    final SettlingDeletes deletes;
    final CursorWatch cursor;
    final DeletedRanges deletedRanges;
    final ReadGate gate;
    final Overlooked overlooked;
    final Alarm alarm;
    final UnreadableEntries unreadable;

    TrackerParts(TrackerHost host, Clock clock, TrackerSettings settings, RandomGenerator random, PendingBudget budget) {
        this.host = host;
        this.clock = clock;
        this.settings = settings;
        seal = new Seal(host, random);
        claim = new Claim(host, settings.ownership(), random);
        overrideLog = new OverrideLog(lock, host, clock, claim, positions, overrides);
        pacer = new Pacer(near, clock, host.pace());
        paceNews = new PaceNews(pacer);
        stream = new DaemonStream(host, settings, outbox, positions, near, paceNews);
        deletes = new SettlingDeletes(lock, host, clock, seal, positions, outbox, stream);
        cursor = new CursorWatch(host, seal, positions, outbox, stream, deletes);
        deletedRanges = new DeletedRanges(host, seal, positions);
        gate = new ReadGate(host, budget, claim, overrideLog, positions, sought, outbox, stream, ahead, clock.millis());
        overlooked = new Overlooked(host, pacer);
        alarm = new Alarm(host, pacer, overlooked);
        unreadable = new UnreadableEntries(host, seal, positions);
    }

    /** @throws IllegalStateException if an invariant of a part does not hold */
    void check() {
        synchronized (lock) {
            claim.check();
            near.check();
            pacer.check();
            sought.check();
            overrides.check();
            positions.check();
            outbox.check();
            ahead.check();
            stream.check();
            deletes.check();
            cursor.check();
            gate.check();
            overlooked.check();
        }
        unreadable.check();
    }
}
