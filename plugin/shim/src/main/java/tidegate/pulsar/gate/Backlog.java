package tidegate.pulsar.gate;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.time.Clock;
import tidegate.pulsar.position.PositionSet;
import tidegate.pulsar.position.SoughtPositions;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.Records;

/**
 * The subscription's backlog, read ahead of the dispatcher: says whether and where to read, and takes the entries.
 *
 * <p>Only the read-ahead thread calls it, without a lock. Each method takes the tracker's lock for a moment, except
 * {@link #isWanted} and {@link #isKnown}.
 */
public final class Backlog {
    private final Object lock;
    private final TrackerContext context;
    private final Clock clock;
    private final PositionSet contained;
    @GuardedBy("lock")
    private final SoughtPositions sought;
    @GuardedBy("lock")
    private final Outbox outbox;
    @GuardedBy("lock")
    private final Pacer pacer;
    @GuardedBy("lock")
    private final DaemonStream stream;
    @GuardedBy("lock")
    private final CursorWatch cursor;
    @GuardedBy("lock")
    private final ReadAheadGate readAhead;
    @GuardedBy("lock")
    private final ReadGate gate;
    @GuardedBy("lock")
    private final Intake intake;
    private final Lifecycle lifecycle;
    @GuardedBy("lock")
    private long takenEntries;

    Backlog(TrackerParts parts, Intake intake, Lifecycle lifecycle) {
        lock = parts.lock;
        context = parts.context;
        clock = parts.clock;
        contained = parts.positions.containedPositions();
        sought = parts.sought;
        outbox = parts.outbox;
        pacer = parts.pacer;
        stream = parts.stream;
        cursor = parts.cursor;
        readAhead = parts.readAhead;
        gate = parts.gate;
        this.intake = intake;
        this.lifecycle = lifecycle;
    }

    // ---- whether to read ------------------------------------------------------------------------------------------

    /** As {@link ReadAheadGate#connect}. */
    public void connect(TopicReader reader, int inVain, int reachEntries, Runnable wakeReader) {
        synchronized (lock) {
            readAhead.connect(reader, inVain, reachEntries, wakeReader);
        }
    }

    /** Takes no lock. */
    @SuppressWarnings("GuardedBy")
    public boolean isWanted() {
        return readAhead.isWanted();
    }

    public void want() {
        synchronized (lock) {
            readAhead.want();
        }
    }

    /** Begins a pass; returns its ticket for adds, or {@link ReadAheadGate#NO_TICKET}. */
    public long begin() {
        synchronized (lock) {
            return readAhead.begin();
        }
    }

    /** True if a pass with that ticket may continue. */
    public boolean mayAdd(long ticket) {
        synchronized (lock) {
            return readAhead.isValid(ticket) && stream.takesMore() && !lifecycle.isEnding();
        }
    }

    /** True if there is room for more: in the broker's budget, and below so many entries of this subscription. */
    public boolean hasRoom(long maxWaiting) {
        synchronized (lock) {
            return gate.hasRoom() && outbox.pendingEntries() < maxWaiting;
        }
    }

    // ---- positions to read ----------------------------------------------------------------------------------------

    /** Needs no lock. */
    public long contained() {
        return contained.size();
    }

    public long sought() {
        synchronized (lock) {
            return sought.size();
        }
    }

    public Position firstSought() {
        synchronized (lock) {
            return sought.first();
        }
    }

    /**
     * True if reading the position would be in vain, because it is contained or acknowledged. Of the positions that the dispatcher has
     * {@code passed}, only sought ones are worth reading. Takes no lock.
     */
    @SuppressWarnings("GuardedBy")
    public boolean isKnown(long ledgerId, long entryId, boolean passed) {
        return !sought.contains(ledgerId, entryId)
                && (passed || contained.contains(ledgerId, entryId) || context.isDeleted(ledgerId, entryId));
    }

    // ---- entries read --------------------------------------------------------------------------------------------

    /**
     * Takes entries of a pass, as if the dispatcher had read them.
     *
     * @return the number taken; -1 if the ticket had expired and none was taken
     */
    public int add(long ticket, Records records, int from, int to) {
        int taken;
        boolean read;
        boolean signal;
        synchronized (lock) {
            cursor.noticeReset();
            if (!mayAdd(ticket)) {
                return -1;
            }
            long nowMs = clock.millis();
            taken = intake.takeAhead(records, from, to, nowMs);
            takenEntries += taken;
            gate.account();
            read = pacer.headMs(nowMs) <= nowMs;
            signal = stream.noteAny();
        }
        if (read) {
            context.readMore();
        }
        if (signal) {
            context.framesWaiting();
        }
        return taken;
    }

    /** The number of entries taken from passes so far. */
    long takenEntries() {
        synchronized (lock) {
            return takenEntries;
        }
    }

    /**
     * Notes that a pass has handled everything before {@code next}, and left the dispatcher entries up to {@code lastLeft}:
     * it may read that far.
     */
    public void advance(Position next, Position lastLeft) {
        boolean read;
        synchronized (lock) {
            long nowMs = clock.millis();
            readAhead.advance(next, lastLeft, nowMs);
            read = gate.mayGoOn(nowMs);
        }
        if (read) {
            context.readMore();
        }
    }

    /** Ends the pass: the dispatcher reads the rest. Takes no lock. */
    @SuppressWarnings("GuardedBy")
    public void end() {
        readAhead.end();
        context.readMore();
    }
}
