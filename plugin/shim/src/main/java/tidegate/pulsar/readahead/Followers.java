package tidegate.pulsar.readahead;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.function.Supplier;
import tidegate.pulsar.gate.TopicReader;
import tidegate.pulsar.gate.TrackerCore;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.Records;

/**
 * The other subscriptions of a topic for which one pass reads, too: an entry is the same for each of them, and a read of it by
 * each of their dispatchers costs more than anything else of it.
 *
 * <p>A subscription follows from the first read on that has something for it. Its ticket is from before that read, so that it
 * gets nothing that was read before its tracker forgot or replaced its contents. Not thread-safe.
 */
final class Followers {
    private static final class Follower {
        private final TrackerCore core;
        private final TopicReader reader;
        private final long ticket;
        /** The first read whose entries it gets. */
        private final long since;
        /** Behind the last read whose entries it got; null before the first. */
        private Position next;
        /** No position behind it has been left to its dispatcher, of those that the pass has read. */
        private Position lastLeft;

        Follower(TrackerCore core, TopicReader reader, long ticket, long since) {
            this.core = core;
            this.reader = reader;
            this.ticket = ticket;
            this.since = since;
        }

        boolean mayGoOn(long maxWaiting) {
            return core.backlog().mayAdd(ticket) && core.backlog().hasRoom(maxWaiting) && reader.isAllowed();
        }

        /** True if a read up to {@code last} has something for it. */
        boolean isBehind(Position last) {
            Position sought = core.backlog().firstSought();
            return reader.readPosition().compareTo(last) <= 0 || sought != null && sought.compareTo(last) <= 0;
        }

        private Records news(Records found) {
            Records news = new Records();
            Position reads = reader.readPosition();
            for (int i = 0; i < found.size(); i++) {
                Position position = new Position(found.ledgerId(i), found.entryId(i));
                if (!core.backlog().isKnown(position.ledgerId(), position.entryId(), position.compareTo(reads) < 0)) {
                    news.add(position.ledgerId(), position.entryId(), found.deliverAtMs(i));
                }
            }
            return news;
        }

        /** Takes what a read from {@code first} to {@code done} found; false if it takes nothing any more. */
        boolean take(long ledgerId, long first, long done, Records found, boolean isAllFound, int chunk) {
            Position begin = new Position(ledgerId, first);
            if (next == null || next.compareTo(begin) != 0) {
                // Nobody has read for it between the two reads.
                lastLeft = new Position(ledgerId, first - 1);
            }
            if (!isAllFound) {
                lastLeft = new Position(ledgerId, done);
            }
            Records news = news(found);
            for (int from = 0; from < news.size(); from += chunk) {
                if (core.backlog().add(ticket, news, from, Math.min(news.size(), from + chunk)) < 0) {
                    return false;
                }
            }
            next = new Position(ledgerId, done + 1);
            core.backlog().advance(next, lastLeft);
            return true;
        }
    }

    private final Supplier<List<Map.Entry<TrackerCore, TopicReader>>> candidates;
    private final long maxWaiting;
    private final int chunk;
    private final List<Follower> followers = new ArrayList<>();
    private long reads;

    /**
     * {@code candidates}: the topic's other subscriptions that no pass reads for; one with {@code maxWaiting} entries that wait
     * for the daemon does not follow. A tracker gets {@code chunk} entries under one hold of its lock.
     */
    Followers(Supplier<List<Map.Entry<TrackerCore, TopicReader>>> candidates, long maxWaiting, int chunk) {
        this.candidates = candidates;
        this.maxWaiting = maxWaiting;
        this.chunk = chunk;
    }

    /** The pass is about to read up to {@code last}: admits those for which that has something. Returns the read's number. */
    long admit(Position last) {
        reads++;
        for (Map.Entry<TrackerCore, TopicReader> other : candidates.get()) {
            TrackerCore core = other.getKey();
            Follower follower = new Follower(core, other.getValue(), core.backlog().ticket(), reads);
            if (!follows(core) && follower.mayGoOn(maxWaiting) && follower.isBehind(last)) {
                followers.add(follower);
            }
        }
        return reads;
    }

    boolean follows(TrackerCore core) {
        return followers.stream().anyMatch(follower -> follower.core == core);
    }

    /** Tells them what a read found, all of whose entries are delayed if {@code isAllFound}. */
    void tell(long read, long ledgerId, long first, long done, Records found, boolean isAllFound) {
        for (Iterator<Follower> i = followers.iterator(); i.hasNext(); ) {
            Follower follower = i.next();
            if (follower.since > read) {
                continue;
            }
            if (!follower.mayGoOn(maxWaiting) || !follower.take(ledgerId, first, done, found, isAllFound, chunk)) {
                i.remove();
                follower.core.backlog().end();
            }
        }
    }

    /** The pass is over: their dispatchers read on by themselves. */
    void end() {
        followers.forEach(follower -> follower.core.backlog().end());
        followers.clear();
    }
}
