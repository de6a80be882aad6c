package tidegate.pulsar.gate;

import tidegate.pulsar.position.NearTier;
import tidegate.pulsar.timing.Wait;

/**
 * Notices when the dispatcher passes over waiting entries: due ones that may leave, or ones to be redelivered.
 *
 * <p>A round of the dispatcher is one call of its readMoreEntries. It asks the tracker for due entries, and their replay
 * begins the next round. After a replay that no consumer could take, a Key_Shared dispatcher looks ahead instead: its next
 * round asks nothing and reads normally, at the topic's end for ever (apache/pulsar#26236). So after a round that has not
 * asked, the tracker wakes the dispatcher while a consumer may take entries. Against lost wake-ups it also checks after each
 * wake-up, and once a second while entries wait.
 *
 * <p>Example: 40 are due, the first 10 for a consumer without permits. Round 1 asks and replays these 10; round 2 looks
 * ahead; 5 ms later the tracker begins round 3, which asks for the next 10.
 *
 * <p>A vain wake-up doubles the pause: a consumer that never takes anything costs twelve rounds, then one in 10 s. An entry
 * that leaves resets the pause. It also grows with the number of redeliveries, all of which each round of Pulsar walks over.
 *
 * <p>Guarded by the tracker's lock.
 */
final class StuckDetector {
    static final long FIRST_PAUSE_MS = 5;
    static final long MAX_PAUSE_MS = 10_000;
    /**
     * After a round that has asked: its replay begins the next round, unless a consumer's connection takes nothing any more.
     */
    static final long ASKED_PAUSE_MS = 1000;
    /** Pulsar walks over this many redeliveries in less than a tenth of a millisecond. */
    private static final long REDELIVERIES_A_MS = 1000;

    private final TrackerContext context;
    private final Pacer pacer;
    private final Wait sinceRound = new Wait();
    private long lookMs = NearTier.NONE;
    private long pauseMs = FIRST_PAUSE_MS;
    /** How often the last round asked for due entries. */
    private int asks = 1;
    /** True if the last round replays the entries that it was given. */
    private boolean asked = true;
    /** True if something was handed out since the last look. */
    private boolean moved;
    private long redeliveries;

    StuckDetector(TrackerContext context, Pacer pacer) {
        this.context = context;
        this.pacer = pacer;
    }

    /** The time of the next {@link #look} in ms; {@link NearTier#NONE} if nothing waits. */
    long lookMs() {
        return lookMs;
    }

    /** True if it is time to {@link #look}. Setting the clock back does not delay that. */
    boolean isLookOver(long nowMs) {
        return lookMs <= nowMs || lookMs != NearTier.NONE && lookMs - nowMs > MAX_PAUSE_MS;
    }

    void begin(long nowMs) {
        asks = 0;
        asked = false;
        sinceRound.begin(nowMs);
        lookSoon(nowMs);
    }

    void ask() {
        asks++;
        asked = true;
    }

    /**
     * Notes a hand-out. A classic dispatcher asks once more right before it reads normally, and does not replay these
     * entries.
     */
    void move(long nowMs) {
        moved = true;
        pauseMs = FIRST_PAUSE_MS;
        if (asks > 1) {
            asked = false;
            lookMs = Math.min(lookMs, nowMs + pace());
        }
    }

    /** Expects a round after a wake-up, else another wake-up follows. */
    void expectRound(long nowMs) {
        asked = false;
        lookSoon(nowMs);
    }

    /** Plans a look at waiting entries if none is planned: a lost wake-up must not keep them. */
    void remind(long nowMs) {
        if (lookMs == NearTier.NONE) {
            asked = false;
            lookSoon(nowMs);
        }
    }

    /** Notes other consumers, who may take entries that no round has asked for. */
    void change(long nowMs) {
        asked = false;
        pauseMs = FIRST_PAUSE_MS;
        lookSoon(nowMs);
    }

    private void lookSoon(long nowMs) {
        if (lookMs > nowMs + pauseMs && waits(nowMs)) {
            lookMs = Math.min(lookMs, nowMs + pace());
        }
    }

    /** True if the dispatcher must be woken, once {@link #isLookOver}. */
    boolean look(long nowMs) {
        if (!waits(nowMs)) {
            lookMs = NearTier.NONE;
            pauseMs = FIRST_PAUSE_MS;
            moved = false;
            return false;
        }
        boolean still = !moved && redeliveries == context.redeliveries();
        moved = false;
        redeliveries = context.redeliveries();
        boolean wakes = (!asked || still && sinceRound.isOver(nowMs, ASKED_PAUSE_MS)) && context.mayDeliver();
        pauseMs = still ? Math.min(MAX_PAUSE_MS, 2 * pauseMs) : FIRST_PAUSE_MS;
        lookMs = nowMs + (asked ? Math.max(ASKED_PAUSE_MS, pace()) : pace());
        return wakes;
    }

    private boolean waits(long nowMs) {
        return pacer.headMs(nowMs) <= nowMs || context.redeliveries() > 0;
    }

    private long pace() {
        return Math.max(pauseMs, Math.min(MAX_PAUSE_MS, context.redeliveries() / REDELIVERIES_A_MS));
    }

    /** @throws IllegalStateException if the pause is out of its bounds */
    void check() {
        if (pauseMs < FIRST_PAUSE_MS || pauseMs > MAX_PAUSE_MS) {
            throw new IllegalStateException("the dispatcher is looked at every " + pauseMs + " ms");
        }
    }
}
