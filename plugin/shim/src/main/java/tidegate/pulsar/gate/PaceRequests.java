package tidegate.pulsar.gate;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.time.Clock;
import java.util.concurrent.CompletableFuture;
import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.ReleasePace;

/**
 * The daemon's requests for another pace of release, and reports of the pace in both directions.
 *
 * <p>Rule: a pace is in force only once stored, so the next owner keeps it. The link's thread calls it without any lock; it
 * takes the tracker's lock.
 */
public final class PaceRequests {
    private static final String LETS_GO = "the broker lets the topic go, or opens it anew";

    private final Object lock;
    private final TrackerContext context;
    private final Clock clock;
    @GuardedBy("lock")
    private final DaemonStream stream;
    @GuardedBy("lock")
    private final Pacer pacer;
    @GuardedBy("lock")
    private final PaceUpdates updates;
    @GuardedBy("lock")
    private final Alarm alarm;
    private final Lifecycle lifecycle;
    /** Completes when the last requested pace is stored, or has failed. */
    @GuardedBy("lock")
    private CompletableFuture<?> lastPace = CompletableFuture.completedFuture(null);

    PaceRequests(TrackerParts parts, Lifecycle lifecycle) {
        lock = parts.lock;
        context = parts.context;
        clock = parts.clock;
        stream = parts.stream;
        pacer = parts.pacer;
        updates = parts.paceUpdates;
        alarm = parts.alarm;
        this.lifecycle = lifecycle;
    }

    /** The pace in force, for a stream that has just opened; null for none. */
    public Frame.Paced tell() {
        synchronized (lock) {
            return updates.isDue() ? updates.take() : null;
        }
    }

    public void sent(Frame.Paced paced) {
        boolean signal;
        synchronized (lock) {
            updates.sent(paced.pace());
            signal = stream.noteAny();
        }
        if (signal) {
            context.framesWaiting();
        }
    }

    /**
     * Sets another pace, or tells the one in force. Stores a pace first; the answer comes on any thread. Paces are stored in
     * call order, so the last one holds.
     */
    public CompletableFuture<Frame.Paced> ask(Frame.Pace asked) {
        CompletableFuture<Frame.Paced> answer = new CompletableFuture<>();
        CompletableFuture<?> former;
        synchronized (lock) {
            if (!stream.takesMore() || isLettingGo()) {
                return CompletableFuture.completedFuture(paced(LETS_GO));
            }
            if (asked.ask()) {
                return CompletableFuture.completedFuture(paced(""));
            }
            former = lastPace;
            lastPace = answer;
        }
        former.whenComplete((nothing, error) -> store(asked.pace(), answer));
        return answer;
    }

    private void store(ReleasePace pace, CompletableFuture<Frame.Paced> answer) {
        Frame.Paced now = null;
        synchronized (lock) {
            if (!stream.takesMore() || isLettingGo()) {
                now = paced(LETS_GO);
            } else if (pace.equals(pacer.pace())) {
                now = paced("");
            }
        }
        if (now == null) {
            context.putPace(pace, written -> answer.complete(onWritten(pace, written)));
        } else {
            answer.complete(now);
        }
    }

    private Frame.Paced onWritten(ReleasePace pace, TrackerContext.Written written) {
        if (written != TrackerContext.Written.DONE) {
            synchronized (lock) {
                return paced(switch (written) {
                    case UNATTENDED -> "Pulsar has not stored the subscription yet, and stores it once a consumer is connected";
                    case CONFLICT -> "the subscription's metadata has changed meanwhile";
                    default -> "Pulsar could not store it";
                });
            }
        }
        Frame.Paced paced;
        boolean isDue;
        boolean signal;
        synchronized (lock) {
            if (isLettingGo()) {
                return paced(LETS_GO);
            }
            // The stored pace, not the requested one: another may have been written since.
            pacer.set(context.pace());
            isDue = alarm.isDue(clock.millis());
            paced = paced(pacer.pace().equals(pace) ? "" : "somebody has set another pace meanwhile");
            // The asking stream may be gone, and its successor knows the former pace.
            signal = stream.noteAny();
        }
        if (isDue) {
            context.readMore();
        }
        if (signal) {
            context.framesWaiting();
        }
        return paced;
    }

    /** Notes that the daemon has more due entries than credit: a spread counts them, too. */
    public void behind(Frame.Behind told) {
        boolean isDue;
        synchronized (lock) {
            pacer.tellBehind(told.entries());
            isDue = alarm.isDue(clock.millis());
        }
        if (isDue) {
            context.readMore();
        }
    }

    /** True if the next owner may be here already, and have read the record before a write here. */
    private boolean isLettingGo() {
        return lifecycle.isEnding() || context.isClosed();
    }

    @GuardedBy("lock")
    private Frame.Paced paced(String why) {
        return updates.frame(why);
    }
}
