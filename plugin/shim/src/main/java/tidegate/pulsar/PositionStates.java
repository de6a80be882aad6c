package tidegate.pulsar;

/**
 * The positions that a tracker has met, by the state they are in, and the credit that is free again.
 *
 * <p>Each position is in at most one of these states:
 * <ul>
 *   <li><b>undecided</b>: read before the daemon said what it holds; told to be tracked, decided by HELD;
 *   <li><b>held</b>: the daemon will push it (DUE) when it is nearly due;
 *   <li><b>near</b>: this broker hands it out when the clock has passed its deliver_at;
 *   <li><b>handed out</b>: given to the dispatcher, not yet known acknowledged;
 *   <li><b>sought</b>: nobody holds it any more; the dispatcher is asked to read it, and then it is tracked anew;
 *   <li><b>asked for</b>: a sought one that the dispatcher was given to read, and has not read yet;
 *   <li><b>settling</b>: acknowledged before a failover that the cursor forgot; being deleted in the cursor again;
 *   <li><b>reported</b>: acknowledged, told the daemon, and above the persisted mark-delete position;
 *   <li><b>doubtful</b>: reported before what may have been a reset of the cursor; looked at again by the next watch.
 * </ul>
 * {@link #contains} answers true for all but the last two: the dispatcher skips exactly these.
 *
 * <p>Invariants, walked by {@link #check}: what is near, handed out or settling is contained, and is only one of the three; what
 * is sought or asked for is contained, and neither handed out nor settling; nothing is undecided once it has been decided. Any thread may ask whether a position is contained and how many there are;
 * all else is guarded by the tracker's lock.
 */
final class PositionStates {
    /** Before every time that a clock shows. */
    private static final long DUE_MS = 0;

    private final PositionSet contained = new PositionSet();
    private final PositionSet handedOut = new PositionSet();
    private final PositionSet sought = new PositionSet();
    private final PositionSet askedFor = new PositionSet();
    private final PositionSet settling = new PositionSet();
    private final PositionSet reported = new PositionSet();
    private final PositionSet doubtful = new PositionSet();
    private final NearTier near = new NearTier();
    private Records undecided = new Records();
    /** Whether entries are decided at once: HELD has come, or the wait for it is over. */
    private volatile boolean decided;
    private int creditBack;

    // ---- asking ---------------------------------------------------------------------------------------------------

    /** Whether the dispatcher must not read the position. Lock-free. */
    boolean contains(long ledgerId, long entryId) {
        return contained.contains(ledgerId, entryId);
    }

    boolean isDecided() {
        return decided;
    }

    boolean isNear(long ledgerId, long entryId) {
        return near.contains(ledgerId, entryId);
    }

    boolean isHandedOut(long ledgerId, long entryId) {
        return handedOut.contains(ledgerId, entryId);
    }

    boolean isSought(long ledgerId, long entryId) {
        return !sought.isEmpty() && sought.contains(ledgerId, entryId);
    }

    boolean isSettling(long ledgerId, long entryId) {
        return settling.contains(ledgerId, entryId);
    }

    boolean isReported(long ledgerId, long entryId) {
        return !reported.isEmpty() && reported.contains(ledgerId, entryId);
    }

    boolean isDoubtful(long ledgerId, long entryId) {
        return !doubtful.isEmpty() && doubtful.contains(ledgerId, entryId);
    }

    /** Whether the next look at the cursor may change something here. */
    boolean hasUnseen() {
        return !handedOut.isEmpty() || !reported.isEmpty() || !doubtful.isEmpty() || !settling.isEmpty() || !askedFor.isEmpty()
                || !decided;
    }

    /** Delayed messages that were not handed out. */
    long delayed() {
        return Math.max(0, contained.size() - handedOut.size() - settling.size());
    }

    long contained() {
        return contained.size();
    }

    long near() {
        return near.size();
    }

    long handedOut() {
        return handedOut.size();
    }

    long settling() {
        return settling.size();
    }

    long sought() {
        return sought.size();
    }

    int undecided() {
        return undecided.size();
    }

    /** When the earliest near entry is due, in ms, or {@link NearTier#NONE}. */
    long headMs() {
        return near.headMs();
    }

    /** What may be acknowledged without anybody having seen it: handed out, asked for, or doubtful. */
    void forEachUnseen(Positions.Visitor visitor) {
        handedOut.forEach(visitor);
        askedFor.forEach(visitor);
        doubtful.forEach(visitor);
    }

    void forFirstSettling(int max, Positions.Visitor visitor) {
        settling.forFirst(max, visitor);
    }

    /** The lowest position that is sought; null if there is none. */
    TrackerHost.Position firstSought() {
        TrackerHost.Position[] first = {null};
        sought.forFirst(1, (ledgerId, entryId) -> first[0] = new TrackerHost.Position(ledgerId, entryId));
        return first[0];
    }

    /** The highest reported position, as ledger and entry; null if there is none. */
    long[] lastReported() {
        return reported.last();
    }

    /** A copy of what the dispatcher skips. */
    PositionSet allContained() {
        PositionSet all = new PositionSet();
        all.addAll(contained);
        return all;
    }

    /** What the broker hands out up to that time, or has handed out. */
    PositionSet inFlight(long untilMs) {
        PositionSet all = near.dueUpTo(untilMs);
        all.addAll(handedOut);
        return all;
    }

    void forEachNear(Positions.Visitor visitor) {
        near.members().forEach(visitor);
    }

    /** Contained positions that nobody will hand out: neither who holds {@code others}, nor this broker. Changes {@code others}. */
    PositionSet lostBut(PositionSet others) {
        others.addAll(near.members());
        others.addAll(handedOut);
        others.addAll(settling);
        others.addAll(sought);
        others.addAll(askedFor);
        for (int i = 0; i < undecided.size(); i++) {
            others.add(undecided.ledgerId(i), undecided.entryId(i));
        }
        PositionSet lost = allContained();
        lost.removeAll(others);
        return lost;
    }

    // ---- coming and going -----------------------------------------------------------------------------------------

    /** False if it is contained already. */
    boolean enter(long ledgerId, long entryId) {
        return contained.add(ledgerId, entryId);
    }

    void enterAll(PositionSet held) {
        contained.addAll(held);
        forgetSought(held);
    }

    /** All that is not known acknowledged. Changes {@code held}. */
    void enterUnacknowledged(PositionSet held) {
        held.removeAll(reported);
        held.removeAll(doubtful);
        enterAll(held);
    }

    private void forgetSought(PositionSet held) {
        if (!sought.isEmpty()) {
            sought.removeAll(held);
        }
    }

    void leave(long ledgerId, long entryId) {
        contained.remove(ledgerId, entryId);
    }

    // ---- what nobody holds any more -------------------------------------------------------------------------------

    /** Contained ones that nobody will hand out are to be read again. */
    void seek(PositionSet lost) {
        sought.addAll(lost);
    }

    /** Sought ones that need not be read: they are deleted. */
    void leaveSought(PositionSet deleted) {
        deleted.forEach((ledgerId, entryId) -> {
            if (sought.remove(ledgerId, entryId)) {
                contained.remove(ledgerId, entryId);
            }
        });
    }

    /** Whether it was sought, or asked for. It was read: its time is known again, and it is tracked anew. */
    boolean find(long ledgerId, long entryId) {
        boolean was = !sought.isEmpty() && sought.remove(ledgerId, entryId);
        return !askedFor.isEmpty() && askedFor.remove(ledgerId, entryId) || was;
    }

    /** Gives at most {@code max} of what is sought to the dispatcher to read, in position order. */
    void askFor(int max, Positions.Visitor visitor) {
        PositionSet asked = new PositionSet();
        sought.forFirst(max, asked::add);
        asked.forEach((ledgerId, entryId) -> {
            sought.remove(ledgerId, entryId);
            askedFor.add(ledgerId, entryId);
            visitor.visit(ledgerId, entryId);
        });
    }

    /** A contained one that cannot be decided yet. */
    void postpone(long ledgerId, long entryId, long deliverAtMs) {
        undecided.add(ledgerId, entryId, deliverAtMs);
    }

    /** From now on everything is decided at once; returns what was undecided. */
    Records decide() {
        decided = true;
        Records entries = undecided;
        undecided = new Records();
        return entries;
    }

    /** A contained entry is this broker's to hand out. */
    void gate(long ledgerId, long entryId, long deliverAtMs) {
        near.add(ledgerId, entryId, deliverAtMs, false);
    }

    /** An entry that the daemon pushed. Its credit is free again at once if the broker has it, or knows it acknowledged. */
    void push(long ledgerId, long entryId, long deliverAtMs) {
        if (handedOut.contains(ledgerId, entryId) || settling.contains(ledgerId, entryId)
                || !near.add(ledgerId, entryId, deliverAtMs, true)) {
            creditBack++;
        } else {
            contained.add(ledgerId, entryId);
            sought.remove(ledgerId, entryId);
        }
    }

    /** Hands out the near entry that is due first. */
    void popHead(Positions.Visitor visitor) {
        long ledgerId = near.headLedgerId();
        long entryId = near.headEntryId();
        handOut(ledgerId, entryId);
        visitor.visit(ledgerId, entryId);
    }

    void handOut(long ledgerId, long entryId) {
        leaveNear(ledgerId, entryId);
        find(ledgerId, entryId);
        handedOut.add(ledgerId, entryId);
    }

    /** False if it was not handed out; else it is near again. */
    boolean takeBack(long ledgerId, long entryId, long deliverAtMs) {
        return handedOut.remove(ledgerId, entryId) && near.add(ledgerId, entryId, deliverAtMs, false);
    }

    /**
     * The dispatcher has forgotten what it was given: what was asked for is sought; what was handed out is near again, and due
     * whatever the clock says next: a time by a clock that is set right meanwhile would be far. When it is read, its own time counts.
     */
    void takeAllBack() {
        sought.addAll(askedFor);
        askedFor.clear();
        handedOut.forEach((ledgerId, entryId) -> near.add(ledgerId, entryId, DUE_MS, false));
        handedOut.clear();
    }

    /** Gates an entry that the daemon may not have, unless the broker has handed it out or is done with it. */
    void gateAgain(long ledgerId, long entryId, long deliverAtMs) {
        if (contained.contains(ledgerId, entryId) && !handedOut.contains(ledgerId, entryId)) {
            near.add(ledgerId, entryId, deliverAtMs, false);
        }
    }

    /** Near entries that the daemon hands out when they are due. */
    void leaveToDaemon(PositionSet held) {
        held.forEach(this::leaveNear);
    }

    private void leaveNear(long ledgerId, long entryId) {
        if (near.remove(ledgerId, entryId) == NearTier.Removed.CREDITED) {
            creditBack++;
        }
    }

    // ---- acknowledgements -----------------------------------------------------------------------------------------

    /** The cursor has it as deleted, and the daemon is told. */
    void acknowledge(long ledgerId, long entryId) {
        leaveNear(ledgerId, entryId);
        find(ledgerId, entryId);
        handedOut.remove(ledgerId, entryId);
        contained.remove(ledgerId, entryId);
        reported.add(ledgerId, entryId);
    }

    /** The daemon knows these acknowledged. */
    void knowReported(PositionSet acknowledged) {
        reported.addAll(acknowledged);
    }

    /** Acknowledged before a failover, but the cursor does not know: it is skipped until it has been deleted there again. */
    void settle(long ledgerId, long entryId) {
        leaveNear(ledgerId, entryId);
        find(ledgerId, entryId);
        handedOut.remove(ledgerId, entryId);
        contained.add(ledgerId, entryId);
        settling.add(ledgerId, entryId);
    }

    /** A settling one is deleted in the cursor, or never will be. */
    void settled(long ledgerId, long entryId) {
        if (settling.remove(ledgerId, entryId)) {
            contained.remove(ledgerId, entryId);
        }
    }

    /** It is not acknowledged after all. */
    void unreport(long ledgerId, long entryId) {
        reported.remove(ledgerId, entryId);
        settled(ledgerId, entryId);
    }

    /** Nothing known acknowledged is believed before it has been looked at again. */
    void doubt() {
        doubtful.addAll(reported);
        reported.clear();
        contained.removeAll(settling);
        settling.clear();
    }

    /** All that was doubtful has been looked at: what is not acknowledged will be read again. */
    void endDoubt() {
        doubtful.clear();
    }

    /** The cursor has everything up to there as deleted. */
    void discardUpTo(TrackerHost.Position markDelete) {
        contained.discardUpTo(markDelete.ledgerId(), markDelete.entryId());
        handedOut.discardUpTo(markDelete.ledgerId(), markDelete.entryId());
        sought.discardUpTo(markDelete.ledgerId(), markDelete.entryId());
        askedFor.discardUpTo(markDelete.ledgerId(), markDelete.entryId());
        settling.discardUpTo(markDelete.ledgerId(), markDelete.entryId());
        creditBack += Math.toIntExact(near.discardUpTo(markDelete.ledgerId(), markDelete.entryId()));
    }

    /** That everything up to there is deleted survives a crash. */
    void discardReportedUpTo(TrackerHost.Position persisted) {
        reported.discardUpTo(persisted.ledgerId(), persisted.entryId());
    }

    // ---- credit ---------------------------------------------------------------------------------------------------

    /** An entry that was pushed does not become near. */
    void freeCredit() {
        creditBack++;
    }

    /** How much credit is free again and not given back. */
    int creditBack() {
        return creditBack;
    }

    /** The free credit; it is given back now. */
    int takeCredit() {
        int credit = creditBack;
        creditBack = 0;
        return credit;
    }

    /** The stream has ended: with the next one the daemon gets all its credit. */
    void forgetCredit() {
        creditBack = 0;
        near.forgetCredits();
    }

    // ---- the whole ------------------------------------------------------------------------------------------------

    void clear() {
        contained.clear();
        handedOut.clear();
        sought.clear();
        askedFor.clear();
        settling.clear();
        reported.clear();
        doubtful.clear();
        creditBack += Math.toIntExact(near.clear());
        undecided.clear();
    }

    /** Nothing is handed out any more, and nothing decided. */
    void stop() {
        undecided.clear();
        near.clear();
    }

    void trim() {
        contained.trim();
        handedOut.trim();
        sought.trim();
        askedFor.trim();
        settling.trim();
        reported.trim();
        doubtful.trim();
        near.trim();
    }

    long memoryBytes() {
        return contained.memoryBytes() + handedOut.memoryBytes() + sought.memoryBytes() + askedFor.memoryBytes()
                + settling.memoryBytes() + reported.memoryBytes() + doubtful.memoryBytes() + near.memoryBytes() + undecided.memoryBytes();
    }

    /** @throws IllegalStateException if an invariant does not hold */
    void check() {
        near.members().forEach((ledgerId, entryId) -> {
            require(contained.contains(ledgerId, entryId), "near and not contained", ledgerId, entryId);
            require(!handedOut.contains(ledgerId, entryId), "near and handed out", ledgerId, entryId);
            require(!settling.contains(ledgerId, entryId), "near and settling", ledgerId, entryId);
        });
        handedOut.forEach((ledgerId, entryId) -> {
            require(contained.contains(ledgerId, entryId), "handed out and not contained", ledgerId, entryId);
            require(!settling.contains(ledgerId, entryId), "handed out and settling", ledgerId, entryId);
        });
        sought.forEach((ledgerId, entryId) -> checkSought("sought", ledgerId, entryId));
        askedFor.forEach((ledgerId, entryId) -> checkSought("asked for", ledgerId, entryId));
        settling.forEach((ledgerId, entryId) ->
                require(contained.contains(ledgerId, entryId), "settling and not contained", ledgerId, entryId));
        require(!decided || undecided.isEmpty(), "undecided though everything is decided", -1, -1);
        require(creditBack >= 0, "credit was given back twice", -1, -1);
    }

    private void checkSought(String state, long ledgerId, long entryId) {
        require(contained.contains(ledgerId, entryId), state + " and not contained", ledgerId, entryId);
        require(!handedOut.contains(ledgerId, entryId), state + " and handed out", ledgerId, entryId);
        require(!settling.contains(ledgerId, entryId), state + " and settling", ledgerId, entryId);
    }

    private static void require(boolean holds, String broken, long ledgerId, long entryId) {
        if (!holds) {
            throw new IllegalStateException(broken + ": " + ledgerId + ":" + entryId);
        }
    }
}
