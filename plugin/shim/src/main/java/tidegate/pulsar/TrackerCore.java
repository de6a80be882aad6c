package tidegate.pulsar;

import java.time.Clock;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.Frame.Envelope;

/**
 * The delayed messages of one subscription as the broker sees them: a state machine without Pulsar types and without I/O.
 *
 * <p>Its parts: the positions by state ({@link PositionStates}), what the cursor shows ({@link CursorWatch}), the stream to the
 * daemon ({@link DaemonStream}) and what goes out on it ({@link Outbox}), what is deleted in the cursor again
 * ({@link SettlingDeletes}), and whether the dispatcher may read ({@link ReadGate}). They know nothing of each other's doings but
 * what they are handed; what happens when is decided here.
 *
 * <p>Rules kept here: skip only what the index surely holds; never early ({@code clock >= deliver_at}, whatever the tick). What is
 * known acknowledged is true of one {@link Seal} of the cursor: it is told the daemon under that seal, believed under that seal,
 * and looked at again when that seal is gone. All state but the lock-free sets is guarded by this object's monitor, that of the
 * parts, too; the order of locks is dispatcher, then core, and the core calls nothing that takes the dispatcher's lock while it
 * holds its own.
 */
final class TrackerCore {
    private static final Logger LOG = LoggerFactory.getLogger(TrackerCore.class);
    private static final long LOOK_INTERVAL_MS = 1000;
    private static final long CLOSE_POLL_MS = 2000;
    private static final long MAX_LOOK_AGE_MS = 2000;

    /** What the tracker is told at its creation; times in ms. */
    record Settings(String topic, String subscription, Ownership ownership, int horizonMs, int credit, long nearMaxEntries,
                    long daemonWaitMs) {}

    /** A picture of the state for metrics and tests. */
    record Stats(long tracked, long near, long handedOut, long settling, long undecided, long pending, long readAhead,
                 boolean open, boolean paused, long memoryBytes) {}

    private final TrackerHost host;
    private final Clock clock;
    private final Settings settings;
    private final Seal seal;
    private final Claim claim;
    private final AheadGate ahead = new AheadGate();
    private final PositionStates positions = new PositionStates();
    private final Outbox outbox = new Outbox();
    private final DaemonStream stream;
    private final CursorWatch cursor;
    private final SettlingDeletes deletes;
    private final ReadGate gate;

    /** When the clock was read last; never later than the clock, unless it was set back. */
    private long lookedMs;
    private long wakeMs = NearTier.NONE;
    private final Wait sinceMarkDelete = new Wait();
    private final Wait sinceTrim = new Wait();
    /** How many entries have been taken that were read ahead. */
    private long takenAhead;

    private volatile boolean closing;
    private volatile boolean finished;
    private final Wait sinceClosing = new Wait();
    private final CompletableFuture<Void> closedFuture = new CompletableFuture<>();

    TrackerCore(TrackerHost host, Clock clock, Settings settings, Seal seal, PendingBudget budget) {
        this.host = host;
        this.clock = clock;
        this.settings = settings;
        this.seal = seal;
        claim = new Claim(host, settings.ownership());
        stream = new DaemonStream(host, settings, outbox, positions);
        cursor = new CursorWatch(host, seal, positions, outbox, this::afterReset);
        deletes = new SettlingDeletes(host, positions, this::onDeleteRefused);
        gate = new ReadGate(host, budget, clock.millis());
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
            claim.written(done, clock.millis());
        }
        if (done) {
            host.framesWaiting();
        }
    }

    /** Speaks for the subscription as its last tracker did, without a claim of its own. */
    synchronized void speakForLast() {
        claim.take();
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
            if (!positions.enter(ledgerId, entryId)) {
                return addAgain(ledgerId, entryId, deliverAtMs);
            }
            if (!positions.isDecided()) {
                positions.postpone(ledgerId, entryId, deliverAtMs);
                return true;
            }
            tracked = addNew(ledgerId, entryId, deliverAtMs, nowFor(deliverAtMs));
            ahead.onReadInVain();
            signal = stream.noteAdded();
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
        boolean wasReported = positions.isReported(ledgerId, entryId);
        boolean isDoubtful = positions.isDoubtful(ledgerId, entryId);
        if ((wasReported || isDoubtful || deliverAtMs <= nowMs) && host.isDeleted(ledgerId, entryId)) {
            // Read before it was acknowledged: the second of two overlapping replay reads, see addAgain.
            positions.leave(ledgerId, entryId);
            return true;
        }
        if (wasReported) {
            // The cursor was reset, or it would not have been read.
            cursor.onReset();
        }
        if (deliverAtMs <= nowMs) {
            positions.handOut(ledgerId, entryId);
            return false;
        }
        track(ledgerId, entryId, deliverAtMs, nowMs);
        return true;
    }

    /** A position that is contained was read all the same: a redelivery, or a read that began before it was contained. */
    private boolean addAgain(long ledgerId, long entryId, long deliverAtMs) {
        if (!positions.isDecided() || positions.isSettling(ledgerId, entryId)) {
            return true;
        }
        if (positions.find(ledgerId, entryId)) {
            return addFound(ledgerId, entryId, deliverAtMs);
        }
        if (deliverAtMs <= clock.millis()) {
            // Pulsar may replay a position twice: its dispatcher takes the end of one batch for the end of another that
            // still waits to be sent, and reads what that one holds again. A true redelivery leaves its consumer first.
            if (positions.isHandedOut(ledgerId, entryId)
                    && (host.isOutstanding(ledgerId, entryId) || host.isDeleted(ledgerId, entryId))) {
                return true;
            }
            positions.handOut(ledgerId, entryId);
            return false;
        }
        // The clock may have been set back since it was handed out.
        if (positions.takeBack(ledgerId, entryId, deliverAtMs)) {
            arm();
        }
        return true;
    }

    /** What nobody held any more has been read: as a new one, but for what came back by itself meanwhile. */
    private boolean addFound(long ledgerId, long entryId, long deliverAtMs) {
        boolean tracked = addNew(ledgerId, entryId, deliverAtMs, nowFor(deliverAtMs));
        if (stream.noteAdded()) {
            stream.signal();
        }
        return tracked;
    }

    /** Makes a new entry known to the daemon and, if it is due soon or nobody else can gate it, to the near tier. */
    private void track(long ledgerId, long entryId, long deliverAtMs, long nowMs) {
        boolean gateHere = !stream.isOpen()
                || deliverAtMs <= nowMs + settings.horizonMs() && positions.near() < settings.nearMaxEntries();
        if (gateHere) {
            positions.gate(ledgerId, entryId, deliverAtMs);
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
        return positions.contains(ledgerId, entryId);
    }

    synchronized boolean hasDue() {
        lookedMs = clock.millis();
        boolean due = positions.headMs() <= lookedMs;
        if (!due) {
            arm();
        }
        return due || mayAsk(lookedMs);
    }

    /** Whether the dispatcher is to read what nobody holds any more: unless a pass ahead gets on with it, or too much waits. */
    private boolean mayAsk(long nowMs) {
        return positions.sought() > 0 && positions.isDecided() && gate.hasRoom() && !ahead.isAwaited(nowMs);
    }

    /** The wake-up asked for with {@link TrackerHost#wakeAt}. */
    void onWake() {
        boolean due;
        synchronized (this) {
            wakeMs = NearTier.NONE;
            due = positions.headMs() <= clock.millis();
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
        return positions.headMs();
    }

    /**
     * Hands out at most {@code max} entries whose time has come, in (deliver_at, position) order; then what is to be read again,
     * which {@link #addMessage} takes back if it is not due.
     */
    void popDue(int max, Positions.Visitor visitor) {
        boolean signal;
        synchronized (this) {
            long nowMs = clock.millis();
            int popped = 0;
            for (; popped < max && positions.headMs() <= nowMs; popped++) {
                positions.popHead(visitor);
            }
            if (popped < max && mayAsk(nowMs)) {
                positions.askFor(max - popped, visitor);
            }
            arm();
            signal = stream.noteAny();
        }
        if (signal) {
            host.framesWaiting();
        }
    }

    /**
     * Called before every read, with the dispatcher's lock held: notices resets and that all consumers were replaced, and tells
     * whether reading must pause.
     */
    boolean shouldPause() {
        boolean replaced = host.consumersReplaced();
        synchronized (this) {
            cursor.noticeReset();
            long nowMs = clock.millis();
            if (replaced) {
                // Pulsar has forgotten its redelivery list and rewound: what was handed out is due again, and still contained.
                positions.takeAllBack();
                ahead.want();
            }
            boolean hasDue = positions.headMs() <= nowMs;
            if (gate.awaits(isAsking(), ahead.isAwaited(nowMs) && !hasDue, nowMs)) {
                arm();
                return true;
            }
            accountPending();
            boolean pause = gate.pauses(hasDue);
            if (pause) {
                arm();
            }
            return pause;
        }
    }

    /** Whether the daemon is being asked what it holds, or will be as soon as the subscription is claimed. */
    private boolean isAsking() {
        return !positions.isDecided() && (stream.isOpening() || !claim.isOwned());
    }

    /** Delayed messages that were not handed out: what Pulsar shows as msgDelayed. */
    long delayedMessages() {
        return positions.delayed();
    }

    /**
     * The backlog was cleared, or the subscription is being deleted. With consumers it is the former, and mark-delete tells
     * up to where: what was published and read since then stays. Without, everything is forgotten: who comes rewinds.
     */
    CompletableFuture<Void> clear() {
        if (host.hasConsumers()) {
            synchronized (this) {
                cursor.onMarkDelete(host.markDelete());
                reportMarkDelete();
                stream.note();
            }
            host.framesWaiting();
            return CompletableFuture.completedFuture(null);
        }
        CompletableFuture<Void> former;
        CompletableFuture<Void> cleared;
        PositionSet forgotten;
        synchronized (this) {
            forgotten = positions.allContained();
            positions.clear();
            ahead.renew();
            former = stream.takeClearing();
            cleared = stream.clear();
            accountPending();
        }
        former.complete(null);
        host.framesWaiting();
        if (host.hasConsumers()) {
            readAgainWhatWasForgotten(forgotten);
        }
        return cleared;
    }

    /** Who came just before it was forgotten has rewound already: what it skipped, or read, is nobody's now. */
    private void readAgainWhatWasForgotten(PositionSet forgotten) {
        PositionSet lost = new PositionSet();
        forgotten.forEach((ledgerId, entryId) -> {
            if (!host.isDeleted(ledgerId, entryId) && !host.isOutstanding(ledgerId, entryId)) {
                lost.add(ledgerId, entryId);
            }
        });
        synchronized (this) {
            positions.enterAll(lost);
            positions.seek(lost);
            ahead.want();
        }
        host.readMore();
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
        return ahead.isValid(ticket) && stream.takesMore() && !closing && !finished;
    }

    /** Whether there is room for more: in the broker's budget, and below so many entries of this subscription. */
    synchronized boolean mayReadAhead(long maxWaiting) {
        return gate.hasRoom() && outbox.pendingEntries() < maxWaiting;
    }

    /** How many positions nobody holds any more, so that they are to be read again. */
    synchronized long sought() {
        return positions.sought();
    }

    /** The lowest of them; null if there is none. */
    synchronized TrackerHost.Position firstSought() {
        return positions.firstSought();
    }

    /**
     * Whether reading the position would be in vain: it is contained, or acknowledged. Of what the dispatcher has {@code passed}
     * only what is sought is worth reading.
     */
    boolean isKnown(long ledgerId, long entryId, boolean passed) {
        return !positions.isSought(ledgerId, entryId)
                && (passed || positions.contains(ledgerId, entryId) || host.isDeleted(ledgerId, entryId));
    }

    /**
     * Takes entries that were read ahead, as if the dispatcher had read them. What is contained and not sought, acknowledged or
     * doubtful is left as it is.
     *
     * @return how many were taken; -1 if the ticket is not valid any more and none was
     */
    int addAhead(long ticket, Records records, int from, int to) {
        int taken = 0;
        boolean read;
        boolean signal;
        synchronized (this) {
            cursor.noticeReset();
            if (!mayAddAhead(ticket)) {
                return -1;
            }
            long nowMs = clock.millis();
            lookedMs = nowMs;
            for (int i = from; i < to; i++) {
                long ledgerId = records.ledgerId(i);
                long entryId = records.entryId(i);
                // In this order: what was handed out is contained until it has been seen deleted.
                boolean unknown = positions.isSought(ledgerId, entryId)
                        || !positions.contains(ledgerId, entryId) && !host.isDeleted(ledgerId, entryId);
                if (unknown && !positions.isReported(ledgerId, entryId) && !positions.isDoubtful(ledgerId, entryId)) {
                    positions.find(ledgerId, entryId);
                    positions.enter(ledgerId, entryId);
                    track(ledgerId, entryId, records.deliverAtMs(i), nowMs);
                    taken++;
                }
            }
            takenAhead += taken;
            accountPending();
            read = positions.headMs() <= nowMs;
            signal = stream.noteAny();
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
            read = gate.goOn();
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
        long nowMs = clock.millis();
        if (!stream.mayOpen(nowMs) || finished && outbox.isEmpty() || !claim.isOwned()) {
            return null;
        }
        return stream.open(claim.ownership(), seal.generation(), finished, nowMs);
    }

    void onHeld(Frame.Held held) {
        synchronized (this) {
            if (stream.isOpen() && !finished) {
                onHeldSince(held.held());
            }
            if (!stream.isOpening()) {
                return;
            }
        }
        stream.collect(held);
        if (held.last()) {
            onHeldComplete();
        }
    }

    /**
     * The daemon has got entries from elsewhere since it has answered OPEN, as from a rebuild: they need not be read. What it
     * had not heard when it said so counts, and what was acknowledged is left to the cursor. Lock held.
     */
    private void onHeldSince(Positions held) {
        PositionSet since = new PositionSet();
        since.addAll(held);
        outbox.applyPendingTo(since, new PositionSet());
        TrackerHost.Position markDelete = host.markDelete();
        since.discardUpTo(markDelete.ledgerId(), markDelete.entryId());
        positions.enterUnacknowledged(since);
    }

    private void onHeldComplete() {
        synchronized (this) {
            stream.correctAnswer();
        }
        // Asking the cursor about each may take long, so it is done without the lock.
        PositionSet undone = new PositionSet();
        stream.acknowledged().forEach((ledgerId, entryId) -> {
            if (!host.isDeleted(ledgerId, entryId)) {
                undone.add(ledgerId, entryId);
            }
        });
        PositionSet lost;
        synchronized (this) {
            // Once more: the watch and the dispatcher went on meanwhile.
            stream.correctAnswer();
            TrackerHost.Position markDelete = host.markDelete();
            stream.discardUpTo(markDelete);
            cursor.onMarkDelete(markDelete);
            believe(undone);
            lost = stream.notHeld();
            positions.seek(lost);
            positions.enterAll(stream.held());
            positions.leaveToDaemon(stream.leftToDaemon());
            undone.forEach(this::settle);
            positions.knowReported(stream.acknowledged());
            stream.opened();
            decide(stream.held());
            ahead.open();
            stream.answerDone();
        }
        host.framesWaiting();
        readAgain(lost);
        host.readMore();
        deleteSettling();
    }

    /**
     * Decides whether what the daemon knows acknowledged is still so. {@code undone} is what of it the cursor does not have as
     * deleted: a crash made it forget that, unless this tracker has seen it deleted, which only a reset takes back.
     */
    private void believe(PositionSet undone) {
        boolean[] seenDeleted = {false};
        undone.forEach((ledgerId, entryId) ->
                seenDeleted[0] |= positions.isReported(ledgerId, entryId) && !positions.isSettling(ledgerId, entryId));
        if (seenDeleted[0]) {
            cursor.onReset();
        } else {
            cursor.noticeReset();
        }
        if (stream.generation() != seal.generation() || stream.generation() == Seal.NONE) {
            stream.acknowledged().clear();
            undone.clear();
        }
    }

    /** Unless the mark-delete position has passed it meanwhile, or a pending frame says otherwise. */
    private void settle(long ledgerId, long entryId) {
        if (stream.acknowledged().contains(ledgerId, entryId)) {
            positions.settle(ledgerId, entryId);
        }
    }

    /**
     * The dispatcher, or a pass ahead of it, reads again what was lost, and nothing else: consumers keep what they have, and
     * what they acknowledge meanwhile counts.
     */
    private void readAgain(PositionSet lost) {
        if (lost.isEmpty()) {
            return;
        }
        PositionSet deleted = new PositionSet();
        lost.forEach((ledgerId, entryId) -> {
            if (host.isDeleted(ledgerId, entryId)) {
                deleted.add(ledgerId, entryId);
            }
        });
        synchronized (this) {
            positions.leaveSought(deleted);
            ahead.want();
        }
        if (lost.size() > deleted.size()) {
            LOG.warn("[{}] The daemon no longer holds {} positions: they are read again", host.name(),
                    lost.size() - deleted.size());
        }
    }

    /** Decides what was read while it was not known what the daemon holds. */
    private void decide(PositionSet held) {
        Records entries = positions.decide();
        long nowMs = clock.millis();
        for (int i = 0; i < entries.size(); i++) {
            long ledgerId = entries.ledgerId(i);
            long entryId = entries.entryId(i);
            // Not contained any more: the mark-delete position has passed it meanwhile.
            if (positions.contains(ledgerId, entryId) && !held.contains(ledgerId, entryId)
                    && !positions.isSettling(ledgerId, entryId)) {
                if (positions.isReported(ledgerId, entryId)) {
                    positions.leave(ledgerId, entryId);
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
            if (!stream.isOpen() || finished) {
                return;
            }
            // Else it is handed out when due, and Pulsar leaves out what is deleted.
            boolean sure = seal.stood(then);
            Positions acknowledged = new Positions();
            for (int i = 0; i < deleted.length; i++) {
                if (deleted[i] && sure) {
                    positions.freeCredit();
                    acknowledged.add(records.ledgerId(i), records.entryId(i));
                } else {
                    positions.push(records.ledgerId(i), records.entryId(i), records.deliverAtMs(i));
                }
            }
            if (!acknowledged.isEmpty()) {
                cursor.acknowledge(acknowledged);
            }
            isDue = positions.headMs() <= clock.millis();
            if (!isDue) {
                arm();
            }
            signal = stream.noteAny();
        }
        if (isDue) {
            host.readMore();
        }
        if (signal) {
            host.framesWaiting();
        }
    }

    void onDurable(long seq) {
        CompletableFuture<Void> cleared;
        boolean resume;
        synchronized (this) {
            if (!stream.durable(seq)) {
                return;
            }
            accountPending();
            resume = gate.mayResume();
            cleared = stream.takeClearingUpTo(seq);
        }
        cleared.complete(null);
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
                if (!positions.isNear(ledgerId, entryId) && !positions.isHandedOut(ledgerId, entryId)
                        && positions.contains(ledgerId, entryId)) {
                    lost.add(ledgerId, entryId);
                }
            });
            outbox.forEachPendingAdd((ledgerId, entryId, deliverAtMs) -> lost.remove(ledgerId, entryId));
            positions.seek(lost);
        }
        readAgain(lost);
        host.readMore();
    }

    /** The daemon gave the stream up (disk full, stale epoch, …): like a lost connection, for this stream alone. */
    void onStreamError(int code, String message) {
        synchronized (this) {
            stream.refused(code, message, clock.millis());
            if (code == ProtocolException.STALE_EPOCH) {
                claim.lost();
            }
        }
        onDisconnected();
    }

    /** The daemon has closed the stream, as it was asked to. */
    synchronized void onClosed() {
        stream.closed();
    }

    /** The connection is gone. What is known and not durable is gated here until the daemon is back. */
    void onDisconnected() {
        CompletableFuture<Void> cleared;
        synchronized (this) {
            stream.lost();
            if (positions.isDecided()) {
                outbox.gateHere(positions::gateAgain);
                arm();
            }
            cleared = stream.takeClearing();
        }
        cleared.complete(null);
        host.readMore();
    }

    /** The frames to send now, numbered; empty unless the stream is open. */
    synchronized List<Envelope> takeFrames(int streamId) {
        return stream.takeFrames(streamId, finished);
    }

    /**
     * Takes over what a former tracker of this subscription had not yet got onto the daemon's disk, unless that was another
     * life of it: the subscription was deleted and made again. What was acknowledged counts if the cursor still has the seal.
     */
    void adopt(TrackerCore former) {
        synchronized (former) {
            former.finished = true;
            former.stream.abandon();
            former.gate.account(0);
            synchronized (this) {
                if (former.claim.ownership().incarnation().equals(claim.ownership().incarnation())) {
                    if (former.seal.generation() != seal.generation()) {
                        former.outbox.dropAcknowledgements();
                    }
                    outbox.adopt(former.outbox);
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
        Positions found = cursor.findAcknowledged();
        boolean read = false;
        boolean signal;
        synchronized (this) {
            if (finished) {
                return;
            }
            lookedMs = nowMs;
            cursor.report(found, then);
            cursor.onMarkDelete(host.markDelete());
            cursor.noticeLostReport();
            if (sinceMarkDelete.isOver(nowMs, LOOK_INTERVAL_MS)) {
                sinceMarkDelete.begin(nowMs);
                reportMarkDelete();
            }
            if (sinceTrim.isOver(nowMs, LOOK_INTERVAL_MS)) {
                sinceTrim.begin(nowMs);
                positions.trim();
            }
            if (!positions.isDecided() && gate.isOlderThan(settings.daemonWaitMs(), nowMs)) {
                LOG.warn("[{}] The daemon has not answered for {} ms: delayed messages are gated in the broker's memory",
                        host.name(), settings.daemonWaitMs());
                decide(new PositionSet());
                read = true;
            }
            // Another subscription's DURABLE may have made room.
            read |= gate.mayResume();
            read |= gate.mayGoOn(isAsking(), ahead.isAwaited(nowMs), nowMs) || mayAsk(nowMs);
            signal = stream.noteAny();
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

    /** Nothing that was known acknowledged is believed any more. Lock held. */
    private void afterReset() {
        deletes.abandon();
        stream.reopen();
    }

    private void reportMarkDelete() {
        TrackerHost.Position persisted = host.persistedMarkDelete();
        if (stream.tellMarkDelete(persisted)) {
            positions.discardReportedUpTo(persisted);
        }
    }

    private void deleteSettling() {
        SettlingDeletes.Chunk next;
        synchronized (this) {
            next = deletes.next(seal.generation(), clock.millis());
        }
        if (next != null) {
            deletes.begin(next);
        }
    }

    /** The cursor refuses to have it deleted, so it is delivered again. Lock held. */
    private void onDeleteRefused(TrackerHost.Position position) {
        positions.unreport(position.ledgerId(), position.entryId());
        Positions one = new Positions();
        one.add(position.ledgerId(), position.entryId());
        outbox.unacknowledge(one);
        stream.signal();
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
        Positions found = cursor.findAcknowledged();
        synchronized (this) {
            if (finished) {
                return;
            }
            cursor.report(found, then);
            reportMarkDelete();
            closing = true;
            finished = true;
            positions.stop();
            if (!host.isDurable()) {
                outbox.clear();
            }
            stream.end();
        }
        host.cancelWake();
        host.framesWaiting();
    }

    /** Whether {@link #watch} has something to look at more often than once a second. */
    boolean isBusy() {
        return positions.hasUnseen() || positions.sought() > 0 || closing || gate.isPaused() || gate.isAwaiting();
    }

    // ---- the end, and telling -------------------------------------------------------------------------------------

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

    /** Whether a dispatcher still asks it. Lock-free. */
    boolean isLive() {
        return !closing && !finished && !host.isClosed();
    }

    synchronized boolean isOpen() {
        return stream.isOpen();
    }

    /** What the daemon asks about the subscription's index log. */
    CompletableFuture<Frame.LogAnswer> onLogRequest(Frame.LogRequest request) {
        return host.log().answer(request);
    }

    /** Gives the budget back when the tracker is forgotten. */
    void release() {
        host.log().close();
        synchronized (this) {
            gate.account(0);
        }
        closedFuture.complete(null);
    }

    synchronized Stats stats() {
        return new Stats(positions.contained(), positions.near(), positions.handedOut(), positions.settling(),
                positions.undecided(), outbox.pendingEntries(), takenAhead, stream.isOpen(), gate.isPaused(), memoryBytes());
    }

    /** Bytes that the sets, the near tier and the buffers take. */
    synchronized long memoryBytes() {
        return positions.memoryBytes() + outbox.memoryBytes();
    }

    /** @throws IllegalStateException if an invariant of a part does not hold */
    synchronized void check() {
        positions.check();
        cursor.check();
        stream.check();
        deletes.check();
        gate.check();
    }

    // ---- helpers, called with the lock held -----------------------------------------------------------------------

    private void arm() {
        long headMs = positions.headMs();
        if (closing || headMs == NearTier.NONE) {
            return;
        }
        long nowMs = clock.millis();
        if (headMs > nowMs && (headMs < wakeMs || wakeMs <= nowMs)) {
            wakeMs = headMs;
            host.wakeAt(headMs);
        }
    }

    private void accountPending() {
        gate.account(outbox.pendingEntries() + positions.undecided());
    }
}
