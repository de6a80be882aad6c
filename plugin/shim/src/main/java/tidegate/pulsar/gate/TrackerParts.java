package tidegate.pulsar.gate;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.time.Clock;
import java.util.random.RandomGenerator;
import tidegate.pulsar.position.NearTier;
import tidegate.pulsar.position.Overrides;
import tidegate.pulsar.position.SoughtPositions;
import tidegate.pulsar.position.TrackedPositions;

/**
 * The parts of a tracker's state, and the one lock that guards them all. A part knows only the parts that its constructor
 * got.
 *
 * <p>Callers of a tracker use one of its sides ({@link DeliveryQueue}, {@link StreamHandler}, {@link Backlog},
 * {@link TrackerMonitor}): a side takes the lock, lets the parts decide, and acts outside without it. The order of locks is
 * dispatcher, then this one.
 */
final class TrackerParts {
    final Object lock = new Object();
    final TrackerContext context;
    final Clock clock;
    final TrackerSettings settings;
    final Seal seal;
    @GuardedBy("lock")
    final Claim claim;
    @GuardedBy("lock")
    final NearTier near = new NearTier();
    @GuardedBy("lock")
    final Pacer pacer;
    @GuardedBy("lock")
    final PaceUpdates paceUpdates;
    @GuardedBy("lock")
    final SoughtPositions sought = new SoughtPositions();
    @GuardedBy("lock")
    final Overrides overrides = new Overrides();
    @GuardedBy("lock")
    final TrackedPositions positions = new TrackedPositions(near, sought, overrides);
    @GuardedBy("lock")
    final Outbox outbox = new Outbox();
    @GuardedBy("lock")
    final Lateness lateness = new Lateness();
    @GuardedBy("lock")
    final ReadAheadGate readAhead = new ReadAheadGate();
    final OverrideLog overrideLog;
    @GuardedBy("lock")
    final DaemonStream stream;
    final SettlingDeletes deletes;
    @GuardedBy("lock")
    final CursorWatch cursor;
    final DeletedRanges deletedRanges;
    @GuardedBy("lock")
    final ReadGate gate;
    @GuardedBy("lock")
    final StuckDetector stuckDetector;
    @GuardedBy("lock")
    final Alarm alarm;
    final UnreadableEntries unreadable;

    TrackerParts(TrackerContext context, Clock clock, TrackerSettings settings, RandomGenerator random, PendingBudget budget) {
        this.context = context;
        this.clock = clock;
        this.settings = settings;
        seal = new Seal(context, random);
        claim = new Claim(context, settings.ownership(), random);
        overrideLog = new OverrideLog(lock, context, clock, claim, positions, overrides);
        pacer = new Pacer(near, clock, context.pace());
        paceUpdates = new PaceUpdates(pacer);
        stream = new DaemonStream(context, settings, outbox, positions, near, paceUpdates);
        deletes = new SettlingDeletes(lock, context, clock, seal, positions, outbox, stream);
        cursor = new CursorWatch(context, seal, positions, outbox, stream, deletes);
        deletedRanges = new DeletedRanges(context, seal, positions);
        gate = new ReadGate(context, budget, claim, overrideLog, positions, sought, outbox, stream, readAhead, clock.millis());
        stuckDetector = new StuckDetector(context, pacer);
        alarm = new Alarm(context, pacer, stuckDetector);
        unreadable = new UnreadableEntries(context, seal, positions);
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
            readAhead.check();
            stream.check();
            deletes.check();
            cursor.check();
            gate.check();
            stuckDetector.check();
        }
        unreadable.check();
    }
}
