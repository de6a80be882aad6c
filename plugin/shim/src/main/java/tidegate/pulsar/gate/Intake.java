package tidegate.pulsar.gate;

import java.time.Clock;
import tidegate.pulsar.position.MovedTimes;
import tidegate.pulsar.position.NearTier;
import tidegate.pulsar.position.Overrides;
import tidegate.pulsar.position.PositionSet;
import tidegate.pulsar.position.SoughtPositions;
import tidegate.pulsar.position.TrackedPositions;
import tidegate.pulsar.wire.Records;

/**
 * Decides about a read entry: one read by the dispatcher, by a pass ahead, or before the daemon's answer.
 *
 * <p>A due entry is handed out, unless it must wait for the {@link Pacer}. The tracker takes any other: the daemon gets it,
 * and the broker gates it here if it is due soon or the daemon cannot. Never early: an entry is due when {@code clock >=
 * deliver_at}, whatever the tick; an override's time replaces the entry's own. Guarded by the tracker's lock.
 */
final class Intake {
    private static final long MAX_LOOK_AGE_MS = 2000;

    private final TrackerContext context;
    private final Clock clock;
    private final TrackerSettings settings;
    private final TrackedPositions positions;
    private final SoughtPositions sought;
    private final NearTier near;
    private final Overrides overrides;
    private final Outbox outbox;
    private final DaemonStream stream;
    private final CursorWatch cursor;
    private final ReadAheadGate readAhead;
    private final Pacer pacer;
    private final Alarm alarm;
    private final RoundedTimes rounded;
    /** The clock's last reading; never later than the clock, unless its user set it back. */
    private long lookedMs;

    Intake(TrackerParts parts) {
        context = parts.context;
        clock = parts.clock;
        settings = parts.settings;
        positions = parts.positions;
        sought = parts.sought;
        near = parts.near;
        overrides = parts.overrides;
        outbox = parts.outbox;
        stream = parts.stream;
        cursor = parts.cursor;
        readAhead = parts.readAhead;
        pacer = parts.pacer;
        alarm = parts.alarm;
        rounded = new RoundedTimes(parts.context.policy());
    }

    DelayPolicy policy() {
        return rounded.policy();
    }

    void follow(DelayPolicy next) {
        rounded.follow(next);
    }

    /**
     * The time at which an entry may leave: its override's, or its own, rounded up to a level. An entry read again is
     * rounded anew, by its remaining delay: never before its own time.
     */
    private long timeOf(long ledgerId, long entryId, long ownMs) {
        long movedMs = overrides.get(ledgerId, entryId);
        if (movedMs != MovedTimes.NONE) {
            return movedMs;
        }
        return rounded.policy().hasLevels() ? rounded.of(ownMs, clock.millis()) : ownMs;
    }

    void lookedAt(long nowMs) {
        lookedMs = nowMs;
    }

    // ---- entries read by the dispatcher -----------------------------------------------------------------------------

    /** Takes an entry read by the dispatcher; false if it must be delivered now. */
    boolean take(long ledgerId, long entryId, long ownMs) {
        if (!positions.isDecided() && positions.enter(ledgerId, entryId)) {
            // The overrides may still be unknown.
            positions.postpone(ledgerId, entryId, ownMs);
            return true;
        }
        if (!positions.enter(ledgerId, entryId)) {
            return takeAgain(ledgerId, entryId, ownMs);
        }
        boolean tracked = takeNew(ledgerId, entryId, timeOf(ledgerId, entryId, ownMs));
        readAhead.onReadInVain();
        return tracked;
    }

    private boolean takeNew(long ledgerId, long entryId, long deliverAtMs) {
        long nowMs = nowFor(deliverAtMs);
        boolean wasReported = positions.isReported(ledgerId, entryId);
        boolean isDoubtful = positions.isDoubtful(ledgerId, entryId);
        boolean mayBeDeleted = wasReported || isDoubtful || deliverAtMs <= nowMs || cursor.hasPassed(ledgerId, entryId);
        if (mayBeDeleted && context.isDeleted(ledgerId, entryId)) {
            // The second of two overlapping replay reads, see takeAgain: read before it was skipped or acknowledged.
            positions.leave(ledgerId, entryId);
            return true;
        }
        if (wasReported) {
            // A reset of the cursor: otherwise the dispatcher would not have read this entry.
            cursor.onReset();
        }
        noticeReturn(ledgerId, entryId);
        if (deliverAtMs <= nowMs && !pacer.isOn()) {
            positions.give(ledgerId, entryId, 0);
            return false;
        }
        track(ledgerId, entryId, deliverAtMs, nowMs);
        return true;
    }

    /** Takes a contained position read in spite of that: a redelivery, or a read begun earlier. */
    private boolean takeAgain(long ledgerId, long entryId, long ownMs) {
        if (!positions.isDecided() || positions.isSettling(ledgerId, entryId) || overrides.isMoving(ledgerId, entryId)) {
            return true;
        }
        if (sought.find(ledgerId, entryId)) {
            // A sought position counts as new, unless it came back meanwhile.
            return takeNew(ledgerId, entryId, timeOf(ledgerId, entryId, ownMs));
        }
        long deliverAtMs = overrides.timeOf(ledgerId, entryId, ownMs);
        long nowMs = clock.millis();
        if (deliverAtMs <= nowMs) {
            // Pulsar may replay a position twice, when its dispatcher takes the end of one batch for another's. A true
            // redelivery leaves its consumer first.
            if (positions.isHandedOut(ledgerId, entryId)
                    && (context.isOutstanding(ledgerId, entryId) || context.isDeleted(ledgerId, entryId))) {
                return true;
            }
            if (isHeldBack(ledgerId, entryId)) {
                positions.takeBack(ledgerId, entryId, deliverAtMs);
                return true;
            }
            if (!positions.isGiven(ledgerId, entryId)) {
                positions.give(ledgerId, entryId, 0);
                return false;
            }
            int redeliveryCount = context.redeliveryCount(ledgerId, entryId);
            if (redeliveryCount == positions.redeliveryCount(ledgerId, entryId)) {
                // No consumer has given it back, so its acknowledgement is under way: Pulsar takes it from the consumer,
                // then tells the cursor. If not, the message only comes a little later.
                positions.await(ledgerId, entryId);
                return true;
            }
            positions.give(ledgerId, entryId, redeliveryCount);
            return false;
        }
        // The clock may have gone back since the hand-out.
        if (positions.takeBack(ledgerId, entryId, deliverAtMs)) {
            alarm.arm(nowMs);
        }
        return true;
    }

    /**
     * True if a contained, due entry must wait: not handed out yet, or nothing leaves at present and no consumer has had it.
     */
    private boolean isHeldBack(long ledgerId, long entryId) {
        if (!positions.isHandedOut(ledgerId, entryId)) {
            return pacer.isOn();
        }
        return pacer.isPaused() && !positions.isGiven(ledgerId, entryId) && context.redeliveryCount(ledgerId, entryId) <= 0;
    }

    /**
     * The time to judge an entry by: the last look's, at most a second old, because reading the clock is a good part of an
     * add's cost. With an older one, the daemon would push the entry.
     */
    private long nowFor(long deliverAtMs) {
        if (deliverAtMs - lookedMs <= settings.horizonMs() + MAX_LOOK_AGE_MS) {
            lookedMs = clock.millis();
        }
        return lookedMs;
    }

    // ---- entries read by a pass ahead -------------------------------------------------------------------------------

    /**
     * Takes entries as if read by the dispatcher, and returns their number. Skips entries that are acknowledged, doubtful,
     * or contained without being sought.
     */
    int takeAhead(Records records, int from, int to, long nowMs) {
        lookedMs = nowMs;
        int taken = 0;
        for (int i = from; i < to; i++) {
            long ledgerId = records.ledgerId(i);
            long entryId = records.entryId(i);
            // In this order: an entry handed out stays contained until the watch has seen it deleted.
            boolean unknown = sought.contains(ledgerId, entryId)
                    || !positions.contains(ledgerId, entryId) && !context.isDeleted(ledgerId, entryId);
            if (unknown && !positions.isReported(ledgerId, entryId) && !positions.isDoubtful(ledgerId, entryId)) {
                sought.find(ledgerId, entryId);
                positions.enter(ledgerId, entryId);
                noticeReturn(ledgerId, entryId);
                track(ledgerId, entryId, timeOf(ledgerId, entryId, records.deliverAtMs(i)), nowMs);
                taken++;
            }
        }
        return taken;
    }

    // ---- entries read before the daemon's answer --------------------------------------------------------------------

    void decide(PositionSet held) {
        // Known since the last look, perhaps.
        follow(context.policy());
        Records entries = positions.decide();
        long nowMs = clock.millis();
        for (int i = 0; i < entries.size(); i++) {
            long ledgerId = entries.ledgerId(i);
            long entryId = entries.entryId(i);
            // The mark-delete position may have passed it meanwhile.
            if (positions.contains(ledgerId, entryId) && !held.contains(ledgerId, entryId)
                    && !positions.isSettling(ledgerId, entryId)) {
                boolean isPassed = cursor.hasPassed(ledgerId, entryId) && context.isDeleted(ledgerId, entryId);
                if (isPassed || positions.isReported(ledgerId, entryId)) {
                    positions.leave(ledgerId, entryId);
                } else {
                    noticeReturn(ledgerId, entryId);
                    track(ledgerId, entryId, timeOf(ledgerId, entryId, entries.deliverAtMs(i)), nowMs);
                }
            }
        }
    }

    /**
     * Notes a message brought back by a reset, if not acknowledged any more: its override must not hold at the next owner.
     */
    private void noticeReturn(long ledgerId, long entryId) {
        if (overrides.isLeaving(ledgerId, entryId) && !context.isDeleted(ledgerId, entryId)) {
            overrides.comeBack(ledgerId, entryId);
        }
    }

    void gateUndurable() {
        outbox.gateHere((ledgerId, entryId, deliverAtMs) ->
                positions.gateAgain(ledgerId, entryId, overrides.timeOf(ledgerId, entryId, deliverAtMs)));
        alarm.arm(clock.millis());
    }

    private void track(long ledgerId, long entryId, long deliverAtMs, long nowMs) {
        boolean undone = overrides.takeUndone(ledgerId, entryId);
        // A daemon without MOVE cannot learn to hand out an undone one after all.
        boolean gateHere = !stream.isOpen() || undone && !stream.takesMoves()
                || deliverAtMs <= nowMs + settings.horizonMs() && near.size() < settings.nearMaxEntries();
        if (gateHere) {
            positions.gate(ledgerId, entryId, deliverAtMs);
            outbox.addNear(ledgerId, entryId, deliverAtMs);
            alarm.armFor(deliverAtMs, nowMs);
        } else if (undone && stream.tellsMoves()) {
            outbox.move(false, ledgerId, entryId, deliverAtMs);
        } else {
            outbox.addFar(ledgerId, entryId, deliverAtMs);
        }
    }
}
