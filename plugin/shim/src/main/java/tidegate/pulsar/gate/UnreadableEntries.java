package tidegate.pulsar.gate;

import java.util.ArrayList;
import java.util.List;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.gate.TrackerContext.Readable;
import tidegate.pulsar.position.PositionView;
import tidegate.pulsar.timing.Wait;
import tidegate.pulsar.wire.Position;

/**
 * Entries that hold the dispatcher up: lost ones, or all of a lost ledger; and later chunks of a message whose first chunk
 * the dispatcher has not met, or never will.
 *
 * <p>Pulsar reads due entries by position, lowest first, and one unreadable entry fails the whole read, again and again. It
 * skips lost data (autoSkipNonRecoverableData) only in a normal read, which does not happen while entries are due, nor for
 * held positions. So this class reads an entry that stays the lowest for a while by itself. If it is lost, it is skipped as
 * in a normal read, or a log line names it.
 *
 * <p>A Shared dispatcher of Pulsar 4 queues a later chunk for redelivery again and again, unless it has read the first one,
 * which after a failover it may have skipped as held. So this class has it read the entries before the chunk once more. If the
 * first one is acknowledged, no consumer can assemble the message: this class acknowledges the chunk, too, as a consumer
 * would.
 *
 * <p>The thread that watches the cursor calls it without any lock. It changes no state of the tracker: a skipped entry shows
 * as acknowledged, like any other.
 */
final class UnreadableEntries {
    private static final Logger LOG = LoggerFactory.getLogger(UnreadableEntries.class);
    private static final long LOOK_INTERVAL_MS = 1000;
    private static final long FIRST_PAUSE_MS = 1000;
    private static final long MAX_PAUSE_MS = 10_000;
    /** A question without an answer for this long is repeated. */
    private static final long ANSWER_WAIT_MS = 60_000;
    private static final long SAY_AGAIN_MS = 60_000;
    /** Lost entries mostly have lost neighbours: this many are tried together. */
    private static final int SWEEP_ENTRIES = 100;
    /** Most entries of a ledger checked for being tracked, to find the neighbours. */
    private static final int SWEEP_REACH = 4096;
    /**
     * The first number of entries read before a chunk, then more; fewer than a pass ahead is worth, as it would skip some.
     */
    private static final int BEFORE_MIN = 100;
    private static final int BEFORE_FACTOR = 3;
    private static final int BEFORE_MAX = 900;

    /** Makes the dispatcher read at most so many waiting positions before a chunk again. */
    @FunctionalInterface
    interface ReadsBefore {
        void of(Position chunk, int max);
    }

    private record Asked(Position position, Answer answer) {}

    private static final class Answer {
        private volatile Readable readable;
    }

    private final TrackerContext context;
    private final Seal seal;
    private final PositionView positions;
    private final List<Asked> asked = new ArrayList<>();
    private final Wait sinceLooked = new Wait();
    private final Wait sinceAsked = new Wait();
    private final Wait sinceSuspected = new Wait();
    private final Wait sinceSaid = new Wait();
    /** The lowest position with the dispatcher and no consumer; null while none stays. */
    private Position suspect;
    private long pauseMs;
    /** The last chunk found, and the number of entries before it to be read next. */
    private Position chunk;
    private int before;
    private final Wait sinceBefore = new Wait();
    private long generation;

    UnreadableEntries(TrackerContext context, Seal seal, PositionView positions) {
        this.context = context;
        this.seal = seal;
        this.positions = positions;
    }

    /** Checks that the dispatcher progresses, acts on answers, and asks due questions. */
    void look(long nowMs, ReadsBefore reads) {
        if (!asked.isEmpty()) {
            finish(nowMs, reads);
            return;
        }
        if (!sinceLooked.isOver(nowMs, LOOK_INTERVAL_MS)) {
            return;
        }
        sinceLooked.begin(nowMs);
        // A seek disconnects the consumers before it resets the cursor: without any, one may be under way.
        boolean replays = context.redeliveries() > 0 && context.hasConsumers() && !context.isClosed();
        Position lowest = replays ? lowest() : null;
        if (lowest == null || !lowest.equals(suspect)) {
            suspect = lowest;
            pauseMs = FIRST_PAUSE_MS;
            sinceSuspected.begin(nowMs);
        } else if (sinceSuspected.isOver(nowMs, pauseMs)) {
            ask(List.of(lowest), nowMs);
        }
    }

    /** The lowest position with the dispatcher, or redelivered by itself, and no consumer. */
    private Position lowest() {
        Position given = positions.lowestUnseen(this::isWithNobody);
        Position first = context.firstRedelivery();
        boolean isFirst = first != null && (given == null || first.compareTo(given) < 0)
                && isWithNobody(first.ledgerId(), first.entryId());
        return isFirst ? first : given;
    }

    private boolean isWithNobody(long ledgerId, long entryId) {
        return !context.isDeleted(ledgerId, entryId) && !context.isOutstanding(ledgerId, entryId);
    }

    private void ask(List<Position> those, long nowMs) {
        generation = seal.generation();
        sinceAsked.begin(nowMs);
        for (Position position : those) {
            Answer answer = new Answer();
            asked.add(new Asked(position, answer));
            context.read(position, readable -> answer.readable = readable);
        }
    }

    private void finish(long nowMs, ReadsBefore reads) {
        if (asked.stream().anyMatch(one -> one.answer.readable == null)) {
            if (sinceAsked.isOver(nowMs, ANSWER_WAIT_MS)) {
                asked.clear();
            }
            return;
        }
        List<Asked> answered = List.copyOf(asked);
        asked.clear();
        // Also one without a delay, or read before there was a tracker: it comes from the dispatcher's redeliveries.
        List<Position> lone = answered.stream().filter(one -> one.answer.readable == Readable.LONE_CHUNK).map(Asked::position)
                .filter(one -> isWithNobody(one.ledgerId(), one.entryId())).toList();
        if (!lone.isEmpty()) {
            giveUp(lone);
            return;
        }
        // The tracker skips none that it does not know.
        List<Position> lost = answered.stream().filter(one -> one.answer.readable.isLost()).map(Asked::position)
                .filter(one -> positions.contains(one.ledgerId(), one.entryId())).toList();
        if (lost.isEmpty()) {
            // It waits for something else: busy consumers, an absent bookie, or an entry behind it in the same read. After a
            // failure Pulsar waits for 15 s, and begins with one entry alone.
            answered.stream().filter(one -> one.answer.readable == Readable.LATER_CHUNK).findFirst()
                    .ifPresent(later -> readBefore(later.position, nowMs, reads));
            context.readMore();
            waitLonger(nowMs);
            return;
        }
        Readable how = answered.stream().map(one -> one.answer.readable).filter(Readable::isLost).findFirst().orElseThrow();
        if (how == Readable.LEDGER_NOT_OURS || context.skipsLost()) {
            skip(lost, how);
            sweep(answered.get(answered.size() - 1).position, how, nowMs);
        } else {
            say(lost.get(0), how, nowMs);
            waitLonger(nowMs);
        }
    }

    private void readBefore(Position later, long nowMs, ReadsBefore reads) {
        if (!later.equals(chunk)) {
            chunk = later;
            before = BEFORE_MIN;
        } else if (before > BEFORE_MAX && !sinceBefore.isOver(nowMs, SAY_AGAIN_MS)) {
            return;
        }
        int count = Math.min(before, BEFORE_MAX);
        LOG.info("[{}] {} is a chunk, and the dispatcher has not met its message's first one: {} waiting entries before it are read"
                + " again", context.name(), told(later), count);
        reads.of(later, count);
        before = count * BEFORE_FACTOR;
        sinceBefore.begin(nowMs);
    }

    private void giveUp(List<Position> lone) {
        LOG.info("[{}] {} is a chunk, and its message's first one is acknowledged, so no consumer can get the message: the chunk is"
                + " acknowledged, too", context.name(), told(lone.get(0)));
        context.delete(lone, generation, done -> context.readMore());
        suspect = null;
    }

    private void waitLonger(long nowMs) {
        pauseMs = Math.min(MAX_PAUSE_MS, pauseMs * 2);
        sinceSuspected.begin(nowMs);
    }

    private void skip(List<Position> lost, Readable how) {
        Position first = lost.get(0);
        LOG.warn("[{}] {} cannot be read any more ({}), {}{}", context.name(), told(first), how.words(),
                how == Readable.LEDGER_LOST ? "all of its ledger is skipped" : lost.size() + " skipped from there on",
                how == Readable.LEDGER_NOT_OURS ? "" : ", as autoSkipNonRecoverableData says");
        if (how == Readable.LEDGER_LOST) {
            context.skipLedger(first.ledgerId());
        }
        context.delete(lost, generation, done -> context.readMore());
        suspect = null;
    }

    private static String told(Position position) {
        return position.ledgerId() + ":" + position.entryId();
    }

    /** Checks the entries behind a lost one before they come up one by one. */
    private void sweep(Position last, Readable how, long nowMs) {
        List<Position> behind = new ArrayList<>();
        if (how == Readable.ENTRY_LOST) {
            for (long entry = last.entryId() + 1; entry <= last.entryId() + SWEEP_REACH; entry++) {
                if (behind.size() < SWEEP_ENTRIES && positions.contains(last.ledgerId(), entry)
                        && isWithNobody(last.ledgerId(), entry)) {
                    behind.add(new Position(last.ledgerId(), entry));
                }
            }
        }
        ask(behind, nowMs);
    }

    /** @throws IllegalStateException if a sweep asks too much, or the next look is never or too soon */
    void check() {
        if (asked.size() > SWEEP_ENTRIES) {
            throw new IllegalStateException(asked.size() + " entries are asked for at a time");
        }
        if (suspect != null && (pauseMs < FIRST_PAUSE_MS || pauseMs > MAX_PAUSE_MS)) {
            throw new IllegalStateException("the lowest position is looked at every " + pauseMs + " ms");
        }
    }

    private void say(Position first, Readable how, long nowMs) {
        if (sinceSaid.isOver(nowMs, SAY_AGAIN_MS)) {
            sinceSaid.begin(nowMs);
            LOG.error("[{}] Due messages wait for {}, which cannot be read any more ({}). Bring it back, or give up the lost ones:"
                    + " pulsar-admin brokers update-dynamic-config --config autoSkipNonRecoverableData --value true",
                    context.name(), told(first), how.words());
        }
    }
}
