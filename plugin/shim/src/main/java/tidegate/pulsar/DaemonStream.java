package tidegate.pulsar;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.Frame.Envelope;

/**
 * One tracker's stream to the daemon: how far it is, what OPEN told, and when the link is to fetch frames. What goes out is in
 * the {@link Outbox}, what OPEN is answered with in {@link HeldAnswer}.
 *
 * <p>Invariants, walked by {@link #check}: the answer to OPEN is only there while the stream is opening; only a stream that is
 * there is to be opened anew, and nothing but CLOSE goes out on it then. Guarded by the tracker's lock.
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
    private final NearTier near;
    private final HeldAnswer answer;

    private State state = State.UNOPENED;
    /** The daemon must be told anew: another seal, what is in flight. Nothing more goes out until then. */
    private boolean reopen;
    private TrackerHost.Position markDeleteTold = new TrackerHost.Position(-1, -1);
    private final Wait sinceRefused = new Wait();
    private int lastErrorCode;
    /** The link has been told that there are frames, and has not fetched them yet. */
    private boolean noted;
    /** Completes when the CLEAR of that seq is durable; null if there is none under way. */
    private CompletableFuture<Void> clearing;
    private long clearSeq;

    DaemonStream(TrackerHost host, TrackerCore.Settings settings, Outbox outbox, PositionStates positions, NearTier near) {
        this.host = host;
        this.settings = settings;
        this.outbox = outbox;
        this.positions = positions;
        this.near = near;
        answer = new HeldAnswer(outbox, positions, near);
    }

    boolean isOpening() {
        return state == State.OPENING;
    }

    boolean isOpen() {
        return state == State.OPEN;
    }

    /** Whether the daemon has nothing more to say on it. */
    boolean isUnopened() {
        return state == State.UNOPENED;
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
    Frame.Open open(Claim claim, long seal, boolean last, long nowMs) {
        state = State.OPENING;
        Ownership owner = claim.ownership();
        // Not what was gated here for want of a daemon and is due later: the daemon hands that out.
        PositionSet inFlight = positions.inFlight(nowMs + settings.horizonMs());
        answer.expect(seal, inFlight);
        // What does not fit may come as DUE although it is here already, and is ignored then.
        List<Positions> parts = inFlight.toPositions().cut(Frames.MAX_SET_BYTES);
        markDeleteTold = host.persistedMarkDelete();
        outbox.opened(inFlight, last);
        return new Frame.Open(owner.incarnation(), owner.epoch(), seal, settings.horizonMs(), settings.credit(),
                markDeleteTold.ledgerId(), markDeleteTold.entryId(), settings.topic(), settings.subscription(),
                parts.isEmpty() ? new Positions() : parts.get(0), host.log().home(), host.log().pointer(), owner.claims(),
                claim.end().ledgerId(), claim.end().entryId());
    }

    /** What the daemon answers; there while the stream is opening. */
    HeldAnswer answer() {
        return answer;
    }

    /** The answer has come: what is added from now on goes out. */
    void opened() {
        state = State.OPEN;
        lastErrorCode = 0;
    }

    /** The answer has been acted on: what follows from it is in the outbox, too. */
    void answerDone() {
        if (clearing != null) {
            clearSeq = outbox.lastSeq();
        }
        answer.done();
        noted = true;
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
        return noteIf(outbox.hasUnsent() || reopen || isCreditDue());
    }

    private boolean noteIf(boolean wanted) {
        boolean wants = state == State.OPEN && !noted && wanted;
        noted |= wants;
        return wants;
    }

    /**
     * Whether to give credit back: when it is worth a frame, or when no entry holds any. The daemon may keep less than it was
     * given, and has none left then.
     */
    private boolean isCreditDue() {
        return near.creditBack() >= Math.max(1, settings.credit() / 8) || near.creditBack() > 0 && near.isAllCreditFree();
    }

    /** Tells the persisted mark-delete position if it has moved on. One that goes back is told by OPEN. */
    void tellMarkDelete() {
        TrackerHost.Position persisted = host.persistedMarkDelete();
        if (persisted.compareTo(markDeleteTold) > 0) {
            markDeleteTold = persisted;
            outbox.markDelete(persisted.ledgerId(), persisted.entryId());
            positions.discardReportedUpTo(persisted);
        }
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
        if (!last && isCreditDue()) {
            frames.add(new Envelope(streamId, 0, new Frame.Credit(near.takeCredit())));
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

    /** The daemon has closed it, as it was asked to. {@code last}: the tracker is finished. */
    void closed(boolean last) {
        if (state == State.CLOSING || last && state == State.OPEN) {
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
        near.forgetCredit();
        outbox.restart();
    }

    /** Another tracker takes over what is left to tell. */
    void abandon() {
        state = State.UNOPENED;
        reopen = false;
        answer.drop();
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
        require(state == State.OPENING || answer.isEmpty(), "an answer to OPEN is left over");
        require(state != State.UNOPENED || !reopen, "what is not there is to be opened again");
    }

    private void require(boolean holds, String broken) {
        if (!holds) {
            throw new IllegalStateException(broken + ": " + state);
        }
    }
}
