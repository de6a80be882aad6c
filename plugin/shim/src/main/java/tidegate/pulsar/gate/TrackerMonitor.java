package tidegate.pulsar.gate;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.time.Clock;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.position.NearTier;
import tidegate.pulsar.position.PositionSet;
import tidegate.pulsar.position.PositionView;
import tidegate.pulsar.position.SoughtPositions;
import tidegate.pulsar.position.TrackedPositions;
import tidegate.pulsar.timing.Wait;
import tidegate.pulsar.wire.Ownership;
import tidegate.pulsar.wire.PositionBitmaps;
import tidegate.pulsar.wire.ReleasePace;

/**
 * The monitor of a tracker: checks its cursor, reports the progress of mark-delete, deletes settling positions, finds
 * unreadable entries, and ends long waits.
 *
 * <p>{@code AckWatch}'s one thread calls it at each poll, or once a second, without any lock; it takes the tracker's lock,
 * but not while it asks the cursor about many positions.
 */
public final class TrackerMonitor {
    private static final Logger LOG = LoggerFactory.getLogger(TrackerMonitor.class);
    private static final long LOOK_INTERVAL_MS = 1000;
    /** Longer than an acknowledgement's way to the cursor, on the same thread. */
    private static final long ACK_UNDER_WAY_MS = 20;
    /** The longest wait of a subscription's first owner for a connected daemon that it has asked. */
    private static final long FIRST_WAIT_MS = 1000;
    /** The largest difference between the daemon's clock and this one. */
    private static final long SKEW_MS = 2000;

    private final Object lock;
    private final TrackerContext context;
    private final Clock clock;
    private final TrackerSettings settings;
    private final Seal seal;
    @GuardedBy("lock")
    private final Claim claim;
    private final PositionView view;
    @GuardedBy("lock")
    private final TrackedPositions positions;
    @GuardedBy("lock")
    private final NearTier near;
    @GuardedBy("lock")
    private final SoughtPositions sought;
    @GuardedBy("lock")
    private final DaemonStream stream;
    private final SettlingDeletes deletes;
    @GuardedBy("lock")
    private final CursorWatch cursor;
    private final DeletedRanges deletedRanges;
    @GuardedBy("lock")
    private final ReadGate gate;
    private final UnreadableEntries unreadable;
    @GuardedBy("lock")
    private final Intake intake;
    private final LostPositions lost;
    private final Lifecycle lifecycle;
    @GuardedBy("lock")
    private final Alarm alarm;
    @GuardedBy("lock")
    private final Pacer pacer;
    @GuardedBy("lock")
    private final StuckDetector stuckDetector;
    private final OverrideLog overrideLog;
    @GuardedBy("lock")
    private int consumersHash;
    @GuardedBy("lock")
    private final QuotaWatch quotaWatch = new QuotaWatch();
    @GuardedBy("lock")
    private long lookedMs = Long.MIN_VALUE;
    @GuardedBy("lock")
    private final Wait sinceMarkDelete = new Wait();
    @GuardedBy("lock")
    private final Wait sinceTrim = new Wait();
    @GuardedBy("lock")
    private final Wait sincePace = new Wait();
    @GuardedBy("lock")
    private final Wait sinceAwaited = new Wait();
    @GuardedBy("lock")
    private final Wait sinceUnattended = new Wait();
    /** Since claim and rules let the daemon be asked. */
    @GuardedBy("lock")
    private final Wait sinceAskable = new Wait();

    TrackerMonitor(TrackerParts parts, Intake intake, LostPositions lost, Lifecycle lifecycle) {
        this.lost = lost;
        lock = parts.lock;
        context = parts.context;
        clock = parts.clock;
        settings = parts.settings;
        seal = parts.seal;
        claim = parts.claim;
        view = parts.positions;
        positions = parts.positions;
        near = parts.near;
        sought = parts.sought;
        stream = parts.stream;
        deletes = parts.deletes;
        cursor = parts.cursor;
        deletedRanges = parts.deletedRanges;
        gate = parts.gate;
        unreadable = parts.unreadable;
        alarm = parts.alarm;
        pacer = parts.pacer;
        stuckDetector = parts.stuckDetector;
        overrideLog = parts.overrideLog;
        this.intake = intake;
        this.lifecycle = lifecycle;
    }

    /** Claims the subscription, if due. The daemon hears of nothing before that has succeeded. */
    public void claim() {
        Ownership next;
        synchronized (lock) {
            next = lifecycle.isEnding() ? null : claim.begin(clock.millis());
        }
        if (next != null) {
            context.putOwnership(next, this::onClaimed);
        }
    }

    private void onClaimed(TrackerContext.Written written) {
        boolean stale;
        synchronized (lock) {
            long nowMs = clock.millis();
            claim.written(written, nowMs);
            sinceAskable.begin(nowMs);
            stale = claim.isStale() && !lifecycle.isEnding();
        }
        if (written == TrackerContext.Written.DONE) {
            overrideLog.read();
            context.framesWaiting();
        } else if (stale) {
            context.reopenTopic();
        }
    }

    /** Checks the cursor: new acknowledgements, handed out or not, progress of mark-delete, resets. */
    public void look() {
        long nowMs = clock.millis();
        claim();
        long then = seal.generation();
        PositionBitmaps found = CursorWatch.findAcknowledged(context, view);
        int consumers = context.consumersHash();
        DeletedRanges.Look cancelled = deletedRanges.lookIfChanged(nowMs);
        boolean read;
        boolean signal;
        synchronized (lock) {
            if (lifecycle.isFinished()) {
                return;
            }
            intake.lookedAt(nowMs);
            cursor.report(found, then);
        }
        tellCancelled(cancelled, then);
        synchronized (lock) {
            if (lifecycle.isFinished()) {
                return;
            }
            cursor.onMarkDelete(context.markDelete());
            cursor.noticeLostReport();
            if (sinceMarkDelete.isOver(nowMs, LOOK_INTERVAL_MS)) {
                sinceMarkDelete.begin(nowMs);
                stream.tellMarkDelete();
            }
            followClock(nowMs);
            if (sinceTrim.isOver(nowMs, LOOK_INTERVAL_MS)) {
                sinceTrim.begin(nowMs);
                positions.trim();
            }
            read = decideAlone(nowMs);
            if (sincePace.isOver(nowMs, LOOK_INTERVAL_MS)) {
                sincePace.begin(nowMs);
                read |= followPace(nowMs);
                followPolicy(context.policy(), nowMs);
            }
            if (sinceAwaited.isOver(nowMs, ACK_UNDER_WAY_MS)) {
                sinceAwaited.begin(nowMs);
                read |= positions.takeBackAwaited();
            }
            if (consumers != consumersHash) {
                // Pulsar reads for a new consumer when it asks for messages; for a gone one only if it had any.
                consumersHash = consumers;
                stuckDetector.change(nowMs);
            } else {
                stuckDetector.remind(nowMs);
            }
            alarm.arm(nowMs);
            // Another subscription's DURABLE may have made room.
            read |= gate.mayResume();
            read |= gate.mayGoOn(nowMs) || gate.mayAsk(nowMs);
            signal = stream.noteAny();
        }
        if (read) {
            context.readMore();
        }
        deletes.go();
        overrideLog.look(nowMs);
        unreadable.look(nowMs, lost::readBefore);
        lifecycle.finishIfOver(nowMs);
        if (signal) {
            context.framesWaiting();
        }
    }

    /** Tells cancelled positions a part at a time: the dispatcher waits for the lock. */
    private void tellCancelled(DeletedRanges.Look look, long then) {
        if (look == null) {
            return;
        }
        for (PositionBitmaps part : look.parts()) {
            synchronized (lock) {
                if (lifecycle.isFinished() || !cursor.reportCancelled(part, then)) {
                    return;
                }
            }
        }
        deletedRanges.noteTold(look);
    }

    /**
     * Follows the clock: one that ran ahead made the daemon push entries not due for long. After a step back these hold no
     * credit needed by sooner ones.
     */
    @GuardedBy("lock")
    private void followClock(long nowMs) {
        if (nowMs < lookedMs && near.size() < settings.nearMaxEntries()) {
            near.freeCreditAfter(nowMs + settings.horizonMs() + SKEW_MS);
        }
        lookedMs = nowMs;
    }

    /**
     * Follows the stored pace: a former tracker of this cursor may have written it after this one read it. True if an entry
     * may leave now.
     */
    @GuardedBy("lock")
    private boolean followPace(long nowMs) {
        ReleasePace stored = context.pace();
        if (lifecycle.isEnding() || stored.equals(pacer.pace())) {
            return false;
        }
        pacer.set(stored);
        return alarm.isDue(nowMs);
    }

    /** Follows the policy. A message beyond the quota waits like the others: refusing it here would lose it. */
    @GuardedBy("lock")
    private void followPolicy(DelayPolicy policy, long nowMs) {
        intake.follow(policy);
        long waiting = view.delayed();
        switch (quotaWatch.look(policy, waiting, nowMs)) {
            case OVER -> LOG.warn("[{}] {} delayed messages wait, more than the quota of {}: consumers are behind, or producers"
                    + " delay more than was planned", context.name(), waiting, policy.quota());
            case BACK -> LOG.info("[{}] Delayed messages are within the quota again: {}", context.name(), waiting);
            case NONE -> { }
        }
    }

    /**
     * True if the wait for the daemon was in vain: then entries already read are gated here. It begins with the claim, which
     * may wait for a consumer. The wait for stored overrides has no end. A first owner hardly waits: no daemon knows an
     * acknowledgement that its cursor lacks.
     */
    @GuardedBy("lock")
    private boolean decideAlone(long nowMs) {
        if (positions.isDecided()) {
            return false;
        }
        if (!claim.isOwned() || !gate.isRuled(nowMs)) {
            sinceAskable.begin(nowMs);
        }
        if (!overrideLog.isReady() || !gate.isRuled(nowMs)) {
            return false;
        }
        if (!claim.isOwned() && !context.mayPutOwnership()) {
            sinceUnattended.begin(nowMs);
        }
        boolean first = claim.isFirst();
        long waitMs = first ? Math.min(settings.daemonWaitMs(), context.reachesDaemon() ? FIRST_WAIT_MS : 0)
                : settings.daemonWaitMs();
        if (!gate.isOlderThan(waitMs, nowMs) || !sinceUnattended.isOver(nowMs, waitMs)
                || first && !sinceAskable.isOver(nowMs, waitMs)) {
            return false;
        }
        if (first) {
            LOG.info("[{}] No daemon answers for the new subscription: its delayed messages are gated in the broker's memory",
                    context.name());
        } else {
            LOG.warn("[{}] The daemon has not answered for {} ms: delayed messages are gated in the broker's memory",
                    context.name(), waitMs);
        }
        intake.decide(new PositionSet());
        return true;
    }

    /** True if {@link #look} is needed more often than once a second. Takes no lock. */
    @SuppressWarnings("GuardedBy")
    public boolean isBusy() {
        return view.hasUnseen() || deletedRanges.hasChanged() || sought.size() > 0 || lifecycle.isEnding()
                || gate.isPaused() || gate.isAwaiting() || overrideLog.isBusy()
                || claim.isFirst() && !positions.isDecided();
    }
}
