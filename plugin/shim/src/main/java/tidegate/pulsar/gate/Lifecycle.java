package tidegate.pulsar.gate;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.time.Clock;
import java.util.concurrent.CompletableFuture;
import tidegate.pulsar.position.PositionView;
import tidegate.pulsar.position.TrackedPositions;
import tidegate.pulsar.timing.Wait;
import tidegate.pulsar.wire.PositionBitmaps;

/**
 * The life of a tracker, which ends in steps: its dispatcher lets go; it is finished once the cursor is closed, too, and the
 * outbox has its last acknowledgements; it is closed when the daemon has these on disk and in the index log, and answers
 * CLOSE. Changes take the tracker's lock; any thread may read the state.
 */
final class Lifecycle {
    private static final long CLOSE_POLL_MS = 2000;

    private enum Phase { LIVE, CLOSING, FINISHED }

    private final Object lock;
    private final TrackerContext context;
    private final Clock clock;
    private final Seal seal;
    private final PositionView view;
    @GuardedBy("lock")
    private final TrackedPositions positions;
    @GuardedBy("lock")
    private final Outbox outbox;
    @GuardedBy("lock")
    private final DaemonStream stream;
    @GuardedBy("lock")
    private final CursorWatch cursor;
    private final DeletedRanges deletedRanges;
    @GuardedBy("lock")
    private final Alarm alarm;
    private final OverrideLog overrideLog;
    private volatile Phase phase = Phase.LIVE;
    @GuardedBy("lock")
    private final Wait sinceClosing = new Wait();
    private final CompletableFuture<Void> closed = new CompletableFuture<>();

    Lifecycle(TrackerParts parts) {
        lock = parts.lock;
        context = parts.context;
        clock = parts.clock;
        seal = parts.seal;
        view = parts.positions;
        positions = parts.positions;
        outbox = parts.outbox;
        stream = parts.stream;
        cursor = parts.cursor;
        deletedRanges = parts.deletedRanges;
        alarm = parts.alarm;
        overrideLog = parts.overrideLog;
    }

    boolean isEnding() {
        return phase != Phase.LIVE;
    }

    /** True if the tracker takes nothing more, and has told everything. */
    boolean isFinished() {
        return phase == Phase.FINISHED;
    }

    /** Begins the end: the dispatcher has let go. The watch still sees acknowledgements until the cursor is closed. */
    void close() {
        synchronized (lock) {
            if (isEnding()) {
                return;
            }
            phase = Phase.CLOSING;
            sinceClosing.begin(clock.millis());
            alarm.stop();
        }
        overrideLog.end();
        context.cancelWake();
    }

    /** Finishes the tracker if its cursor has nothing more to show. */
    void finishIfOver(long nowMs) {
        boolean over;
        synchronized (lock) {
            // Pulsar can make a tracker for a closed dispatcher and never close it: then only the cursor shows the end.
            over = !isFinished() && (context.isClosed() || isEnding() && sinceClosing.isOver(nowMs, CLOSE_POLL_MS));
        }
        if (over) {
            finish();
        }
    }

    /** Tells the last acknowledgements and ends the stream. Idempotent. */
    void finish() {
        long then = seal.generation();
        PositionBitmaps found = CursorWatch.findAcknowledged(context, view);
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
            if (!context.isDurable()) {
                outbox.clear();
            }
            stream.end();
        }
        overrideLog.end();
        context.cancelWake();
        context.framesWaiting();
    }

    void giveUp() {
        synchronized (lock) {
            phase = Phase.FINISHED;
            alarm.stop();
            overrideLog.writeNoMore();
            stream.abandon();
        }
    }

    /**
     * True if a finished tracker has nothing left to send, and no stream. On a stream, the daemon may still have the tracker
     * write last words to the index log.
     */
    boolean isClosed() {
        synchronized (lock) {
            return isFinished() && outbox.isEmpty() && stream.isUnopened();
        }
    }

    /** Checks for the end after a change has become durable, or after the stream's end. Called without the lock. */
    void noticeClosed() {
        if (isClosed()) {
            closed.complete(null);
        }
    }

    /** Forgets the tracker, whatever is left to send. */
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
            if (isEnding() != alarm.isStopped()) {
                throw new IllegalStateException("the tracker is " + phase + ", and its alarm is "
                        + (alarm.isStopped() ? "stopped" : "not stopped"));
            }
        }
    }
}
