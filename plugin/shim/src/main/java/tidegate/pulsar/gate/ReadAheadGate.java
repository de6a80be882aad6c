package tidegate.pulsar.gate;

import tidegate.pulsar.wire.Position;


/**
 * The meeting point of reading ahead and a tracker: tickets to add entries, wishes to read, and a pass's progress.
 *
 * <p>The tracker issues a new ticket whenever it forgets or replaces its contents, and refuses a pass's entries under an old
 * one. Its lock guards tickets and wishes; any thread may read a pass's progress.
 */
final class ReadAheadGate {
    /** The ticket of a pass that may add nothing. */
    static final long NO_TICKET = 0;
    /** How long the dispatcher waits for a pass that does not advance. */
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
     * Connects the reader; without one, nothing is read ahead. After {@code inVain} delayed messages read by the dispatcher
     * itself, more may lie ahead; it reads {@code reachEntries} at once.
     */
    void connect(TopicReader topicReader, int inVain, int reachEntries, Runnable wakeReader) {
        reader = topicReader;
        enoughInVain = inVain;
        reach = reachEntries;
        wake = wakeReader;
    }

    /** Opens the gate after the daemon's answer: the rest needs reading. */
    void open() {
        ticket = ++lastTicket;
        want();
    }

    /**
     * Renews the ticket after the tracker has forgotten everything: no pass goes on or begins before {@link #open} or a
     * wish.
     */
    void renew() {
        if (ticket != NO_TICKET) {
            ticket = ++lastTicket;
        }
        wanted = false;
        readInVain = 0;
    }

    /** Wishes for a pass: the dispatcher will read positions again, or reads many delayed messages. */
    void want() {
        readInVain = 0;
        if (reader != null && ticket != NO_TICKET) {
            wanted = true;
            wake.run();
        }
    }

    void onReadInVain() {
        if (++readInVain >= enoughInVain) {
            want();
        }
    }

    boolean isWanted() {
        return wanted;
    }

    /** Begins a pass; returns its ticket, or {@link #NO_TICKET}. */
    long begin() {
        wanted = false;
        return ticket;
    }

    boolean isValid(long held) {
        return held != NO_TICKET && held == ticket;
    }

    /**
     * Notes that a pass has handled everything before {@code next}, and left the dispatcher entries up to {@code lastLeft}.
     */
    void advance(Position next, Position lastLeft, long nowMs) {
        advance = new Advance(next, lastLeft, nowMs);
    }

    void end() {
        advance = null;
    }

    /**
     * True if the dispatcher should not read now: it would read the entries that a pass is about to add. Its read skips all
     * contained positions, so it waits even when far behind the pass, unless the pass left it entries before that point.
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
