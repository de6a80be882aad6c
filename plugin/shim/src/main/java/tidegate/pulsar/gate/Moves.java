package tidegate.pulsar.gate;

import java.time.Clock;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.position.NearTier;
import tidegate.pulsar.position.Overrides;
import tidegate.pulsar.position.PositionSet;
import tidegate.pulsar.position.TrackedPositions;
import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.PositionBitmaps;
import tidegate.pulsar.wire.Records;
import tidegate.pulsar.wire.Standing;

/**
 * Moves messages: gives them other due times, from the storing of these until the messages are acknowledged.
 *
 * <p>This broker alone decides. Under the tracker's lock the dispatcher has a position, or it moves from then on: nobody
 * reads or hands out a moving one until {@link OverrideLog} has stored its {@link Overrides override}, or surely has not.
 * Guarded by the tracker's lock.
 */
final class Moves {
    private static final Logger LOG = LoggerFactory.getLogger(Moves.class);

    /** A decision: the answer once stored, and the records to store. */
    record Decision(Frame.Rescheduled answer, Records records) {}

    private final TrackerContext context;
    private final Clock clock;
    private final TrackerSettings settings;
    private final TrackedPositions positions;
    private final Overrides overrides;
    private final OverrideLog log;
    private final NearTier near;
    private final Outbox outbox;
    private final DaemonStream stream;
    private final CursorWatch cursor;
    private final Alarm alarm;
    private final Inquiry inquiry;
    private boolean saidThatItIsOld;

    Moves(TrackerParts parts, Inquiry inquiry) {
        context = parts.context;
        clock = parts.clock;
        settings = parts.settings;
        positions = parts.positions;
        overrides = parts.overrides;
        log = parts.overrideLog;
        near = parts.near;
        outbox = parts.outbox;
        stream = parts.stream;
        cursor = parts.cursor;
        alarm = parts.alarm;
        this.inquiry = inquiry;
    }

    // ---- deciding -------------------------------------------------------------------------------------------------

    static PositionBitmaps asked(Frame.Reschedule reschedule) {
        PositionBitmaps asked = new PositionBitmaps();
        Records records = reschedule.records();
        for (int i = 0; i < records.size(); i++) {
            asked.add(records.ledgerId(i), records.entryId(i));
        }
        return asked;
    }

    /** Decides. Unless the frame only asks, its waiting messages move from now on; the caller stores the records. */
    Decision decide(Frame.Reschedule reschedule, Inquiry.Look look) {
        cursor.noticeReset();
        if (!inquiry.holds(look) || !reschedule.ask() && !log.takes()) {
            return new Decision(Frame.Rescheduled.notYet(), new Records(0));
        }
        Inquiry.Standing standing = inquiry.sort(asked(reschedule), look);
        Records changes = new Records();
        Standing answer = Standing.SETTLED;
        if (!reschedule.ask()) {
            addChanges(reschedule.records(), standing.waiting(), changes);
            if (overrides.isFullFor(changes.size())) {
                changes.clear();
                answer = Standing.NO_ROOM;
            }
            positions.move(changes);
        }
        return new Decision(
                new Frame.Rescheduled(answer, standing.waiting(), standing.tooLate(), standing.acknowledged()), changes);
    }

    /** Adds the changes, without messages already at their new times. The last record of a position counts. */
    private void addChanges(Records asked, PositionBitmaps waiting, Records changes) {
        PositionSet set = new PositionSet();
        set.addAll(waiting);
        PositionSet changing = new PositionSet();
        for (int i = 0; i < asked.size(); i++) {
            long ledgerId = asked.ledgerId(i);
            long entryId = asked.entryId(i);
            long timeMs = asked.deliverAtMs(i);
            if (set.contains(ledgerId, entryId)
                    && (changing.contains(ledgerId, entryId) || !overrides.isAt(ledgerId, entryId, timeMs))) {
                changing.add(ledgerId, entryId);
                changes.add(ledgerId, entryId, timeMs);
            }
        }
    }

    /** The answer, once the fate of the records is known. */
    static Frame.Rescheduled answer(Frame.Rescheduled decided, OverrideLog.Stored stored) {
        return switch (stored) {
            case YES -> decided;
            case NO -> Frame.Rescheduled.notYet();
            case PERHAPS ->
                    new Frame.Rescheduled(Standing.UNSTORED, decided.moved(), decided.tooLate(), decided.acknowledged());
        };
    }

    // ---- acting ---------------------------------------------------------------------------------------------------

    /** Notes that the records are stored: the messages now leave at the new times. */
    void stored(Records records) {
        long nowMs = clock.millis();
        for (int i = 0; i < records.size(); i++) {
            long ledgerId = records.ledgerId(i);
            long entryId = records.entryId(i);
            long deliverAtMs = records.deliverAtMs(i);
            if (positions.settleMove(ledgerId, entryId, deliverAtMs)) {
                boolean gateHere = !stream.isOpen() || !stream.takesMoves()
                        || deliverAtMs <= nowMs + settings.horizonMs() && near.size() < settings.nearMaxEntries();
                if (gateHere) {
                    positions.gate(ledgerId, entryId, deliverAtMs);
                }
                tell(ledgerId, entryId, deliverAtMs);
            }
        }
        alarm.arm(nowMs);
    }

    /** Tells a new time on an open stream; a later stream tells all of them. */
    private void tell(long ledgerId, long entryId, long deliverAtMs) {
        if (stream.tellsMoves()) {
            outbox.move(positions.isHere(ledgerId, entryId), ledgerId, entryId, deliverAtMs);
        }
    }

    /**
     * Tells all new times after the daemon's answer to OPEN: it may know none. A daemon too old for MOVE hands out none of
     * them.
     */
    void tellAll() {
        if (overrides.size() > 0 && !stream.takesMoves() && !saidThatItIsOld) {
            saidThatItIsOld = true;
            LOG.warn("[{}] The daemon is too old to know of {} moved messages, which this broker gates in its memory: upgrade it",
                    context.name(), overrides.size());
        }
        overrides.forEach((ledgerId, entryId, deliverAtMs) -> {
            if (stream.takesMoves()) {
                tell(ledgerId, entryId, deliverAtMs);
            } else {
                positions.gateAgain(ledgerId, entryId, deliverAtMs);
            }
        });
    }

    /** Removes the positions that the daemon holds after MOVE, or that this broker gates for it. */
    void removeOverridden(PositionSet notHeld) {
        if (overrides.size() > 0) {
            overrides.forEach((ledgerId, entryId, deliverAtMs) -> notHeld.remove(ledgerId, entryId));
        }
    }

    /** Takes an entry pushed by the daemon, which may not know of a later time. */
    void push(long ledgerId, long entryId, long deliverAtMs) {
        long timeMs = overrides.timeOf(ledgerId, entryId, deliverAtMs);
        if (timeMs > deliverAtMs && stream.takesMoves() && !positions.isHere(ledgerId, entryId)) {
            near.freeCredit();
            tell(ledgerId, entryId, timeMs);
        } else {
            positions.push(ledgerId, entryId, timeMs);
        }
    }
}
