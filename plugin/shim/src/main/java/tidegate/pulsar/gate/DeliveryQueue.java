package tidegate.pulsar.gate;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.time.Clock;
import java.util.concurrent.CompletableFuture;
import tidegate.pulsar.position.NearTier;
import tidegate.pulsar.position.PositionSet;
import tidegate.pulsar.position.PositionView;
import tidegate.pulsar.position.SoughtPositions;
import tidegate.pulsar.position.TrackedPositions;
import tidegate.pulsar.wire.PositionBitmaps;

/**
 * A subscription's delayed messages as their dispatcher's queue: takes read messages, hands out due ones, and says whether
 * to read.
 *
 * <p>Needs the dispatcher's lock, except {@link #contains}, {@link #onWake}, {@link #clear} and the statistics. Takes the
 * tracker's lock for a moment each time, except {@link #contains} and {@link #delayedMessages}.
 */
public final class DeliveryQueue {
    private final Object lock;
    private final TrackerContext context;
    private final Clock clock;
    private final PositionView view;
    /** Of the view: BookKeeper's threads ask it for each position. */
    private final PositionSet contained;
    @GuardedBy("lock")
    private final TrackedPositions positions;
    @GuardedBy("lock")
    private final SoughtPositions sought;
    @GuardedBy("lock")
    private final NearTier near;
    @GuardedBy("lock")
    private final Lateness lateness;
    @GuardedBy("lock")
    private final Pacer pacer;
    @GuardedBy("lock")
    private final DaemonStream stream;
    @GuardedBy("lock")
    private final CursorWatch cursor;
    @GuardedBy("lock")
    private final ReadAheadGate readAhead;
    @GuardedBy("lock")
    private final ReadGate gate;
    @GuardedBy("lock")
    private final Alarm alarm;
    @GuardedBy("lock")
    private final StuckDetector stuckDetector;
    @GuardedBy("lock")
    private final Intake intake;
    private final LostPositions lost;

    DeliveryQueue(TrackerParts parts, Intake intake, LostPositions lost) {
        lock = parts.lock;
        context = parts.context;
        clock = parts.clock;
        view = parts.positions;
        contained = view.containedPositions();
        positions = parts.positions;
        sought = parts.sought;
        near = parts.near;
        lateness = parts.lateness;
        pacer = parts.pacer;
        stream = parts.stream;
        cursor = parts.cursor;
        readAhead = parts.readAhead;
        gate = parts.gate;
        alarm = parts.alarm;
        stuckDetector = parts.stuckDetector;
        this.intake = intake;
        this.lost = lost;
    }

    // ---- read messages --------------------------------------------------------------------------------------------

    /**
     * Takes a message read by the dispatcher. {@code deliverAtMs} is negative without a delivery time. Pulsar may replay a
     * position twice, see {@link Intake}; of messages without a delivery time only those refused by a consumer are checked.
     *
     * @return false if the message must be delivered now
     */
    public boolean addMessage(long ledgerId, long entryId, long deliverAtMs) {
        if (deliverAtMs < 0) {
            return context.redeliveryCount(ledgerId, entryId) > 0
                    && (context.isOutstanding(ledgerId, entryId) || context.isDeleted(ledgerId, entryId));
        }
        boolean tracked;
        boolean signal;
        synchronized (lock) {
            tracked = intake.take(ledgerId, entryId, deliverAtMs);
            signal = stream.noteAdded();
        }
        if (signal) {
            context.framesWaiting();
        }
        return tracked;
    }

    public boolean contains(long ledgerId, long entryId) {
        return contained.contains(ledgerId, entryId);
    }

    public boolean isNear(long ledgerId, long entryId) {
        return view.isNear(ledgerId, entryId);
    }

    // ---- due messages ---------------------------------------------------------------------------------------------

    public boolean hasDue() {
        synchronized (lock) {
            long nowMs = clock.millis();
            intake.lookedAt(nowMs);
            stuckDetector.ask();
            return alarm.isDue(nowMs) || gate.mayAsk(nowMs);
        }
    }

    /** Handles the wake-up requested with {@link TrackerContext#wakeAt}. */
    public void onWake() {
        boolean wakes;
        synchronized (lock) {
            wakes = alarm.ring(clock.millis());
        }
        if (wakes) {
            context.readMore();
        }
    }

    /** The time in ms at which the next entry may leave, or {@link NearTier#NONE}. */
    public long nextDueMs() {
        synchronized (lock) {
            return pacer.headMs(clock.millis());
        }
    }

    /**
     * Hands out at most {@code max} due entries that may leave, in (deliver_at, position) order; then sought positions,
     * which {@link #addMessage} takes back if they are not due.
     */
    public void popDue(int max, PositionBitmaps.Visitor visitor) {
        boolean signal;
        synchronized (lock) {
            long nowMs = clock.millis();
            int popped = 0;
            for (; popped < max && pacer.take(nowMs); popped++) {
                lateness.record(nowMs, near.headMs(), pacer.isOn());
                positions.popHead(visitor);
            }
            boolean asks = popped < max && gate.mayAsk(nowMs);
            if (asks) {
                sought.askFor(max - popped, visitor);
            }
            if (asks || popped > 0) {
                stuckDetector.move(nowMs);
            }
            alarm.arm(nowMs);
            signal = stream.noteAny();
        }
        context.passReplayed(view.handedOutPositions());
        if (signal) {
            context.framesWaiting();
        }
    }

    /**
     * Notices resets and a replacement of all consumers; true if reading must pause. Called before every read, which
     * otherwise begins behind the held positions. Also omits a read that could only fail.
     */
    public boolean shouldPause() {
        SeenConsumers.Change consumers = context.lookAtConsumers();
        boolean atEnd = context.isAtTerminatedEnd(consumers == SeenConsumers.Change.REPLACED);
        boolean pause;
        synchronized (lock) {
            cursor.noticeReset();
            long nowMs = clock.millis();
            if (consumers == SeenConsumers.Change.SOME_GONE) {
                positions.forgetGiven();
            } else if (consumers == SeenConsumers.Change.REPLACED) {
                // Pulsar has forgotten its redelivery list and rewound: entries handed out are due again, and still
                // contained.
                positions.takeAllBack();
                readAhead.want();
            }
            boolean hasDue = pacer.headMs(nowMs) <= nowMs;
            pause = gate.awaits(hasDue, nowMs) || gate.pauses(hasDue)
                    || atEnd && !hasDue && !gate.mayAsk(nowMs) && context.redeliveries() == 0;
            if (!pause) {
                stuckDetector.begin(nowMs);
            }
            alarm.arm(nowMs);
        }
        if (!pause) {
            context.pass(contained);
        }
        return pause;
    }

    // ---- the subscription's fate ----------------------------------------------------------------------------------

    /** Delayed messages not handed out, Pulsar's msgDelayed. */
    public long delayedMessages() {
        return view.delayed();
    }

    /**
     * Forgets a cleared backlog, or a subscription being deleted. With consumers it is the former, and mark-delete will show
     * its extent. Without, the tracker forgets everything, because the next consumer rewinds.
     */
    public CompletableFuture<Void> clear() {
        if (context.hasConsumers()) {
            synchronized (lock) {
                cursor.onMarkDelete(context.markDelete());
                stream.tellMarkDelete();
                stream.note();
            }
            context.framesWaiting();
            return CompletableFuture.completedFuture(null);
        }
        CompletableFuture<Void> former;
        CompletableFuture<Void> cleared;
        PositionSet forgotten;
        synchronized (lock) {
            forgotten = positions.allContained();
            positions.clear();
            readAhead.renew();
            former = stream.takeClearing();
            cleared = stream.clear();
            gate.account();
        }
        former.complete(null);
        context.framesWaiting();
        if (context.hasConsumers()) {
            lost.onForgotten(forgotten);
        }
        return cleared;
    }
}
