package tidegate.pulsar.gate;

import java.util.random.RandomGenerator;

/**
 * The mark by which a reset of the cursor is noticed: a random number, the generation, in the properties that Pulsar keeps and
 * persists together with the cursor's mark-delete position and its individual acknowledgements.
 *
 * <p>Acknowledging keeps it, loading the topic again brings it back with the acknowledgements it was stored with, and every reset
 * removes it in the same step that clears them. So an acknowledgement seen under a seal is true as long as that seal is there,
 * whoever owned the topic meanwhile. Why not a counter: docs/decisions/acknowledgement-seal.md.
 *
 * <p>To use it: read {@link #generation}, look at the cursor, then ask {@link #stood}. The look counts only if that says yes.
 * {@link #renew} is guarded by the tracker's lock; any thread may call the rest.
 */
public final class Seal {
    /** No seal: nothing learned under it is ever believed. */
    public static final long NONE = 0;

    private final TrackerContext context;
    private final RandomGenerator random;
    private volatile long generation;
    /** A seal that is ignored though the cursor may have it: it was put amid a seek, or its acknowledgements are in doubt. */
    private volatile long voided = NONE;
    private boolean refused;

    /** A number for a new seal, different from any before. */
    public static long draw(RandomGenerator random) {
        long number;
        do {
            number = random.nextLong() & Long.MAX_VALUE;
        } while (number == NONE);
        return number;
    }

    /** Takes the seal that the cursor has, or puts one there. */
    Seal(TrackerContext context, RandomGenerator random) {
        this.context = context;
        this.random = random;
        generation = context.seal();
        if (generation == NONE) {
            renew();
        }
    }

    /** The number of the seal in use; {@link #NONE} if the cursor takes none, or not yet. */
    long generation() {
        return generation;
    }

    /** True if the cursor still has it. */
    boolean isIntact() {
        long there = context.seal();
        return there == generation || generation == NONE && there == voided;
    }

    /** True if there is none, and there can be one now. */
    boolean isWanted() {
        return generation == NONE && !refused && context.maySeal();
    }

    /** True if a look at the cursor still holds: one made before this call and after reading {@code then} as the generation. */
    boolean stood(long then) {
        return then == generation && isIntact();
    }

    /**
     * Takes the seal that {@code StoredSeals} has put into the cursor since, or puts a new one there; acknowledgements learned
     * under the former are doubtful from now on.
     *
     * <p>None is put without consumers, before and after: a seek disconnects them first, then takes the seal, and clears the
     * acknowledgements only when its record is written. A seal put between the two would be stored with the seek's position if
     * the topic is unloaded just then, and vouch for acknowledgements from before the seek.
     */
    void renew() {
        if (generation != NONE) {
            voided = generation;
        }
        generation = NONE;
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
