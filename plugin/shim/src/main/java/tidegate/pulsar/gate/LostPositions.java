package tidegate.pulsar.gate;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.position.Overrides;
import tidegate.pulsar.position.PositionSet;
import tidegate.pulsar.position.SoughtPositions;
import tidegate.pulsar.position.TrackedPositions;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.PositionBitmaps;
import tidegate.pulsar.wire.Records;

/**
 * Makes the broker read positions without a holder again, and only those. Consumers keep their messages, and their
 * acknowledgements meanwhile count. A pass ahead or the dispatcher reads them.
 *
 * <p>Without the tracker's lock, because the questions to the cursor may take long; the methods take it themselves.
 */
final class LostPositions {
    private static final Logger LOG = LoggerFactory.getLogger(LostPositions.class);

    private final Object lock;
    private final TrackerContext context;
    @GuardedBy("lock")
    private final TrackedPositions positions;
    @GuardedBy("lock")
    private final SoughtPositions sought;
    @GuardedBy("lock")
    private final Overrides overrides;
    @GuardedBy("lock")
    private final Outbox outbox;
    @GuardedBy("lock")
    private final DaemonStream stream;
    @GuardedBy("lock")
    private final ReadAheadGate readAhead;

    LostPositions(TrackerParts parts) {
        lock = parts.lock;
        context = parts.context;
        positions = parts.positions;
        sought = parts.sought;
        overrides = parts.overrides;
        outbox = parts.outbox;
        stream = parts.stream;
        readAhead = parts.readAhead;
    }

    /** Has these new sought positions read again, except acknowledged ones. */
    void readAgain(PositionSet lost) {
        if (lost.isEmpty()) {
            return;
        }
        PositionSet deleted = new PositionSet();
        lost.forEach((ledgerId, entryId) -> {
            if (context.isDeleted(ledgerId, entryId)) {
                deleted.add(ledgerId, entryId);
            }
        });
        synchronized (lock) {
            positions.leaveSought(deleted);
            readAhead.want();
        }
        if (lost.size() > deleted.size()) {
            LOG.warn("[{}] The daemon no longer holds {} positions: they are read again", context.name(),
                    lost.size() - deleted.size());
        }
    }

    /**
     * Handles positions that the daemon has lost, except those that this broker has. Entries told and perhaps not durable may
     * have reached the daemon before the loss: it tells them once more.
     */
    void onUnheld(PositionBitmaps unheld) {
        PositionSet lost;
        synchronized (lock) {
            // CLOSE is the last frame of an ending stream; the next owner hears of the held positions, and reads these.
            lost = stream.isEnding() ? new PositionSet() : positions.leftToDaemon(unheld);
            Records known = new Records();
            outbox.forEachPendingAdd((ledgerId, entryId, deliverAtMs) -> {
                if (lost.contains(ledgerId, entryId)) {
                    known.add(ledgerId, entryId, deliverAtMs);
                }
            });
            for (int i = 0; i < known.size(); i++) {
                lost.remove(known.ledgerId(i), known.entryId(i));
                outbox.addFar(known.ledgerId(i), known.entryId(i),
                        overrides.timeOf(known.ledgerId(i), known.entryId(i), known.deliverAtMs(i)));
            }
            sought.seek(lost);
        }
        readAgain(lost);
        context.readMore();
    }

    /**
     * Makes the dispatcher read the last {@code max} positions before a chunk again: it redelivers the chunk, and has skipped
     * those before, because they wait.
     */
    void readBefore(Position chunk, int max) {
        synchronized (lock) {
            sought.seek(positions.waitingBefore(chunk, max));
        }
        context.readMore();
    }

    /** Handles forgotten positions: a consumer that has just come has rewound already, so they have no holder. */
    void onForgotten(PositionSet forgotten) {
        PositionSet lost = new PositionSet();
        forgotten.forEach((ledgerId, entryId) -> {
            if (!context.isDeleted(ledgerId, entryId) && !context.isOutstanding(ledgerId, entryId)) {
                lost.add(ledgerId, entryId);
            }
        });
        synchronized (lock) {
            positions.enterAll(lost);
            sought.seek(lost);
            readAhead.want();
        }
        context.readMore();
    }
}
