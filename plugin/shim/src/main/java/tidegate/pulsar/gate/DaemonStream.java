package tidegate.pulsar.gate;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.position.NearTier;
import tidegate.pulsar.position.PositionSet;
import tidegate.pulsar.position.TrackedPositions;
import tidegate.pulsar.timing.Wait;
import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.Frame.Envelope;
import tidegate.pulsar.wire.FrameCodec;
import tidegate.pulsar.wire.Ownership;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.PositionBitmaps;

/**
 * One tracker's stream to the daemon: its state, its OPEN, and when the link should fetch frames. The {@link Outbox} has the
 * outgoing frames, {@link HeldAnswer} the answer to OPEN.
 *
 * <p>Invariants, tested by {@link #check}: an answer to OPEN exists only while the stream is opening; only an existing
 * stream can be due for reopening, and then it sends nothing but CLOSE. Guarded by the tracker's lock.
 */
final class DaemonStream {
    private static final Logger LOG = LoggerFactory.getLogger(DaemonStream.class);
    private static final long RETRY_MS = 1000;
    private static final long CLEAR_TIMEOUT_MS = 5000;

    /** CLOSING: the stream closes in order to open again. */
    private enum State { UNOPENED, OPENING, OPEN, CLOSING }

    private final TrackerContext context;
    private final TrackerSettings settings;
    private final Outbox outbox;
    private final TrackedPositions positions;
    private final NearTier near;
    private final PaceUpdates paceUpdates;
    private final HeldAnswer answer;

    private State state = State.UNOPENED;
    /** The daemon knows MOVE. */
    private boolean takesMoves;
    /** CLOSE is the last frame. */
    private boolean ends;
    /**
     * True if the daemon needs a new OPEN, for another seal or other positions in flight. Until then only CLOSE goes out.
     */
    private boolean reopen;
    private Position markDeleteTold = new Position(-1, -1);
    private final Wait sinceRefused = new Wait();
    private int lastErrorCode;
    /** True if the link knows of frames that it has not fetched yet. */
    private boolean noted;
    /** Completes when the CLEAR of that seq is durable; null without one. */
    private CompletableFuture<Void> clearing;
    private long clearSeq;

    DaemonStream(TrackerContext context, TrackerSettings settings, Outbox outbox, TrackedPositions positions, NearTier near,
            PaceUpdates paceUpdates) {
        this.context = context;
        this.settings = settings;
        this.outbox = outbox;
        this.positions = positions;
        this.near = near;
        this.paceUpdates = paceUpdates;
        answer = new HeldAnswer(outbox, positions, near);
    }

    boolean isOpening() {
        return state == State.OPENING;
    }

    boolean isOpen() {
        return state == State.OPEN;
    }

    /** True if the daemon sends nothing more on the stream. */
    boolean isUnopened() {
        return state == State.UNOPENED;
    }

    /** True if the stream sends frames added now. */
    boolean takesMore() {
        return state == State.OPEN && !reopen;
    }

    /** True if the daemon is new enough to take other times. */
    boolean takesMoves() {
        return takesMoves;
    }

    /** True if other times must go to the daemon now. */
    boolean tellsMoves() {
        return takesMoves && state == State.OPEN && !ends;
    }

    /** True if CLOSE is, or will be, the tracker's last frame. */
    boolean isEnding() {
        return ends;
    }

    // ---- opening --------------------------------------------------------------------------------------------------

    boolean mayOpen(long nowMs) {
        boolean refused = !sinceRefused.isOver(nowMs, RETRY_MS);
        return state == State.UNOPENED && !refused;
    }

    /** @param last true if CLOSE is to follow because the tracker is finished */
    Frame.Open open(Claim claim, long seal, boolean last, int version, long nowMs) {
        state = State.OPENING;
        takesMoves = version >= FrameCodec.VERSION_WITH_MOVE;
        paceUpdates.opened(version);
        ends = last;
        Ownership owner = claim.ownership();
        // Without later entries gated here for lack of a daemon, which hands those out.
        PositionSet inFlight = positions.inFlight(nowMs + settings.horizonMs());
        answer.expect(inFlight);
        // Positions that do not fit may come as DUE; the tracker ignores them.
        List<PositionBitmaps> parts = inFlight.toPositions().cut(FrameCodec.MAX_SET_BYTES);
        // Otherwise a daemon that keeps returning would send all its credit each time, while nothing leaves.
        int credit = settings.credit() - near.holdCredit(nowMs, settings.credit());
        markDeleteTold = context.persistedMarkDelete();
        outbox.opened(inFlight, last);
        return new Frame.Open(owner.incarnation(), owner.epoch(), seal, settings.horizonMs(), credit,
                markDeleteTold.ledgerId(), markDeleteTold.entryId(), settings.topic(), settings.subscription(),
                parts.isEmpty() ? new PositionBitmaps() : parts.get(0), logHome(), context.log().pointer(),
                owner.claims(), claim.end().ledgerId(), claim.end().entryId());
    }

    private String logHome() {
        return context.policy().indexLog() ? context.log().home() : "";
    }

    /** The daemon's answer; present while the stream is opening. */
    HeldAnswer answer() {
        return answer;
    }

    /** Notes the answer: frames added from now on go out. */
    void opened() {
        state = State.OPEN;
        lastErrorCode = 0;
    }

    /** Notes that the tracker has acted on the answer, and the outbox has the resulting frames. */
    void answerDone() {
        if (clearing != null) {
            clearSeq = outbox.lastSeq();
        }
        answer.done();
        noted = true;
    }

    // ---- wake-ups of the link ------------------------------------------------------------------------------------

    /** Tells the link to fetch frames soon. */
    void signal() {
        noted = true;
        context.framesWaiting();
    }

    /** As {@link #signal}; the caller tells the link, without the lock. */
    void note() {
        noted = true;
    }

    /** True if the caller must tell the link of an added frame. */
    boolean noteAdded() {
        return noteIf(outbox.hasUnsent());
    }

    /** True if the caller must tell the link of any frame. */
    boolean noteAny() {
        return noteIf(outbox.hasUnsent() || reopen || isCreditDue() || paceUpdates.isDue());
    }

    private boolean noteIf(boolean wanted) {
        boolean wants = state == State.OPEN && !noted && wanted;
        noted |= wants;
        return wants;
    }

    /**
     * True if credit should go back: when worth a frame, or when no entry holds any: a daemon that keeps less than its
     * credit then has none left.
     */
    private boolean isCreditDue() {
        return near.creditBack() >= Math.max(1, settings.credit() / 8) || near.creditBack() > 0 && near.isAllCreditFree();
    }

    /** Sends a persisted mark-delete position that has moved forward; OPEN has one that went back. */
    void tellMarkDelete() {
        Position persisted = context.persistedMarkDelete();
        if (persisted.compareTo(markDeleteTold) > 0) {
            markDeleteTold = persisted;
            outbox.markDelete(persisted.ledgerId(), persisted.entryId());
            positions.discardReportedUpTo(persisted);
        }
    }

    /**
     * The frames to send now, numbered. {@code last}: the tracker is finished, and takes nothing more. Its last
     * acknowledgements, too, go out only under their own seal: under another, the daemon would forget them.
     */
    List<Envelope> takeFrames(int streamId, boolean last) {
        noted = false;
        if (state != State.OPEN) {
            return List.of();
        }
        if (reopen && (!last || outbox.hasUnsentAck())) {
            state = State.CLOSING;
            clearSeq = NearTier.NONE;
            return outbox.takeClose(streamId);
        }
        List<Envelope> frames = outbox.takeUnsent(streamId);
        if (!last && paceUpdates.isDue()) {
            frames.add(new Envelope(streamId, 0, paceUpdates.take()));
        }
        if (!last && isCreditDue()) {
            frames.add(new Envelope(streamId, 0, new Frame.Credit(near.takeCredit())));
        }
        return frames;
    }

    /** Closes the stream, if any, and opens it again. */
    void reopen() {
        reopen = state == State.OPENING || state == State.OPEN;
        signal();
    }

    /** Ends the stream: CLOSE follows the remaining frames, if the daemon knows the stream. */
    void end() {
        ends = true;
        if (state == State.OPEN || state == State.OPENING || !outbox.isEmpty()) {
            outbox.close();
        }
        noted = true;
    }

    // ---- news from the daemon -------------------------------------------------------------------------------------

    /** Notes that everything up to {@code seq} is durable; false if that concerns another stream. */
    boolean durable(long seq) {
        if (state != State.OPEN && state != State.CLOSING) {
            return false;
        }
        outbox.durable(seq);
        return true;
    }

    void refused(int code, String message, long nowMs) {
        if (code != lastErrorCode) {
            LOG.warn("[{}] The daemon refused the stream: {} (code {}); trying again", context.name(), message, code);
        }
        lastErrorCode = code;
        sinceRefused.begin(nowMs);
    }

    /** Notes that the daemon has closed the stream, on request. {@code last}: the tracker is finished. */
    void closed(boolean last) {
        if (state == State.CLOSING || last && state == State.OPEN) {
            startOver();
        }
    }

    /** Notes the loss of the stream; frames sent but not durable go out again. */
    void lost() {
        noted = false;
        startOver();
    }

    private void startOver() {
        abandon();
        near.forgetCredit();
        outbox.restart();
    }

    /** Leaves the remaining frames to another tracker. */
    void abandon() {
        state = State.UNOPENED;
        reopen = false;
        answer.drop();
    }

    // ---- clearing -------------------------------------------------------------------------------------------------

    /** Has the daemon forget everything; completes when done, or after a while. Call {@link #takeClearing} first. */
    CompletableFuture<Void> clear() {
        outbox.clear();
        noted = true;
        if (state == State.UNOPENED) {
            return CompletableFuture.completedFuture(null);
        }
        clearing = new CompletableFuture<>();
        clearSeq = state == State.OPEN ? outbox.lastSeq() : NearTier.NONE;
        // Unsubscribing must not hang on a silent daemon; the CLEAR stays in the outbox.
        return clearing.completeOnTimeout(null, CLEAR_TIMEOUT_MS, TimeUnit.MILLISECONDS);
    }

    /** The clearing in progress, for the caller to complete without the lock; a completed one if there is none. */
    CompletableFuture<Void> takeClearing() {
        CompletableFuture<Void> taken = clearing;
        clearing = null;
        return taken == null ? CompletableFuture.completedFuture(null) : taken;
    }

    /** As {@link #takeClearing}, if the clearing ends once everything up to {@code seq} is durable. */
    CompletableFuture<Void> takeClearingUpTo(long seq) {
        return clearing != null && seq >= clearSeq ? takeClearing() : CompletableFuture.completedFuture(null);
    }

    /** @throws IllegalStateException if an invariant does not hold */
    void check() {
        require(state == State.OPENING || answer.isEmpty(), "an answer to OPEN is left over");
        require(state != State.UNOPENED || !reopen, "a stream that is not there is due for reopening");
    }

    private void require(boolean holds, String broken) {
        if (!holds) {
            throw new IllegalStateException(broken + ": " + state);
        }
    }
}
