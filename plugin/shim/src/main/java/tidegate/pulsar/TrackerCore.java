package tidegate.pulsar;

import java.time.Clock;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.Frame.Envelope;

/**
 * The delayed messages of one subscription as the broker sees them: a state machine without Pulsar types and without I/O.
 *
 * <p>Each position the dispatcher has met is in at most one of these states:
 * <ul>
 *   <li><b>undecided</b>: read before the daemon said what it holds; answered as tracked, decided by HELD;
 *   <li><b>held</b>: the daemon will push it (DUE) when it is nearly due;
 *   <li><b>near</b>: this broker hands it out when the clock has passed its deliver_at;
 *   <li><b>handed out</b>: given to the dispatcher, not yet known acknowledged;
 *   <li><b>settling</b>: acknowledged before a failover that the cursor forgot; being deleted in the cursor again;
 *   <li><b>reported</b>: acknowledged, told the daemon, and above the persisted mark-delete position;
 *   <li><b>doubtful</b>: reported before what may have been a reset of the cursor; looked at again by the next watch.
 * </ul>
 * {@link #contains} answers true for all but the last two: the dispatcher skips exactly these. Rules kept here: skip only what
 * the index surely holds; never early ({@code clock >= deliver_at}, whatever the tick). What is known acknowledged is true of
 * one {@link Seal} of the cursor: it is told the daemon under that seal, believed under that seal, and looked at again
 * when that seal is gone. All state but the lock-free sets is
 * guarded by this object's monitor; the order of locks is dispatcher, then core, and the core calls nothing that takes the
 * dispatcher's lock while it holds its own.
 */
final class TrackerCore {
    private static final Logger LOG = LoggerFactory.getLogger(TrackerCore.class);
    private static final int DELETE_CHUNK = 10_000;
    private static final long MARK_DELETE_INTERVAL_MS = 1000;
    private static final long CLEAR_TIMEOUT_MS = 5000;
    private static final long CLOSE_POLL_MS = 2000;
    private static final long RETRY_MS = 1000;
    private static final long MAX_LOOK_AGE_MS = 2000;
    private static final long ANSWER_WAIT_MS = 1000;

    /** What the tracker is told at its creation; times in ms. */
    record Settings(String topic, String subscription, Ownership ownership, int horizonMs, int credit, long nearMaxEntries,
                    long daemonWaitMs) {}

    /** How far the stream to the daemon is; CLOSING: it is being closed to be opened again. */
    enum Stream { UNOPENED, OPENING, OPEN, CLOSING }

    /** A picture of the state for metrics and tests. */
    record Stats(long tracked, long near, long handedOut, long settling, long undecided, long pending, long readAhead,
                 boolean open, boolean paused, long memoryBytes) {}

    private static final class DeleteChunk {
        final List<TrackerHost.Position> positions;
        /** Null until the cursor has answered. */
        volatile Boolean outcome;

        DeleteChunk(List<TrackerHost.Position> positions) {
            this.positions = positions;
        }
    }

    private final TrackerHost host;
    private final Clock clock;
    private final Settings settings;
    private final PendingBudget budget;
    private final Seal seal;
    private final Claim claim;
    private final AheadGate ahead = new AheadGate();

    private final PositionSet contained = new PositionSet();
    private final PositionSet handedOut = new PositionSet();
    private final PositionSet settling = new PositionSet();
    private final PositionSet reported = new PositionSet();
    private final PositionSet doubtful = new PositionSet();
    private final NearTier near = new NearTier();
    private final Outbox outbox = new Outbox();
    private Records undecided = new Records();

    private Stream stream = Stream.UNOPENED;
    /** Whether entries are decided at once: HELD has come, or the wait for it is over. */
    private volatile boolean decided;
    private boolean heldOnce;
    /** The daemon must be told anew: another seal, what is in flight. Nothing more goes out on the stream until then. */
    private boolean reopen;
    /** The generation that the last OPEN told. */
    private long openedUnder;
    /** HELD in parts: collected here until the last one. */
    private PositionSet heldNow = new PositionSet();
    private PositionSet acknowledgedNow = new PositionSet();
    private final Wait sinceCreated = new Wait();
    private final Wait sinceRefused = new Wait();
    private int lastErrorCode;

    /** When the clock was read last; never later than the clock, unless it was set back. */
    private long lookedMs;
    private int creditBack;
    private long wakeMs = NearTier.NONE;
    private TrackerHost.Position markDeleteSent = new TrackerHost.Position(-1, -1);
    private TrackerHost.Position markDeleteSeen = new TrackerHost.Position(-1, -1);
    private final Wait sinceMarkDelete = new Wait();
    private final Wait sinceTrim = new Wait();
    /** What of the settling positions is being deleted now, or null. */
    private DeleteChunk chunk;
    private int chunkMax = DELETE_CHUNK;
    private final Wait sinceDeleteRefused = new Wait();
    private int budgeted;
    private volatile boolean paused;
    /** A read was put off because the daemon's answer was awaited. */
    private volatile boolean awaiting;
    private boolean waiting;
    /** How many entries have been taken that were read ahead. */
    private long takenAhead;

    private CompletableFuture<Void> clearing;
    private long clearSeq;
    private volatile boolean closing;
    private final CompletableFuture<Void> closedFuture = new CompletableFuture<>();
    private final Wait sinceClosing = new Wait();
    private volatile boolean finished;

    TrackerCore(TrackerHost host, Clock clock, Settings settings, Seal seal, PendingBudget budget) {
        this.host = host;
        this.clock = clock;
        this.settings = settings;
        this.seal = seal;
        this.budget = budget;
        claim = new Claim(host, settings.ownership());
        sinceCreated.begin(clock.millis());
        markDeleteSeen = host.markDelete();
    }

    String name() {
        return host.name();
    }

    /** One subscription of one topic: at most one stream is open for it. */
    String key() {
        return settings.topic() + " / " + settings.subscription();
    }

    // ---- who owns the subscription --------------------------------------------------------------------------------

    /** Claims the subscription, if that is to be done now. Nothing is told the daemon before that has succeeded. */
    void claim() {
        Ownership next;
        synchronized (this) {
            next = closing ? null : claim.begin(clock.millis());
        }
        if (next != null) {
            host.putOwnership(next, this::onClaimed);
        }
    }

    private void onClaimed(boolean done) {
        synchronized (this) {
            claim.answered(done, clock.millis());
        }
        if (done) {
            host.framesWaiting();
        }
    }

    /** Speaks for the subscription as its last tracker did, without a claim of its own. */
    synchronized void speakForLast() {
        claim.take();
    }

    // ---- resets of the cursor -------------------------------------------------------------------------------------

    /** Looks for what a reset of the cursor does, before anything is decided by what is known acknowledged. Lock held. */
    private void noticeReset() {
        if (!seal.isIntact() || seal.isWanted()) {
            onReset();
        }
    }

    /**
     * The cursor was reset, or something else took its seal: skipping, clearing the backlog. Nothing known acknowledged is
     * believed before it has been looked at again, and the daemon hears of the new seal before anything else. Lock held.
     */
    private void onReset() {
        LOG.info("[{}] The cursor was reset or skipped: what was known acknowledged is looked at again", host.name());
        // First, so that what is looked at from now on is true of the new seal.
        seal.renew();
        outbox.dropAcknowledgements();
        doubtful.addAll(reported);
        reported.clear();
        settling.forEach(contained::remove);
        settling.clear();
        chunk = null;
        reopen = stream == Stream.OPENING || stream == Stream.OPEN;
        signal();
        followMarkDelete(host.markDelete());
    }

    // ---- the dispatcher's side ------------------------------------------------------------------------------------

    /**
     * Takes a message that the dispatcher has read. {@code deliverAtMs} is negative for one without a delivery time.
     *
     * @return false if it is to be delivered now
     */
    boolean addMessage(long ledgerId, long entryId, long deliverAtMs) {
        if (deliverAtMs < 0) {
            return false;
        }
        boolean signal;
        boolean tracked;
        synchronized (this) {
            if (!contained.add(ledgerId, entryId)) {
                return addAgain(ledgerId, entryId, deliverAtMs);
            }
            if (!decided) {
                undecided.add(ledgerId, entryId, deliverAtMs);
                return true;
            }
            tracked = addNew(ledgerId, entryId, deliverAtMs, nowFor(deliverAtMs));
            ahead.onReadInVain();
            signal = stream == Stream.OPEN && !waiting && outbox.hasUnsent();
            waiting |= signal;
        }
        if (signal) {
            host.framesWaiting();
        }
        return tracked;
    }

    /**
     * The time to judge an entry by. Reading the clock is a good part of an add's cost, and most entries are far away: for
     * those the time of the last look will do, it is a second old at most. Were it older, the daemon would push the entry.
     */
    private long nowFor(long deliverAtMs) {
        if (deliverAtMs - lookedMs <= settings.horizonMs() + MAX_LOOK_AGE_MS) {
            lookedMs = clock.millis();
        }
        return lookedMs;
    }

    private boolean addNew(long ledgerId, long entryId, long deliverAtMs, long nowMs) {
        boolean wasReported = !reported.isEmpty() && reported.contains(ledgerId, entryId);
        boolean isDoubtful = !doubtful.isEmpty() && doubtful.contains(ledgerId, entryId);
        if ((wasReported || isDoubtful || deliverAtMs <= nowMs) && host.isDeleted(ledgerId, entryId)) {
            // Read before it was acknowledged: the second of two overlapping replay reads, see addAgain.
            contained.remove(ledgerId, entryId);
            return true;
        }
        if (wasReported) {
            // The cursor was reset, or it would not have been read.
            onReset();
        }
        if (deliverAtMs <= nowMs) {
            handedOut.add(ledgerId, entryId);
            return false;
        }
        track(ledgerId, entryId, deliverAtMs, nowMs);
        return true;
    }

    /** A position that is contained was read all the same: a redelivery, or a read that began before it was contained. */
    private boolean addAgain(long ledgerId, long entryId, long deliverAtMs) {
        if (!decided || settling.contains(ledgerId, entryId)) {
            return true;
        }
        if (deliverAtMs <= clock.millis()) {
            // Pulsar may replay a position twice: its dispatcher takes the end of one batch for the end of another that
            // still waits to be sent, and reads what that one holds again. A true redelivery leaves its consumer first.
            if (handedOut.contains(ledgerId, entryId)
                    && (host.isOutstanding(ledgerId, entryId) || host.isDeleted(ledgerId, entryId))) {
                return true;
            }
            leaveNear(ledgerId, entryId);
            handedOut.add(ledgerId, entryId);
            return false;
        }
        if (handedOut.remove(ledgerId, entryId)) {
            // The clock was set back since it was handed out.
            near.add(ledgerId, entryId, deliverAtMs, false);
            arm();
        }
        return true;
    }

    /** Makes a new entry known to the daemon and, if it is due soon or nobody else can gate it, to the near tier. */
    private void track(long ledgerId, long entryId, long deliverAtMs, long nowMs) {
        boolean gateHere = stream != Stream.OPEN
                || deliverAtMs <= nowMs + settings.horizonMs() && near.size() < settings.nearMaxEntries();
        if (gateHere) {
            near.add(ledgerId, entryId, deliverAtMs, false);
            outbox.addNear(ledgerId, entryId, deliverAtMs);
            if (deliverAtMs < wakeMs || wakeMs <= nowMs) {
                arm();
            }
        } else {
            outbox.addFar(ledgerId, entryId, deliverAtMs);
        }
    }

    /** Whether the dispatcher must not read the position. Lock-free. */
    boolean contains(long ledgerId, long entryId) {
        return contained.contains(ledgerId, entryId);
    }

    synchronized boolean hasDue() {
        lookedMs = clock.millis();
        boolean due = near.headMs() <= lookedMs;
        if (!due) {
            arm();
        }
        return due;
    }

    /** The wake-up asked for with {@link TrackerHost#wakeAt}. */
    void onWake() {
        boolean due;
        synchronized (this) {
            wakeMs = NearTier.NONE;
            due = near.headMs() <= clock.millis();
            if (!due) {
                arm();
            }
        }
        if (due) {
            host.readMore();
        }
    }

    /** When the next entry is due, in ms, or {@link NearTier#NONE}. */
    synchronized long nextDueMs() {
        return near.headMs();
    }

    /** Hands out at most {@code max} entries whose time has come, in (deliver_at, position) order. */
    void popDue(int max, Positions.Visitor visitor) {
        boolean signal;
        synchronized (this) {
            long nowMs = clock.millis();
            for (int i = 0; i < max && near.headMs() <= nowMs; i++) {
                long ledgerId = near.headLedgerId();
                long entryId = near.headEntryId();
                leaveNear(ledgerId, entryId);
                handedOut.add(ledgerId, entryId);
                visitor.visit(ledgerId, entryId);
            }
            arm();
            signal = wantsToSend();
        }
        if (signal) {
            host.framesWaiting();
        }
    }

    /**
     * Called before every read, with the dispatcher's lock held: notices that all consumers were replaced, and tells
     * whether reading must pause because too much waits for the daemon.
     */
    boolean shouldPause() {
        boolean replaced = host.consumersReplaced();
        synchronized (this) {
            noticeReset();
            if (replaced) {
                onConsumersReplaced();
                ahead.want();
            }
            long nowMs = clock.millis();
            boolean wait = awaitsAnswer(nowMs) || ahead.isAwaited(nowMs) && near.headMs() > nowMs;
            if (wait && host.redeliveries() == 0) {
                awaiting = true;
                arm();
                return true;
            }
            accountPending();
            boolean pause = budget.isExceeded() && budgeted > 0 && near.headMs() > nowMs
                    && host.redeliveries() == 0;
            if (pause != paused) {
                paused = pause;
                if (pause) {
                    LOG.warn("[{}] Reading pauses: {} entries of this broker wait for the Tidegate daemon, the bound"
                            + " (tidegateMaxPendingEntries) is reached", host.name(), budget.entries());
                } else {
                    LOG.info("[{}] Reading goes on: {} entries of this broker wait for the Tidegate daemon",
                            host.name(), budget.entries());
                }
            }
            if (pause) {
                arm();
            }
            return pause;
        }
    }

    /**
     * Whether the daemon is being asked what it holds and will soon answer. Until then every read may be of what it holds, so
     * there is none; but nobody waits for long.
     */
    private boolean awaitsAnswer(long nowMs) {
        boolean asking = stream == Stream.OPENING || !claim.isOwned();
        return !decided && asking && !sinceCreated.isOver(nowMs, ANSWER_WAIT_MS);
    }

    /** Pulsar has forgotten its redelivery list and rewound: what was handed out is due again, and still contained. */
    private void onConsumersReplaced() {
        long nowMs = clock.millis();
        handedOut.forEach((ledgerId, entryId) -> near.add(ledgerId, entryId, nowMs, false));
        handedOut.clear();
    }

    /** Delayed messages that were not handed out: what Pulsar shows as msgDelayed. */
    long delayedMessages() {
        return Math.max(0, contained.size() - handedOut.size() - settling.size());
    }

    /**
     * The backlog was cleared, or the subscription is being deleted. With consumers it is the former, and mark-delete tells
     * up to where: what was published and read since then stays. Without, everything is forgotten: who comes rewinds.
     */
    CompletableFuture<Void> clear() {
        if (host.hasConsumers()) {
            synchronized (this) {
                onMarkDelete(host.markDelete());
                reportMarkDelete();
                waiting = true;
            }
            host.framesWaiting();
            return CompletableFuture.completedFuture(null);
        }
        CompletableFuture<Void> future;
        CompletableFuture<Void> former;
        synchronized (this) {
            contained.clear();
            handedOut.clear();
            settling.clear();
            reported.clear();
            doubtful.clear();
            creditBack += Math.toIntExact(near.clear());
            undecided.clear();
            ahead.renew();
            former = clearing;
            clearing = null;
            outbox.clear();
            accountPending();
            if (stream == Stream.UNOPENED) {
                future = CompletableFuture.completedFuture(null);
            } else {
                clearing = new CompletableFuture<>();
                clearSeq = stream == Stream.OPEN ? outbox.lastSeq() : NearTier.NONE;
                // Unsubscribing must not hang on a daemon that does not answer; the CLEAR stays in the outbox.
                future = clearing.completeOnTimeout(null, CLEAR_TIMEOUT_MS, TimeUnit.MILLISECONDS);
            }
            waiting = true;
        }
        if (former != null) {
            former.complete(null);
        }
        host.framesWaiting();
        return future;
    }

    /** The dispatcher is done with this tracker. Acknowledgements are still watched until the cursor is closed. */
    void close() {
        synchronized (this) {
            if (closing) {
                return;
            }
            closing = true;
            sinceClosing.begin(clock.millis());
        }
        host.cancelWake();
    }

    // ---- reading ahead: called by one thread ----------------------------------------------------------------------

    AheadGate ahead() {
        return ahead;
    }

    /** Begins a pass; the ticket to add under, or {@link AheadGate#NO_TICKET}. */
    synchronized long beginAhead() {
        return ahead.begin();
    }

    /** Whether a pass with that ticket may go on. */
    synchronized boolean mayAddAhead(long ticket) {
        return ahead.isValid(ticket) && stream == Stream.OPEN && !reopen && !closing && !finished;
    }

    /** Whether there is room for more: in the broker's budget, and below so many entries of this subscription. */
    synchronized boolean mayReadAhead(long maxWaiting) {
        return !budget.isExceeded() && outbox.pendingEntries() < maxWaiting;
    }

    /** Whether reading the position would be in vain: it is contained, or acknowledged. */
    boolean isKnown(long ledgerId, long entryId) {
        return contained.contains(ledgerId, entryId) || host.isDeleted(ledgerId, entryId);
    }

    /**
     * Takes entries that were read ahead, as if the dispatcher had read them. What is contained, acknowledged or doubtful is
     * left as it is.
     *
     * @return how many were taken; -1 if the ticket is not valid any more and none was
     */
    int addAhead(long ticket, Records records, int from, int to) {
        int taken = 0;
        boolean read;
        boolean signal;
        synchronized (this) {
            noticeReset();
            if (!mayAddAhead(ticket)) {
                return -1;
            }
            long nowMs = clock.millis();
            lookedMs = nowMs;
            for (int i = from; i < to; i++) {
                long ledgerId = records.ledgerId(i);
                long entryId = records.entryId(i);
                // In this order: what was handed out is contained until it has been seen deleted.
                if (!contained.contains(ledgerId, entryId) && !host.isDeleted(ledgerId, entryId)
                        && !reported.contains(ledgerId, entryId) && !doubtful.contains(ledgerId, entryId)) {
                    contained.add(ledgerId, entryId);
                    track(ledgerId, entryId, records.deliverAtMs(i), nowMs);
                    taken++;
                }
            }
            takenAhead += taken;
            accountPending();
            read = near.headMs() <= nowMs;
            signal = wantsToSend();
        }
        if (read) {
            host.readMore();
        }
        if (signal) {
            host.framesWaiting();
        }
        return taken;
    }

    /** A pass has dealt with everything before {@code next}: the dispatcher may go there, too. */
    void advanceAhead(TrackerHost.Position next) {
        boolean read;
        synchronized (this) {
            ahead.advance(next, clock.millis());
            read = awaiting;
            awaiting = false;
        }
        if (read) {
            host.readMore();
        }
    }

    /** The pass is over: the dispatcher goes on by itself. */
    void endAhead() {
        ahead.end();
        host.readMore();
    }

    // ---- the daemon's side ----------------------------------------------------------------------------------------

    /** The OPEN that (re)starts the stream, or null if it must not be opened now. */
    synchronized Frame.Open open() {
        boolean refused = !sinceRefused.isOver(clock.millis(), RETRY_MS);
        if (stream != Stream.UNOPENED || finished && outbox.isEmpty() || !claim.isOwned() || refused) {
            return null;
        }
        stream = Stream.OPENING;
        reopen = false;
        openedUnder = seal.generation();
        heldNow = new PositionSet();
        acknowledgedNow = new PositionSet();
        PositionSet inFlight = new PositionSet();
        inFlight.addAll(near.members());
        inFlight.addAll(handedOut);
        // What does not fit may come as DUE although it is here already, and is ignored then.
        List<Positions> parts = inFlight.toPositions().cut(Frames.MAX_SET_BYTES);
        markDeleteSent = host.persistedMarkDelete();
        outbox.opened(inFlight, finished);
        Ownership owner = claim.ownership();
        return new Frame.Open(owner.incarnation(), owner.epoch(), openedUnder, settings.horizonMs(), settings.credit(),
                markDeleteSent.ledgerId(), markDeleteSent.entryId(), settings.topic(), settings.subscription(),
                parts.isEmpty() ? new Positions() : parts.get(0), host.log().home(), host.log().pointer());
    }

    void onHeld(Frame.Held held) {
        synchronized (this) {
            if (stream == Stream.OPEN && !finished) {
                onHeldSince(held.held());
            }
            if (stream != Stream.OPENING) {
                return;
            }
        }
        // Only the link's thread touches these two while the stream is opening.
        heldNow.addAll(held.held());
        acknowledgedNow.addAll(held.acknowledged());
        if (held.last()) {
            onHeldComplete();
        }
    }

    /**
     * The daemon has got entries from elsewhere since it has answered OPEN, as from a rebuild: they need not be read. What it
     * had not heard when it said so counts, and what was acknowledged is left to the cursor. Lock held.
     */
    private void onHeldSince(Positions positions) {
        PositionSet since = new PositionSet();
        since.addAll(positions);
        outbox.applyPendingTo(since, new PositionSet());
        TrackerHost.Position markDelete = host.markDelete();
        since.discardUpTo(markDelete.ledgerId(), markDelete.entryId());
        reported.forEach(since::remove);
        doubtful.forEach(since::remove);
        contained.addAll(since);
    }

    private void onHeldComplete() {
        synchronized (this) {
            outbox.applyPendingTo(heldNow, acknowledgedNow);
        }
        // Asking the cursor about each may take long, so it is done without the lock.
        PositionSet undone = new PositionSet();
        acknowledgedNow.forEach((ledgerId, entryId) -> {
            if (!host.isDeleted(ledgerId, entryId)) {
                undone.add(ledgerId, entryId);
            }
        });
        PositionSet lost;
        synchronized (this) {
            // Once more: the watch and the dispatcher went on meanwhile.
            outbox.applyPendingTo(heldNow, acknowledgedNow);
            TrackerHost.Position markDelete = host.markDelete();
            heldNow.discardUpTo(markDelete.ledgerId(), markDelete.entryId());
            acknowledgedNow.discardUpTo(markDelete.ledgerId(), markDelete.entryId());
            onMarkDelete(markDelete);
            believe(undone);
            lost = heldOnce ? notHeld() : new PositionSet();
            lost.forEach(contained::remove);
            contained.addAll(heldNow);
            undone.forEach(this::settle);
            reported.addAll(acknowledgedNow);
            stream = Stream.OPEN;
            lastErrorCode = 0;
            heldOnce = true;
            decide(heldNow);
            ahead.open();
            if (clearing != null) {
                clearSeq = outbox.lastSeq();
            }
            heldNow = new PositionSet();
            acknowledgedNow = new PositionSet();
            waiting = true;
        }
        host.framesWaiting();
        host.readMore();
        deleteSettling();
        rereadLost(lost);
    }

    /**
     * Decides whether what the daemon knows acknowledged is still so. {@code undone} is what of it the cursor does not have as
     * deleted: a crash made it forget that, unless this tracker has seen it deleted, which only a reset takes back.
     */
    private void believe(PositionSet undone) {
        boolean[] seenDeleted = {false};
        undone.forEach((ledgerId, entryId) ->
                seenDeleted[0] |= reported.contains(ledgerId, entryId) && !settling.contains(ledgerId, entryId));
        if (!seal.isIntact() || seenDeleted[0]) {
            onReset();
        }
        if (openedUnder != seal.generation() || openedUnder == Seal.NONE) {
            acknowledgedNow.clear();
            undone.clear();
        }
    }

    private void rereadLost(PositionSet lost) {
        PositionSet unacknowledged = new PositionSet();
        lost.forEach((ledgerId, entryId) -> {
            if (!host.isDeleted(ledgerId, entryId)) {
                unacknowledged.add(ledgerId, entryId);
            }
        });
        if (!unacknowledged.isEmpty() && !closing) {
            LOG.warn("[{}] The daemon no longer holds {} positions: they are read again", host.name(),
                    unacknowledged.size());
            host.rereadAll();
        }
    }

    /** Acknowledged before a failover, but the cursor does not know: delete it there again, and skip it until then. */
    private void settle(long ledgerId, long entryId) {
        if (!acknowledgedNow.contains(ledgerId, entryId)) {
            // The mark-delete position has passed it meanwhile, or a pending frame says otherwise.
            return;
        }
        leaveNear(ledgerId, entryId);
        handedOut.remove(ledgerId, entryId);
        contained.add(ledgerId, entryId);
        settling.add(ledgerId, entryId);
    }

    /** Contained positions that neither the daemon nor this broker will hand out. */
    private PositionSet notHeld() {
        PositionSet answered = new PositionSet();
        answered.addAll(heldNow);
        answered.addAll(near.members());
        answered.addAll(handedOut);
        answered.addAll(settling);
        outbox.forEachPendingAdd((ledgerId, entryId, deliverAtMs) -> answered.add(ledgerId, entryId));
        for (int i = 0; i < undecided.size(); i++) {
            answered.add(undecided.ledgerId(i), undecided.entryId(i));
        }
        PositionSet lost = new PositionSet();
        contained.forEach((ledgerId, entryId) -> {
            if (!answered.contains(ledgerId, entryId)) {
                lost.add(ledgerId, entryId);
            }
        });
        return lost;
    }

    /** Decides what was read while it was not known what the daemon holds. */
    private void decide(PositionSet held) {
        decided = true;
        Records entries = undecided;
        undecided = new Records();
        long nowMs = clock.millis();
        for (int i = 0; i < entries.size(); i++) {
            long ledgerId = entries.ledgerId(i);
            long entryId = entries.entryId(i);
            // Not contained any more: the mark-delete position has passed it meanwhile.
            if (contained.contains(ledgerId, entryId) && !held.contains(ledgerId, entryId)
                    && !settling.contains(ledgerId, entryId)) {
                if (reported.contains(ledgerId, entryId)) {
                    contained.remove(ledgerId, entryId);
                } else {
                    track(ledgerId, entryId, entries.deliverAtMs(i), nowMs);
                }
            }
        }
    }

    void onDue(Frame.Due due) {
        Records records = due.records();
        long then = seal.generation();
        boolean[] deleted = new boolean[records.size()];
        for (int i = 0; i < deleted.length; i++) {
            deleted[i] = host.isDeleted(records.ledgerId(i), records.entryId(i));
        }
        boolean isDue;
        boolean signal;
        synchronized (this) {
            if (stream != Stream.OPEN || finished) {
                return;
            }
            // Else it is handed out when due, and Pulsar leaves out what is deleted.
            boolean sure = seal.stood(then);
            Positions acknowledged = new Positions();
            for (int i = 0; i < deleted.length; i++) {
                long ledgerId = records.ledgerId(i);
                long entryId = records.entryId(i);
                if (deleted[i] && sure) {
                    creditBack++;
                    acknowledge(ledgerId, entryId, acknowledged);
                } else if (handedOut.contains(ledgerId, entryId) || settling.contains(ledgerId, entryId)
                        || !near.add(ledgerId, entryId, records.deliverAtMs(i), true)) {
                    creditBack++;
                } else {
                    contained.add(ledgerId, entryId);
                }
            }
            if (!acknowledged.isEmpty()) {
                outbox.acknowledge(acknowledged.optimized());
            }
            isDue = near.headMs() <= clock.millis();
            if (!isDue) {
                arm();
            }
            signal = wantsToSend();
        }
        if (isDue) {
            host.readMore();
        }
        if (signal) {
            host.framesWaiting();
        }
    }

    void onDurable(long seq) {
        CompletableFuture<Void> cleared = null;
        boolean resume;
        synchronized (this) {
            if (stream != Stream.OPEN && stream != Stream.CLOSING) {
                return;
            }
            outbox.durable(seq);
            accountPending();
            resume = mayResume();
            if (clearing != null && seq >= clearSeq) {
                cleared = clearing;
                clearing = null;
            }
        }
        if (cleared != null) {
            cleared.complete(null);
        }
        if (isClosed()) {
            closedFuture.complete(null);
        }
        if (resume) {
            host.readMore();
        }
    }

    void onUnheld(Frame.Unheld unheld) {
        PositionSet lost = new PositionSet();
        synchronized (this) {
            unheld.positions().forEach((ledgerId, entryId) -> {
                if (!near.contains(ledgerId, entryId) && !handedOut.contains(ledgerId, entryId)
                        && contained.contains(ledgerId, entryId)) {
                    lost.add(ledgerId, entryId);
                }
            });
            outbox.forEachPendingAdd((ledgerId, entryId, deliverAtMs) -> lost.remove(ledgerId, entryId));
            lost.forEach(contained::remove);
        }
        rereadLost(lost);
    }

    /** The daemon gave the stream up (disk full, stale epoch, …): like a lost connection, for this stream alone. */
    void onStreamError(int code, String message) {
        synchronized (this) {
            if (code != lastErrorCode) {
                LOG.warn("[{}] The daemon refused the stream: {} (code {}); trying again", host.name(), message, code);
            }
            lastErrorCode = code;
            sinceRefused.begin(clock.millis());
            if (code == ProtocolException.STALE_EPOCH) {
                claim.lost();
            }
        }
        onDisconnected();
    }

    /** The daemon has closed the stream, as it was asked to. */
    synchronized void onClosed() {
        if (stream == Stream.CLOSING) {
            stream = Stream.UNOPENED;
            creditBack = 0;
            near.forgetCredits();
            outbox.restart();
        }
    }

    /** The connection is gone. What is known and not durable is gated here until the daemon is back. */
    void onDisconnected() {
        CompletableFuture<Void> cleared;
        synchronized (this) {
            stream = Stream.UNOPENED;
            waiting = false;
            creditBack = 0;
            near.forgetCredits();
            outbox.restart();
            if (decided) {
                outbox.gateHere((ledgerId, entryId, deliverAtMs) -> {
                    if (contained.contains(ledgerId, entryId) && !handedOut.contains(ledgerId, entryId)) {
                        near.add(ledgerId, entryId, deliverAtMs, false);
                    }
                });
                arm();
            }
            cleared = clearing;
            clearing = null;
        }
        if (cleared != null) {
            cleared.complete(null);
        }
        host.readMore();
    }

    /** The frames to send now, numbered; empty unless the stream is open. */
    synchronized List<Envelope> takeFrames(int streamId) {
        waiting = false;
        if (stream != Stream.OPEN) {
            return List.of();
        }
        if (reopen && !finished) {
            stream = Stream.CLOSING;
            clearSeq = NearTier.NONE;
            return outbox.takeClose(streamId);
        }
        List<Envelope> frames = outbox.takeUnsent(streamId);
        if (!finished && creditBack >= creditStep()) {
            frames.add(new Envelope(streamId, 0, new Frame.Credit(creditBack)));
            creditBack = 0;
        }
        return frames;
    }

    /**
     * Takes over what a former tracker of this subscription had not yet got onto the daemon's disk, unless that was another
     * life of it: the subscription was deleted and made again. What was acknowledged counts if the cursor still has the seal.
     */
    void adopt(TrackerCore former) {
        Outbox left;
        synchronized (former) {
            left = former.outbox;
            former.finished = true;
            former.stream = Stream.UNOPENED;
            former.budget.add(-former.budgeted);
            former.budgeted = 0;
            synchronized (this) {
                if (former.claim.ownership().incarnation().equals(claim.ownership().incarnation())) {
                    if (former.seal.generation() != seal.generation()) {
                        left.dropAcknowledgements();
                    }
                    outbox.adopt(left);
                    accountPending();
                }
            }
        }
    }

    // ---- the watch's side: called every few ms by one thread ------------------------------------------------------

    /** Looks at the cursor: what was handed out and is acknowledged now, how far mark-delete has got, resets. */
    void watch() {
        long nowMs = clock.millis();
        claim();
        long then = seal.generation();
        Positions found = findAcknowledged();
        boolean read = false;
        boolean signal;
        synchronized (this) {
            if (finished) {
                return;
            }
            lookedMs = nowMs;
            report(found, then);
            onMarkDelete(host.markDelete());
            noticeLostReport();
            if (sinceMarkDelete.isOver(nowMs, MARK_DELETE_INTERVAL_MS)) {
                sinceMarkDelete.begin(nowMs);
                reportMarkDelete();
            }
            if (sinceTrim.isOver(nowMs, MARK_DELETE_INTERVAL_MS)) {
                sinceTrim.begin(nowMs);
                trim();
            }
            if (!decided && sinceCreated.isOver(nowMs, settings.daemonWaitMs())) {
                LOG.warn("[{}] The daemon has not answered for {} ms: delayed messages are gated in the broker's memory",
                        host.name(), settings.daemonWaitMs());
                decide(new PositionSet());
                read = true;
            }
            // Another subscription's DURABLE may have made room.
            read |= mayResume();
            if (awaiting && !awaitsAnswer(nowMs) && !ahead.isAwaited(nowMs)) {
                awaiting = false;
                read = true;
            }
            signal = wantsToSend();
        }
        if (read) {
            host.readMore();
        }
        deleteSettling();
        finishClose(nowMs);
        if (signal) {
            host.framesWaiting();
        }
    }

    private Positions findAcknowledged() {
        Positions found = new Positions();
        for (PositionSet candidates : List.of(handedOut, doubtful)) {
            candidates.forEach((ledgerId, entryId) -> {
                if (host.isDeleted(ledgerId, entryId)) {
                    found.add(ledgerId, entryId);
                }
            });
        }
        return found;
    }

    /** Tells what was found, unless the cursor has lost the seal under which that was looked at. */
    private void report(Positions found, long then) {
        noticeReset();
        if (!seal.stood(then)) {
            return;
        }
        // What was not found of them will be read again.
        doubtful.clear();
        if (!found.isEmpty()) {
            Positions acknowledged = new Positions();
            found.forEach((ledgerId, entryId) -> acknowledge(ledgerId, entryId, acknowledged));
            outbox.acknowledge(acknowledged.optimized());
        }
    }

    /** Should a reset ever leave the seal: it takes all acknowledgements back, so the highest one shows it. */
    private void noticeLostReport() {
        long[] last = reported.last();
        if (last != null && !settling.contains(last[0], last[1]) && !host.isDeleted(last[0], last[1])) {
            onReset();
        }
    }

    private void acknowledge(long ledgerId, long entryId, Positions acknowledged) {
        leaveNear(ledgerId, entryId);
        handedOut.remove(ledgerId, entryId);
        contained.remove(ledgerId, entryId);
        reported.add(ledgerId, entryId);
        acknowledged.add(ledgerId, entryId);
    }

    /** The cursor's mark-delete position, which may have moved either way. */
    private void onMarkDelete(TrackerHost.Position position) {
        if (position.equals(markDeleteSeen)) {
            return;
        }
        if (position.compareTo(markDeleteSeen) < 0) {
            // A reset, should it ever leave the seal. It follows the position, too.
            onReset();
        } else {
            followMarkDelete(position);
        }
    }

    private void followMarkDelete(TrackerHost.Position position) {
        markDeleteSeen = position;
        contained.discardUpTo(position.ledgerId(), position.entryId());
        handedOut.discardUpTo(position.ledgerId(), position.entryId());
        settling.discardUpTo(position.ledgerId(), position.entryId());
        creditBack += Math.toIntExact(near.discardUpTo(position.ledgerId(), position.entryId()));
    }

    /** Only forward: a position that goes back is told by OPEN. */
    private void reportMarkDelete() {
        TrackerHost.Position persisted = host.persistedMarkDelete();
        if (persisted.compareTo(markDeleteSent) > 0) {
            markDeleteSent = persisted;
            reported.discardUpTo(persisted.ledgerId(), persisted.entryId());
            outbox.markDelete(persisted.ledgerId(), persisted.entryId());
        }
    }

    /**
     * Deletes what is settling, a chunk at each look. The cursor's answer is only noted where it comes: that may be under the
     * cursor's own lock, or within the call.
     */
    private void deleteSettling() {
        DeleteChunk next;
        long then;
        synchronized (this) {
            if (chunk != null && !settleChunk()) {
                return;
            }
            boolean refused = !sinceDeleteRefused.isOver(clock.millis(), RETRY_MS);
            // A seek disconnects the consumers before it resets the cursor: without any, one may be under way.
            if (settling.isEmpty() || refused || !host.hasConsumers() || host.isClosed()) {
                return;
            }
            then = seal.generation();
            List<TrackerHost.Position> first = new ArrayList<>();
            settling.forFirst(chunkMax, (ledgerId, entryId) -> first.add(new TrackerHost.Position(ledgerId, entryId)));
            next = new DeleteChunk(first);
            chunk = next;
        }
        host.delete(next.positions, then, done -> next.outcome = done);
    }

    /** Whether the chunk under way has been answered; then what follows from it is done. */
    private boolean settleChunk() {
        Boolean done = chunk.outcome;
        if (done == null) {
            return false;
        }
        List<TrackerHost.Position> positions = chunk.positions;
        chunk = null;
        if (done) {
            chunkMax = Math.min(DELETE_CHUNK, chunkMax * 2);
            for (TrackerHost.Position position : positions) {
                if (settling.remove(position.ledgerId(), position.entryId())) {
                    contained.remove(position.ledgerId(), position.entryId());
                }
            }
            return true;
        }
        sinceDeleteRefused.begin(clock.millis());
        if (positions.size() > 1) {
            // One that the cursor refuses must not keep the others.
            chunkMax = Math.max(1, positions.size() / 2);
        } else {
            LOG.warn("[{}] {} cannot be acknowledged again: it may be delivered twice", host.name(), positions.get(0));
            takeBack(positions.get(0));
        }
        return true;
    }

    /** The cursor refuses to have it deleted, so it is delivered again. */
    private void takeBack(TrackerHost.Position position) {
        reported.remove(position.ledgerId(), position.entryId());
        if (settling.remove(position.ledgerId(), position.entryId())) {
            contained.remove(position.ledgerId(), position.entryId());
        }
        Positions one = new Positions();
        one.add(position.ledgerId(), position.entryId());
        outbox.unacknowledge(one);
        signal();
    }

    private void finishClose(long nowMs) {
        boolean finish;
        synchronized (this) {
            // The cursor alone may tell: Pulsar can make a tracker for a dispatcher that has been closed, and never close it.
            finish = !finished && (host.isClosed() || closing && sinceClosing.isOver(nowMs, CLOSE_POLL_MS));
        }
        if (finish) {
            finish();
        }
    }

    /** Reports the last acknowledgements and ends the stream. Idempotent. */
    void finish() {
        long then = seal.generation();
        Positions found = findAcknowledged();
        synchronized (this) {
            if (finished) {
                return;
            }
            report(found, then);
            reportMarkDelete();
            closing = true;
            finished = true;
            undecided.clear();
            if (stream == Stream.OPEN || stream == Stream.OPENING || !outbox.isEmpty()) {
                outbox.close();
            }
            near.clear();
            waiting = true;
        }
        host.cancelWake();
        host.framesWaiting();
    }

    /** Whether {@link #watch} has something to look at more often than once a second. */
    boolean isBusy() {
        return !handedOut.isEmpty() || !reported.isEmpty() || !doubtful.isEmpty() || !settling.isEmpty() || !decided || closing
                || paused || awaiting;
    }

    /** Completes when a finished tracker has nothing left to send. */
    CompletableFuture<Void> whenClosed() {
        return closedFuture;
    }

    /** Whether the last frame of a finished tracker is durable, or nothing of it is left to send. */
    synchronized boolean isClosed() {
        return finished && outbox.isEmpty();
    }

    /** Lock-free. */
    boolean isFinished() {
        return finished;
    }

    synchronized boolean isOpen() {
        return stream == Stream.OPEN;
    }

    /** What the daemon asks about the subscription's index log. */
    CompletableFuture<Frame.LogAnswer> onLogRequest(Frame.LogRequest request) {
        return host.log().answer(request);
    }

    /** Gives the budget back when the tracker is forgotten. */
    void release() {
        host.log().close();
        synchronized (this) {
            budget.add(-budgeted);
            budgeted = 0;
        }
        closedFuture.complete(null);
    }

    synchronized Stats stats() {
        return new Stats(contained.size(), near.size(), handedOut.size(), settling.size(), undecided.size(),
                outbox.pendingEntries(), takenAhead, stream == Stream.OPEN, paused, memoryBytes());
    }

    /** Bytes that the sets, the near tier and the buffers take. */
    synchronized long memoryBytes() {
        return contained.memoryBytes() + handedOut.memoryBytes() + settling.memoryBytes() + reported.memoryBytes()
                + doubtful.memoryBytes() + near.memoryBytes() + outbox.memoryBytes() + undecided.memoryBytes();
    }

    // ---- helpers, called with the lock held -----------------------------------------------------------------------

    private void leaveNear(long ledgerId, long entryId) {
        if (near.remove(ledgerId, entryId) == NearTier.Removed.CREDITED) {
            creditBack++;
        }
    }

    private void signal() {
        waiting = true;
        host.framesWaiting();
    }

    private int creditStep() {
        return Math.max(1, settings.credit() / 8);
    }

    private boolean wantsToSend() {
        boolean wants = stream == Stream.OPEN && !waiting && (outbox.hasUnsent() || reopen || creditBack >= creditStep());
        waiting |= wants;
        return wants;
    }

    private void arm() {
        long headMs = near.headMs();
        if (closing || headMs == NearTier.NONE) {
            return;
        }
        long nowMs = clock.millis();
        if (headMs > nowMs && (headMs < wakeMs || wakeMs <= nowMs)) {
            wakeMs = headMs;
            host.wakeAt(headMs);
        }
    }

    private void trim() {
        contained.trim();
        handedOut.trim();
        settling.trim();
        reported.trim();
        doubtful.trim();
        near.trim();
    }

    /** Whether a paused dispatcher would not pause now: as {@link #shouldPause}, but for what is due. */
    private boolean mayResume() {
        return paused && (!budget.isExceeded() || budgeted == 0);
    }

    private void accountPending() {
        int pending = outbox.pendingEntries() + undecided.size();
        budget.add(pending - budgeted);
        budgeted = pending;
    }
}
