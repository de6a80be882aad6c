package tidegate.pulsar;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.Frame.Envelope;

/**
 * One tracker's stream to the daemon: how far it is, what OPEN told and HELD answered, and when the link is to fetch frames.
 *
 * <p>Invariants, walked by {@link #check}: the answer to OPEN is only there while the stream is opening; only a stream that is
 * there is to be opened anew, and nothing but CLOSE goes out on it then. What goes out is in the {@link Outbox}. Guarded by the tracker's lock, but for the
 * answer's parts, which are the link's thread's alone while the stream is opening.
 */
final class DaemonStream {
    private static final Logger LOG = LoggerFactory.getLogger(DaemonStream.class);
    private static final long RETRY_MS = 1000;
    private static final long CLEAR_TIMEOUT_MS = 5000;

    /** CLOSING: it is being closed to be opened again. */
    private enum State { UNOPENED, OPENING, OPEN, CLOSING }

    private final TrackerHost host;
    private final TrackerCore.Settings settings;
    private final Outbox outbox;
    private final PositionStates positions;

    private State state = State.UNOPENED;
    /** The daemon must be told anew: another seal, what is in flight. Nothing more goes out until then. */
    private boolean reopen;
    /** The generation that the last OPEN told. */
    private long generation;
    private TrackerHost.Position markDeleteTold = new TrackerHost.Position(-1, -1);
    /** What the last OPEN told to be in flight, until it is answered. */
    private PositionSet inFlightTold = new PositionSet();
    private PositionSet held = new PositionSet();
    private PositionSet acknowledged = new PositionSet();
    private boolean heldOnce;
    private final Wait sinceRefused = new Wait();
    private int lastErrorCode;
    /** The link has been told that there are frames, and has not fetched them yet. */
    private boolean noted;
    /** Completes when the CLEAR of that seq is durable; null if there is none under way. */
    private CompletableFuture<Void> clearing;
    private long clearSeq;

    DaemonStream(TrackerHost host, TrackerCore.Settings settings, Outbox outbox, PositionStates positions) {
        this.host = host;
        this.settings = settings;
        this.outbox = outbox;
        this.positions = positions;
    }

    boolean isUnopened() {
        return state == State.UNOPENED;
    }

    boolean isOpening() {
        return state == State.OPENING;
    }

    boolean isOpen() {
        return state == State.OPEN;
    }

    /** Whether what is added now goes out on it. */
    boolean takesMore() {
        return state == State.OPEN && !reopen;
    }

    // ---- opening --------------------------------------------------------------------------------------------------

    /** Whether it is closed, and was not refused just now. */
    boolean mayOpen(long nowMs) {
        boolean refused = !sinceRefused.isOver(nowMs, RETRY_MS);
        return state == State.UNOPENED && !refused;
    }

    /** @param last whether CLOSE is to follow: the tracker is finished */
    Frame.Open open(Ownership owner, long seal, boolean last, long nowMs) {
        state = State.OPENING;
        generation = seal;
        // Not what was gated here for want of a daemon and is due later: the daemon hands that out.
        inFlightTold = positions.inFlight(nowMs + settings.horizonMs());
        // What does not fit may come as DUE although it is here already, and is ignored then.
        List<Positions> parts = inFlightTold.toPositions().cut(Frames.MAX_SET_BYTES);
        markDeleteTold = host.persistedMarkDelete();
        outbox.opened(inFlightTold, last);
        return new Frame.Open(owner.incarnation(), owner.epoch(), generation, settings.horizonMs(), settings.credit(),
                markDeleteTold.ledgerId(), markDeleteTold.entryId(), settings.topic(), settings.subscription(),
                parts.isEmpty() ? new Positions() : parts.get(0), host.log().home(), host.log().pointer());
    }

    /** A part of the answer to OPEN. Needs no lock. */
    void collect(Frame.Held part) {
        held.addAll(part.held());
        acknowledged.addAll(part.acknowledged());
    }

    /** What the daemon holds. */
    PositionSet held() {
        return held;
    }

    /** What the daemon knows acknowledged under {@link #generation}. */
    PositionSet acknowledged() {
        return acknowledged;
    }

    long generation() {
        return generation;
    }

    /** Corrects the answer by what the daemon has not heard yet. */
    void correctAnswer() {
        outbox.applyPendingTo(held, acknowledged);
    }

    /** Leaves of the answer only what is above the mark-delete position. */
    void discardUpTo(TrackerHost.Position markDelete) {
        held.discardUpTo(markDelete.ledgerId(), markDelete.entryId());
        acknowledged.discardUpTo(markDelete.ledgerId(), markDelete.entryId());
    }

    /** Contained positions that nobody will hand out; none before the first answer, which decides about what was there. */
    PositionSet notHeld() {
        if (!heldOnce) {
            return new PositionSet();
        }
        PositionSet others = new PositionSet();
        others.addAll(held);
        outbox.forEachPendingAdd((ledgerId, entryId, deliverAtMs) -> others.add(ledgerId, entryId));
        return positions.lostBut(others);
    }

    /**
     * What the broker need not gate any more: the daemon holds it, and was not told that it is in flight. Not what is told it
     * once more as near; all that an outage leaves is that, until the next one.
     */
    PositionSet leftToDaemon() {
        PositionSet left = new PositionSet();
        positions.forEachNear((ledgerId, entryId) -> {
            if (held.contains(ledgerId, entryId) && !inFlightTold.contains(ledgerId, entryId)) {
                left.add(ledgerId, entryId);
            }
        });
        outbox.forEachPendingAdd((ledgerId, entryId, deliverAtMs) -> left.remove(ledgerId, entryId));
        return left;
    }

    /** The answer has been acted on. */
    void opened() {
        state = State.OPEN;
        lastErrorCode = 0;
        heldOnce = true;
    }

    /** What follows from the answer is in the outbox, too. */
    void answerDone() {
        if (clearing != null) {
            clearSeq = outbox.lastSeq();
        }
        dropAnswer();
        noted = true;
    }

    private void dropAnswer() {
        inFlightTold = new PositionSet();
        held = new PositionSet();
        acknowledged = new PositionSet();
    }

    // ---- telling --------------------------------------------------------------------------------------------------

    /** Has the link fetch frames soon. */
    void signal() {
        noted = true;
        host.framesWaiting();
    }

    /** As {@link #signal}, but the caller tells the link, without the lock. */
    void note() {
        noted = true;
    }

    /** Whether the link is to be told that something was added. */
    boolean noteAdded() {
        return noteIf(outbox.hasUnsent());
    }

    /** Whether the link is to be told that there is something to send. */
    boolean noteAny() {
        return noteIf(outbox.hasUnsent() || reopen || positions.creditBack() >= creditStep());
    }

    private boolean noteIf(boolean wanted) {
        boolean wants = state == State.OPEN && !noted && wanted;
        noted |= wants;
        return wants;
    }

    private int creditStep() {
        return Math.max(1, settings.credit() / 8);
    }

    /** Whether the persisted mark-delete position has moved on; then it is told. One that goes back is told by OPEN. */
    boolean tellMarkDelete(TrackerHost.Position persisted) {
        if (persisted.compareTo(markDeleteTold) <= 0) {
            return false;
        }
        markDeleteTold = persisted;
        outbox.markDelete(persisted.ledgerId(), persisted.entryId());
        return true;
    }

    /** The frames to send now, numbered. {@code last}: the tracker is finished, and takes nothing any more. */
    List<Envelope> takeFrames(int streamId, boolean last) {
        noted = false;
        if (state != State.OPEN) {
            return List.of();
        }
        if (reopen && !last) {
            state = State.CLOSING;
            clearSeq = NearTier.NONE;
            return outbox.takeClose(streamId);
        }
        List<Envelope> frames = outbox.takeUnsent(streamId);
        if (!last && positions.creditBack() >= creditStep()) {
            frames.add(new Envelope(streamId, 0, new Frame.Credit(positions.takeCredit())));
        }
        return frames;
    }

    /** The stream is to be closed and opened again, if it is there. */
    void reopen() {
        reopen = state == State.OPENING || state == State.OPEN;
        signal();
    }

    /** The tracker tells no more: CLOSE follows what is left, unless nobody has heard of it. */
    void end() {
        if (state == State.OPEN || state == State.OPENING || !outbox.isEmpty()) {
            outbox.close();
        }
        noted = true;
    }

    // ---- what the daemon says -------------------------------------------------------------------------------------

    /** Everything up to {@code seq} is durable; false if that is of another stream. */
    boolean durable(long seq) {
        if (state != State.OPEN && state != State.CLOSING) {
            return false;
        }
        outbox.durable(seq);
        return true;
    }

    void refused(int code, String message, long nowMs) {
        if (code != lastErrorCode) {
            LOG.warn("[{}] The daemon refused the stream: {} (code {}); trying again", host.name(), message, code);
        }
        lastErrorCode = code;
        sinceRefused.begin(nowMs);
    }

    /** The daemon has closed it, as it was asked to. */
    void closed() {
        if (state == State.CLOSING) {
            startOver();
        }
    }

    /** It is gone; what was sent and is not durable will be sent again. */
    void lost() {
        noted = false;
        startOver();
    }

    private void startOver() {
        abandon();
        positions.forgetCredit();
        outbox.restart();
    }

    /** Another tracker takes over what is left to tell. */
    void abandon() {
        state = State.UNOPENED;
        reopen = false;
        dropAnswer();
    }

    // ---- clearing -------------------------------------------------------------------------------------------------

    /** Tells the daemon to forget everything; completes when it has, or after a while. {@link #takeClearing} comes first. */
    CompletableFuture<Void> clear() {
        outbox.clear();
        noted = true;
        if (state == State.UNOPENED) {
            return CompletableFuture.completedFuture(null);
        }
        clearing = new CompletableFuture<>();
        clearSeq = state == State.OPEN ? outbox.lastSeq() : NearTier.NONE;
        // Unsubscribing must not hang on a daemon that does not answer; the CLEAR stays in the outbox.
        return clearing.completeOnTimeout(null, CLEAR_TIMEOUT_MS, TimeUnit.MILLISECONDS);
    }

    /** The clearing under way, which the caller completes without the lock; one already done if there is none. */
    CompletableFuture<Void> takeClearing() {
        CompletableFuture<Void> taken = clearing;
        clearing = null;
        return taken == null ? CompletableFuture.completedFuture(null) : taken;
    }

    /** As {@link #takeClearing}, if everything up to {@code seq} being durable ends it. */
    CompletableFuture<Void> takeClearingUpTo(long seq) {
        return clearing != null && seq >= clearSeq ? takeClearing() : CompletableFuture.completedFuture(null);
    }

    /** @throws IllegalStateException if an invariant does not hold */
    void check() {
        require(state == State.OPENING || held.isEmpty() && acknowledged.isEmpty(), "an answer to OPEN is left over");
        require(state != State.UNOPENED || !reopen, "what is not there is to be opened again");
    }

    private void require(boolean holds, String broken) {
        if (!holds) {
            throw new IllegalStateException(broken + ": " + state);
        }
    }
}
