package tidegate.pulsar;

import tidegate.pulsar.TrackerHost.Position;

/**
 * Where reading ahead and a tracker meet: who may add what was read ahead, whether it is wanted, and how far it has got.
 *
 * <p>A pass works under a ticket. The tracker gives out another one whenever what it contains was forgotten or told
 * anew, and takes nothing under an old one: so nothing of a former life of the subscription is ever added. Tickets and wishes
 * are guarded by the tracker's lock; how far a pass has got may be read by any thread.
 */
final class AheadGate {
    /** No pass may add anything. */
    static final long NO_TICKET = 0;
    /** A pass that did not advance for so long is not waited for. */
    static final long PATIENCE_MS = 100;
    private record Advance(Position next, Position lastLeft, long atMs) {}

    private TopicReader reader;
    private int enoughInVain;
    private int reach;
    private Runnable wake = () -> { };
    private long lastTicket;
    private volatile long ticket = NO_TICKET;
    private volatile boolean wanted;
    private int readInVain;
    private volatile Advance advance;
    /**
     * Connects it with who reads; without, nothing is ever read ahead. {@code inVain} delayed messages that the dispatcher had
     * to read by itself show that more of them may lie ahead; {@code reachEntries} it reads at once.
     */
    void connect(TopicReader topicReader, int inVain, int reachEntries, Runnable wakeReader) {
        reader = topicReader;
        enoughInVain = inVain;
        reach = reachEntries;
        wake = wakeReader;
    }

    /** The daemon has said what it holds: what it does not hold is to be read. */
    void open() {
        ticket = ++lastTicket;
        want();
    }

    /** Everything was forgotten: who reads stops, and nobody begins before {@link #open}, or a wish. */
    void renew() {
        if (ticket != NO_TICKET) {
            ticket = ++lastTicket;
        }
        wanted = false;
        readInVain = 0;
    }

    /** The dispatcher will read what it had read before, or reads much that is delayed. */
    void want() {
        readInVain = 0;
        if (reader != null && ticket != NO_TICKET) {
            wanted = true;
            wake.run();
        }
    }

    /** The dispatcher had to read a delayed message by itself. */
    void onReadInVain() {
        if (++readInVain >= enoughInVain) {
            want();
        }
    }

    boolean isWanted() {
        return wanted;
    }

    /** Begins a pass: the ticket for it, or {@link #NO_TICKET}. */
    long begin() {
        wanted = false;
        return ticket;
    }

    boolean isValid(long held) {
        return held != NO_TICKET && held == ticket;
    }

    /** A pass has dealt with everything before {@code next}; up to {@code lastLeft} it has left something to the dispatcher. */
    void advance(Position next, Position lastLeft, long nowMs) {
        advance = new Advance(next, lastLeft, nowMs);
    }

    /** No pass is under way any more. */
    void end() {
        advance = null;
    }

    /**
     * Whether the dispatcher does better not to read now: it would read in vain what a pass is about to tell. Its read leaves out
     * what is contained, however much that is, and goes on behind it, entry by entry: so also where it is far behind the pass,
     * if nothing before that was left to it.
     */
    boolean isAwaited(long nowMs) {
        Advance last = advance;
        return last != null && nowMs - last.atMs() < PATIENCE_MS && nowMs >= last.atMs() && isInVain(last);
    }

    private boolean isInVain(Advance last) {
        Position from = reader.readPosition();
        boolean isAllTold = last.lastLeft().compareTo(from) < 0;
        return isAllTold || new Position(from.ledgerId(), from.entryId() + reach - 1).compareTo(last.next()) >= 0;
    }

    /** @throws IllegalStateException if an invariant does not hold */
    void check() {
        require(ticket == NO_TICKET || ticket == lastTicket, "an old ticket is valid");
        require(!wanted || reader != null && ticket != NO_TICKET, "a pass is wanted that could add nothing");
        require(readInVain == 0 || readInVain < enoughInVain, readInVain + " were read in vain, and nothing is wanted");
    }

    private void require(boolean holds, String broken) {
        if (!holds) {
            throw new IllegalStateException(broken + ": ticket " + ticket + " of " + lastTicket);
        }
    }
}
