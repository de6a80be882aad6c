package tidegate.pulsar.gate;

import java.util.List;
import java.util.random.RandomGenerator;

/**
 * The mark that shows a reset of the cursor: a random number, the generation, in the properties that Pulsar persists
 * together with the cursor's mark-delete position and its individual acknowledgements. Why:
 * docs/decisions/acknowledgement-seal.md.
 *
 * <p>Acknowledging keeps the seal, loading the topic restores it with its acknowledgements, and every reset removes it in
 * the step that clears them. So an acknowledgement seen under a seal is true while that seal is there, whoever owned the
 * topic meanwhile.
 *
 * <p>Skipping and other moves forward remove the seal, too, and take nothing back. A consumer tells the two apart: a reset
 * disconnects all consumers before it touches the cursor. If one stays connected from the last look with the former seal
 * until the first with the next, acknowledgements seen under the former hold under the next.
 *
 * <p>Example: the seal is 17, a look finds 5:3 deleted, the seal is still 17: the acknowledgement counts. Later the seal is
 * gone and no consumer stayed: 5:3 is doubtful, a new seal is put, and the next look decides.
 *
 * <p>Use: read {@link #generation}, look at the cursor, then ask {@link #stood}; only if true, the look counts. Any thread
 * may ask {@link #generation}, {@link #isIntact} and {@link #stood}; the tracker's lock guards the rest.
 */
public final class Seal {
    /** No seal: nothing learned under it counts. */
    public static final long NONE = 0;

    private final TrackerContext context;
    private final RandomGenerator random;
    private volatile long generation;
    /** A seal to ignore in the cursor: put amid a seek, or with acknowledgements in doubt. */
    private volatile long voided = NONE;
    private boolean refused;
    /** The consumers connected before the cursor's seal was last seen. */
    private List<?> witnesses = List.of();
    /** The seal in use when the tracker was made, until the daemon has answered under it; else {@link #NONE}. */
    private long unheard;
    /** The last OPEN's seal while acknowledgements seen under it hold under the present one; else {@link #NONE}. */
    private long told = NONE;

    /** A number for a new seal, different from any before. */
    public static long draw(RandomGenerator random) {
        long number;
        do {
            number = random.nextLong() & Long.MAX_VALUE;
        } while (number == NONE);
        return number;
    }

    /** Takes the cursor's seal, or puts one there. */
    Seal(TrackerContext context, RandomGenerator random) {
        this.context = context;
        this.random = random;
        generation = context.seal();
        if (generation == NONE) {
            renew();
        }
        unheard = generation;
        watch();
    }

    /** The seal in use; {@link #NONE} if the cursor takes none, or not yet. */
    long generation() {
        return generation;
    }

    boolean isIntact() {
        long there = context.seal();
        return there == generation || generation == NONE && there == voided;
    }

    /** True if there is none, and there can be one now. */
    boolean isWanted() {
        return generation == NONE && !refused && context.maySeal();
    }

    /** True if a look at the cursor, made before this call and after reading {@code then} as the generation, still holds. */
    boolean stood(long then) {
        return then == generation && isIntact();
    }

    void watch() {
        List<?> connected = context.consumers();
        if (generation != NONE && context.seal() == generation) {
            witnesses = connected;
        }
    }

    // ---- the seal of OPEN -----------------------------------------------------------------------------------------

    /**
     * The seal for OPEN. At another one the daemon forgets the acknowledgements that it knows, so it gets the former until
     * it has named these.
     */
    long tell() {
        watch();
        told = unheard != NONE ? unheard : generation;
        return told;
    }

    /** True if the acknowledgements in the answer to OPEN hold. */
    boolean holdsAnswer() {
        return told != NONE && generation != NONE;
    }

    /** True if the daemon must learn another seal than OPEN's. */
    boolean isOutdated() {
        return told != generation;
    }

    /** Notes that the daemon has named its acknowledgements. */
    void heard() {
        unheard = NONE;
    }

    /**
     * Follows another tracker of the same broker that has no answer yet: this one must now ask under that seal. Not after an
     * owner in between: the daemon may then know the present seal, and would forget its acknowledgements.
     */
    void adopt(Seal former) {
        if (former.generation == generation && former.unheard != NONE && unheard != NONE) {
            unheard = former.unheard;
        }
    }

    // ---- another seal ---------------------------------------------------------------------------------------------

    /** As {@link #renew}, when the seal is gone; true if acknowledgements learned under the former still hold. */
    boolean replace() {
        List<?> before = witnesses;
        long former = generation;
        long formerTold = told;
        long formerUnheard = unheard;
        renew();
        if (former == NONE || generation == NONE || !isAnyConnected(before)) {
            return false;
        }
        witnesses = before;
        told = formerTold;
        unheard = formerUnheard;
        return true;
    }

    /** By identity, not {@code equals}: see {@link SeenConsumers}. */
    private boolean isAnyConnected(List<?> before) {
        for (Object now : context.consumers()) {
            for (Object then : before) {
                if (now == then) {
                    return true;
                }
            }
        }
        return false;
    }

    /**
     * Takes the seal put into the cursor by {@code StoredSeals} since, or puts a new one there; acknowledgements learned
     * under the former are doubtful from now on.
     *
     * <p>It puts none without consumers, before and after: a seek disconnects them first, then removes the seal, and clears
     * the acknowledgements only after writing its record. A seal put in between would, if the topic is unloaded just then,
     * be stored with the seek's position, and vouch for acknowledgements from before the seek.
     */
    void renew() {
        if (generation != NONE) {
            voided = generation;
        }
        generation = NONE;
        told = NONE;
        unheard = NONE;
        witnesses = List.of();
        long there = context.seal();
        if (there != NONE && there != voided) {
            generation = there;
            return;
        }
        if (!context.maySeal()) {
            return;
        }
        long next = draw(random);
        refused = !context.putSeal(next);
        if (refused) {
            return;
        }
        if (context.maySeal()) {
            generation = next;
        } else {
            voided = next;
        }
    }
}
