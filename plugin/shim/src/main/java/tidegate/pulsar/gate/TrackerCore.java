package tidegate.pulsar.gate;

import java.time.Clock;
import java.util.concurrent.CompletableFuture;
import java.util.random.RandomGenerator;
import tidegate.pulsar.position.TrackedPositions;
import tidegate.pulsar.wire.ReleasePace;

/**
 * The delayed messages of one subscription, for the broker: a state machine without Pulsar types and without I/O.
 *
 * <p>Four threads call it, each at its own side: the dispatcher ({@link DeliveryQueue}), the link to the daemon ({@link
 * StreamHandler}, {@link PaceRequests}), the reader ahead ({@link Backlog}) and the watcher of the cursor ({@link
 * TrackerMonitor}). The {@link TrackerParts} have their shared state, under one lock. The end of a tracker and its
 * replacement by another are here and in {@link Lifecycle}.
 *
 * <p>Rules for all: skip only positions that the index surely holds; never early ({@code clock >= deliver_at}, whatever the
 * tick). A known acknowledgement is true of one {@link Seal} of the cursor: the daemon gets it under that seal, and it is
 * checked again when that seal is gone.
 */
public final class TrackerCore {
    public record Stats(long tracked, long near, long handedOut, long settling, long undecided, long pending, long readAhead,
                 boolean open, boolean paused, long memoryBytes, ReleasePace pace, long heldBack, Lateness.Figures lateness,
                 long overdueMs, long quota, boolean overridesUnread) {}

    private final TrackerParts parts;
    private final Intake intake;
    private final Lifecycle lifecycle;
    private final DeliveryQueue queue;
    private final StreamHandler handler;
    private final PaceRequests paces;
    private final Backlog backlog;
    private final TrackerMonitor monitor;

    /** {@code random} gives seals and claims. */
    public TrackerCore(TrackerContext context, Clock clock, TrackerSettings settings, RandomGenerator random,
            PendingBudget budget) {
        parts = new TrackerParts(context, clock, settings, random, budget);
        lifecycle = new Lifecycle(parts);
        intake = new Intake(parts);
        LostPositions lost = new LostPositions(parts);
        queue = new DeliveryQueue(parts, intake, lost);
        handler = new StreamHandler(parts, intake, lost, lifecycle);
        paces = new PaceRequests(parts, lifecycle);
        backlog = new Backlog(parts, intake, lifecycle);
        monitor = new TrackerMonitor(parts, intake, lost, lifecycle);
    }

    public String name() {
        return parts.context.name();
    }

    public SubscriptionKey key() {
        return new SubscriptionKey(parts.settings.topic(), parts.settings.subscription());
    }

    // ---- its sides ------------------------------------------------------------------------------------------------

    public DeliveryQueue queue() {
        return queue;
    }

    public StreamHandler handler() {
        return handler;
    }

    public PaceRequests paces() {
        return paces;
    }

    public Backlog backlog() {
        return backlog;
    }

    public TrackerMonitor monitor() {
        return monitor;
    }

    // ---- succession -------------------------------------------------------------------------------------------------

    /** Speaks for the subscription as its last tracker did, without a claim of its own. */
    public void speakForLast() {
        synchronized (parts.lock) {
            parts.claim.take();
        }
    }

    /**
     * Takes over a former tracker's changes that are not on the daemon's disk yet, unless that tracker was of another life
     * of the subscription, deleted and made again since. Acknowledgements count if the cursor still has the seal.
     */
    public void adopt(TrackerCore former) {
        TrackerParts theirs = former.parts;
        // The former's lock comes first.
        synchronized (theirs.lock) {
            former.lifecycle.giveUp();
            theirs.gate.giveBack();
            synchronized (parts.lock) {
                if (theirs.claim.ownership().incarnation().equals(parts.claim.ownership().incarnation())) {
                    if (theirs.seal.generation() != parts.seal.generation()) {
                        theirs.outbox.dropAcknowledgements();
                    }
                    if (parts.claim.follows(theirs.claim)) {
                        parts.seal.adopt(theirs.seal);
                    }
                    parts.outbox.adopt(theirs.outbox);
                    parts.gate.account();
                }
            }
        }
    }

    // ---- its end --------------------------------------------------------------------------------------------------

    /** As {@link Lifecycle#close}. */
    public void close() {
        lifecycle.close();
    }

    /** As {@link Lifecycle#finish}. */
    public void finish() {
        lifecycle.finish();
    }

    /** True if a dispatcher still asks it. Takes no lock. */
    public boolean isLive() {
        return !lifecycle.isEnding() && !parts.context.isClosed();
    }

    /** Takes no lock. */
    public boolean isFinished() {
        return lifecycle.isFinished();
    }

    /** As {@link Lifecycle#isClosed}. */
    public boolean isClosed() {
        return lifecycle.isClosed();
    }

    /** Completes when a finished tracker is closed. */
    public CompletableFuture<Void> whenClosed() {
        return lifecycle.whenClosed();
    }

    /** Forgets the tracker: returns all its shares of the broker's budgets. */
    public void release() {
        parts.context.log().close();
        parts.context.overrides().close();
        synchronized (parts.lock) {
            parts.gate.giveBack();
        }
        lifecycle.forget();
    }

    // ---- figures ----------------------------------------------------------------------------------------------------

    public Stats stats() {
        synchronized (parts.lock) {
            TrackedPositions positions = parts.positions;
            long overdueMs = Lateness.overdueMs(parts.clock.millis(), parts.near.headMs(), parts.pacer.isOn());
            return new Stats(positions.contained(), parts.near.size(), positions.handedOut(), positions.settling(),
                    positions.undecided(), parts.outbox.pendingEntries(), backlog.takenEntries(), parts.stream.isOpen(),
                    parts.gate.isPaused(), memoryBytes(), parts.pacer.pace(), parts.pacer.heldBack(),
                    parts.lateness.figures(), overdueMs, intake.policy().quota(), parts.overrideLog.isUnreadable());
        }
    }

    /** Memory of the sets, the near tier and the buffers, in bytes. */
    public long memoryBytes() {
        synchronized (parts.lock) {
            return parts.positions.memoryBytes() + parts.outbox.memoryBytes();
        }
    }

    /** True if this thread holds the tracker's lock. For tests of slow work and foreign calls. */
    boolean holdsLock() {
        return Thread.holdsLock(parts.lock);
    }

    /** Runs the action under the tracker's lock. For tests of work that must not wait for it. */
    public void holdingLock(Runnable action) {
        synchronized (parts.lock) {
            action.run();
        }
    }

    /** @throws IllegalStateException if an invariant of a part does not hold */
    public void check() {
        parts.check();
        lifecycle.check();
    }
}
