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
 * Makes the broker read again those positions that nobody holds any more, and only those: consumers keep their messages, and
 * their acknowledgements meanwhile count. A pass ahead reads them, or the dispatcher.
 *
 * <p>Asking the cursor about each position may take long, so it happens without the tracker's lock, which the methods take
 * themselves.
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

    /** These have just become sought: reads all but the acknowledged ones. */
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
     * The daemon has lost these; those that this broker has are not lost. Entries told and not known durable yet may have
     * reached the daemon before the loss: they are told once more.
     */
    void onUnheld(PositionBitmaps unheld) {
        PositionSet lost;
        synchronized (lock) {
            // CLOSE is the last frame of one that ends; the next owner hears of the positions that are held, and reads these.
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
     * The dispatcher redelivers a chunk, and has not read those before it, because it skips what waits: it reads the last
     * {@code max} of these again.
     */
    void readBefore(Position chunk, int max) {
        synchronized (lock) {
            sought.seek(positions.waitingBefore(chunk, max));
        }
        context.readMore();
    }

    /** A consumer that came just before these were forgotten has rewound already: nobody has what it skipped or read. */
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
