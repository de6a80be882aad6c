package tidegate.pulsar;

import java.time.Clock;
import java.util.concurrent.CompletableFuture;

/**
 * How a tracker ends. Its dispatcher is done with it first; it is finished once the cursor is closed, too, and has told its last
 * acknowledgements then; it is closed when the daemon has all of that on disk and in the index log, and says so with CLOSE.
 *
 * <p>It only goes forward. What changes it takes the tracker's lock; any thread may ask how far it is.
 */
final class Ending {
    private static final long CLOSE_POLL_MS = 2000;

    private enum Phase { LIVE, CLOSING, FINISHED }

    private final Object lock;
    private final TrackerHost host;
    private final Clock clock;
    private final Seal seal;
    private final PositionStates positions;
    private final Outbox outbox;
    private final DaemonStream stream;
    private final CursorWatch cursor;
    private final DeletedRanges deletedRanges;
    private final Alarm alarm;
    private volatile Phase phase = Phase.LIVE;
    private final Wait sinceClosing = new Wait();
    private final CompletableFuture<Void> closed = new CompletableFuture<>();

    Ending(TrackerParts parts) {
        lock = parts.lock;
        host = parts.host;
        clock = parts.clock;
        seal = parts.seal;
        positions = parts.positions;
        outbox = parts.outbox;
        stream = parts.stream;
        cursor = parts.cursor;
        deletedRanges = parts.deletedRanges;
        alarm = parts.alarm;
    }

    /** Whether it has begun. */
    boolean hasBegun() {
        return phase != Phase.LIVE;
    }

    /** Whether nothing is taken any more, and all was told. */
    boolean isFinished() {
        return phase == Phase.FINISHED;
    }

    /** The dispatcher is done with this tracker. Acknowledgements are still watched until the cursor is closed. */
    void close() {
        synchronized (lock) {
            if (hasBegun()) {
                return;
            }
            phase = Phase.CLOSING;
            sinceClosing.begin(clock.millis());
            alarm.stop();
        }
        host.cancelWake();
    }

    /** Finishes the tracker if nothing is to be seen at its cursor any more. */
    void finishIfOver(long nowMs) {
        boolean over;
        synchronized (lock) {
            // The cursor alone may tell: Pulsar can make a tracker for a dispatcher that has been closed, and never close it.
            over = !isFinished() && (host.isClosed() || hasBegun() && sinceClosing.isOver(nowMs, CLOSE_POLL_MS));
        }
        if (over) {
            finish();
        }
    }

    /** Tells the last acknowledgements and ends the stream. Idempotent. */
    void finish() {
        long then = seal.generation();
        Positions found = cursor.findAcknowledged();
        DeletedRanges.Look cancelled = deletedRanges.look();
        synchronized (lock) {
            if (isFinished()) {
                return;
            }
            cursor.report(found, then);
            cancelled.parts().forEach(part -> cursor.reportCancelled(part, then));
            stream.tellMarkDelete();
            phase = Phase.FINISHED;
            alarm.stop();
            positions.stop();
            if (!host.isDurable()) {
                outbox.clear();
            }
            stream.end();
        }
        host.cancelWake();
        host.framesWaiting();
    }

    /** Another tracker takes over what this one has left to tell. Lock held. */
    void giveUp() {
        phase = Phase.FINISHED;
        alarm.stop();
        stream.abandon();
    }

    /**
     * Whether a finished tracker has nothing left to send, and no stream: until that is closed, the daemon may still have last
     * words for the index log, which is written on the tracker's behalf.
     */
    boolean isClosed() {
        synchronized (lock) {
            return isFinished() && outbox.isEmpty() && stream.isUnopened();
        }
    }

    /** Something has become durable, or the stream is over; without the lock. */
    void noticeClosed() {
        if (isClosed()) {
            closed.complete(null);
        }
    }

    /** The tracker is forgotten, whatever is left to send. */
    void forget() {
        closed.complete(null);
    }

    /** Completes when a finished tracker is closed. */
    CompletableFuture<Void> whenClosed() {
        return closed;
    }

    /** @throws IllegalStateException if a tracker that ends still wakes its dispatcher, or one that lives does not */
    void check() {
        synchronized (lock) {
            if (hasBegun() != alarm.isStopped()) {
                throw new IllegalStateException("the tracker is " + phase + ", and its alarm is "
                        + (alarm.isStopped() ? "stopped" : "not stopped"));
            }
        }
    }
}
