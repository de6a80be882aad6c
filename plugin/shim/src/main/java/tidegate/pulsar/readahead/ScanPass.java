package tidegate.pulsar.readahead;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.CompletableFuture;
import java.util.function.LongSupplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.gate.TopicReader;
import tidegate.pulsar.gate.TrackerCore;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.Records;

/**
 * One pass over the entries not read yet, or to be read again, by a subscription's dispatcher: finds the ranges without a
 * holder, has them read, and gives the delayed entries to the tracker, in order. The dispatcher reads the unreadable
 * entries, and everything after the pass's end.
 *
 * <p>It never waits: call {@link #step} again when a read has come. Reads run a few ranges ahead of the handled entries. Not
 * thread-safe.
 */
public final class ScanPass {
    private static final Logger LOG = LoggerFactory.getLogger(ScanPass.class);
    /** Entries that the pass gives the tracker under one hold of its lock. */
    private static final int CHUNK = 256;
    /** A sample is useful if at least one in so many entries was new. */
    private static final int USEFUL_PART = 20;
    private static final int MAX_FAILURES = 3;
    private static final Position NOWHERE = new Position(-1, -1);

    /**
     * A pass's measures.
     *
     * @param worthwhile fewer entries than this before the dispatcher are left to it
     * @param batch entries of one read at most
     * @param gap a longer row of known entries is not read; a shorter one is
     * @param sample this many entries show if reading ahead is of use
     * @param reach entries that the dispatcher reads at once
     */
    public record Stride(int worthwhile, int batch, int gap, int sample, int reach) {}

    enum Progress { WAITS, ADVANCED, ENDED }

    private record Range(long ledgerId, long first, long last, long askedNs, CompletableFuture<TopicReader.Batch> read) {}

    private final TrackerCore core;
    private final TopicReader reader;
    private final Stride stride;
    private final long ticket;
    private final long beganMs;
    private final LongSupplier nanoTime;
    private final Runnable wake;
    private final Deque<Range> ranges = new ArrayDeque<>();
    private final Records found = new Records();

    /** The next position to plan: everything before is handled, under way, or the dispatcher's. */
    private Position next;
    /** The last entry of {@code next}'s ledger; null before the first request. */
    private CompletableFuture<Long> lastEntry;
    private boolean lastEntryIsFresh;
    /** The last position left to the dispatcher so far, or an earlier one. */
    private Position lastLeft = NOWHERE;
    private boolean planned;
    private int failures;
    private long entriesRead;
    private long entriesTold;
    private long sampleRead;
    private long sampleTold;
    private int stepRead;
    private long stepBytes;
    private long stepTookNs;
    private int batch;

    /** {@code nanoTime}: a monotonic time in ns; {@code wake} is called, on any thread, when a step may progress. */
    ScanPass(TrackerCore core, TopicReader reader, Stride stride, long ticket, long nowMs, LongSupplier nanoTime, Runnable wake) {
        this.core = core;
        this.reader = reader;
        this.stride = stride;
        this.ticket = ticket;
        this.nanoTime = nanoTime;
        this.wake = wake;
        beganMs = nowMs;
        next = first();
    }

    /** The first position that may be worth reading: behind the dispatcher only a sought one. */
    private Position first() {
        Position sought = core.backlog().firstSought();
        Position reads = reader.readPosition();
        return sought != null && sought.compareTo(reads) < 0 ? sought : reads;
    }

    /** Progresses as far as possible, with up to {@code window} reads under way, each of so many entries; none if 0. */
    Progress step(int window, int entries) {
        batch = entries;
        stepRead = 0;
        stepBytes = 0;
        stepTookNs = 0;
        if (!core.backlog().mayAdd(ticket) || !reader.isAllowed()) {
            return Progress.ENDED;
        }
        while (batch > 0 && !planned && ranges.size() < window && plan()) {
            // Another read is under way.
        }
        Range head = ranges.peek();
        if (head == null) {
            return planned ? Progress.ENDED : Progress.WAITS;
        }
        if (!head.read().isDone()) {
            return Progress.WAITS;
        }
        ranges.poll();
        boolean goesOn = take(head);
        stepTookNs = nanoTime.getAsLong() - head.askedNs();
        return goesOn ? Progress.ADVANCED : Progress.ENDED;
    }

    /** Its reads under way, or come and not yet handled. */
    int underWay() {
        return ranges.size();
    }

    int stepRead() {
        return stepRead;
    }

    long stepBytes() {
        return stepBytes;
    }

    /** The last step's duration, from the request until the tracker had all, in ns. */
    long stepTookNs() {
        return stepTookNs;
    }

    /** Has the next range read; false if there is none, or it is not known yet. */
    private boolean plan() {
        Position from = first();
        if (from.compareTo(next) > 0) {
            moveTo(from);
        }
        Position end = reader.lastReadable();
        while (next.compareTo(end) <= 0) {
            if (lastEntry == null) {
                Long ledgerId = reader.ledgerFrom(next.ledgerId());
                if (ledgerId == null || ledgerId > end.ledgerId()) {
                    break;
                }
                if (ledgerId != next.ledgerId()) {
                    next = new Position(ledgerId, 0);
                }
                look(true);
            }
            if (!lastEntry.isDone()) {
                return false;
            }
            if (lastEntry.isCompletedExceptionally()) {
                if (!leave("opened")) {
                    break;
                }
                continue;
            }
            long confirmed = lastEntry.join();
            if (confirmed < 0) {
                // It may be elsewhere, readable for the dispatcher.
                leaveUpTo(new Position(next.ledgerId(), Long.MAX_VALUE));
            }
            long last = next.ledgerId() == end.ledgerId() ? Math.min(confirmed, end.entryId()) : confirmed;
            if (planIn(last)) {
                return true;
            }
            if (next.ledgerId() == end.ledgerId()) {
                // Producers may have published meanwhile; one look is enough: the dispatcher reads the newest.
                if (lastEntryIsFresh || next.compareTo(end) > 0) {
                    break;
                }
                look(true);
            } else {
                moveTo(new Position(next.ledgerId() + 1, 0));
            }
        }
        planned = true;
        return false;
    }

    /** Has this ledger's next range without a holder read; false if there is none up to {@code last}. */
    private boolean planIn(long last) {
        long ledgerId = next.ledgerId();
        Position reads = reader.readPosition();
        // Below it, this ledger's entries are the dispatcher's already.
        long unread = reads.ledgerId() == ledgerId ? reads.entryId() : reads.ledgerId() > ledgerId ? Long.MAX_VALUE : 0;
        long first = next.entryId();
        while (first <= last && core.backlog().isKnown(ledgerId, first, first < unread)) {
            first++;
        }
        if (first > last) {
            next = new Position(ledgerId, first);
            return false;
        }
        long lastUnknown = first;
        for (long entry = first + 1; entry <= last && entry < first + batch && entry - lastUnknown <= stride.gap(); entry++) {
            if (!core.backlog().isKnown(ledgerId, entry, entry < unread)) {
                lastUnknown = entry;
            }
        }
        if (entriesRead == 0 && ranges.isEmpty()) {
            core.backlog().advance(new Position(ledgerId, first), lastLeft);
        }
        ranges.add(read(ledgerId, first, lastUnknown));
        next = new Position(ledgerId, lastUnknown + 1);
        lastEntryIsFresh = false;
        return true;
    }

    private Range read(long ledgerId, long first, long last) {
        long askedNs = nanoTime.getAsLong();
        CompletableFuture<TopicReader.Batch> batch = reader.read(ledgerId, first, (int) (last - first + 1));
        batch.whenComplete((entries, error) -> wake.run());
        return new Range(ledgerId, first, last, askedNs, batch);
    }

    private void look(boolean fresh) {
        lastEntry = reader.lastEntry(next.ledgerId());
        lastEntryIsFresh = fresh;
        lastEntry.whenComplete((entry, error) -> wake.run());
    }

    private void moveTo(Position position) {
        if (position.ledgerId() != next.ledgerId()) {
            lastEntry = null;
        }
        next = position;
    }

    /** Leaves something at or before the position to the dispatcher. */
    private void leaveUpTo(Position position) {
        if (position.compareTo(lastLeft) > 0) {
            lastLeft = position;
        }
    }

    /** Leaves the ledger's rest to the dispatcher; false if that happened too often. */
    private boolean leave(String verb) {
        leaveUpTo(new Position(next.ledgerId(), Long.MAX_VALUE));
        LOG.debug("[{}] Ledger {} cannot be {} ahead: it is left to the dispatcher", core.name(), next.ledgerId(), verb);
        moveTo(new Position(next.ledgerId() + 1, 0));
        return ++failures < MAX_FAILURES;
    }

    /** Handles entries read; false if the pass is over. */
    private boolean take(Range range) {
        if (range.read().isCompletedExceptionally()) {
            leaveUpTo(new Position(range.ledgerId(), Long.MAX_VALUE));
            if (next.ledgerId() == range.ledgerId() && !leave("read")) {
                return false;
            }
            ranges.stream().filter(other -> other.ledgerId() == range.ledgerId()).forEach(ScanPass::drop);
            ranges.removeIf(other -> other.ledgerId() == range.ledgerId());
            return true;
        }
        try (TopicReader.Batch entries = range.read().join()) {
            if (entries.size() == 0) {
                return false;
            }
            found.clear();
            entries.forEachDelayed(found::add);
            int told = tell();
            if (told < 0) {
                return false;
            }
            stepRead = entries.size();
            stepBytes = entries.sizeBytes();
            entriesRead += stepRead;
            entriesTold += told;
            long done = range.first() + stepRead - 1;
            if (done < range.last()) {
                ranges.addFirst(read(range.ledgerId(), done + 1, range.last()));
            }
            if (found.size() < stepRead) {
                leaveUpTo(new Position(range.ledgerId(), done));
            }
            core.backlog().advance(new Position(range.ledgerId(), done + 1), lastLeft);
        }
        return isUseful();
    }

    /** Gives the tracker the entries found, a little at a time; returns how many were new, -1 if it takes none any more. */
    private int tell() {
        int told = 0;
        for (int from = 0; from < found.size(); from += CHUNK) {
            int taken = core.backlog().add(ticket, found, from, Math.min(found.size(), from + CHUNK));
            if (taken < 0) {
                return -1;
            }
            told += taken;
        }
        return told;
    }

    /** True if enough of the entries read were new: otherwise the topic is read twice for little. */
    private boolean isUseful() {
        if (entriesRead - sampleRead < stride.sample()) {
            return true;
        }
        boolean useful = (entriesTold - sampleTold) * USEFUL_PART >= entriesRead - sampleRead;
        sampleRead = entriesRead;
        sampleTold = entriesTold;
        return useful;
    }

    void end(long nowMs) {
        ranges.forEach(ScanPass::drop);
        ranges.clear();
        reader.close();
        core.backlog().end();
        if (entriesRead > 0) {
            LOG.info("[{}] Read ahead of the dispatcher: {} entries in {} ms, {} of them delayed and not held yet", core.name(),
                    entriesRead, nowMs - beganMs, entriesTold);
        }
    }

    private static void drop(Range range) {
        range.read().thenAccept(TopicReader.Batch::close);
    }
}
