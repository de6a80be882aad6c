package tidegate.pulsar.gate;

import java.util.random.RandomGenerator;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.timing.Wait;
import tidegate.pulsar.wire.Ownership;
import tidegate.pulsar.wire.Position;

/**
 * One tracker's claim to own its subscription: the next epoch and a random number, written into the cursor's metadata by
 * compare-and-set before the daemon hears of it. For a new subscription the write waits for a consumer. Why:
 * docs/decisions/claims.md.
 *
 * <p>Only the last writer of the cursor's metadata can write again, so two brokers never claim the same epoch. The cursor's
 * own writes share its version, so a refused write is retried with growing pauses. Guarded by the tracker's lock, except
 * {@link #write}.
 *
 * <p>Example: brokers A and B have both loaded the cursor at version 7 with epoch 4, and write epoch 5 against version 7. A's
 * write succeeds and makes version 8; B's is refused, and stays so until B loads the topic again.
 */
public final class Claim {
    private static final Logger LOG = LoggerFactory.getLogger(Claim.class);
    private static final long FIRST_PAUSE_MS = 100;
    private static final long MAX_PAUSE_MS = 10_000;
    /** No other writer explains so many refusals in a row: the metadata version must be wrong. */
    private static final int MAX_CONFLICTS = 4;
    private static final Position NOT_KNOWN = new Position(-1, -1);

    private final TrackerContext context;
    private final Ownership known;
    private final RandomGenerator random;
    private Ownership ownership;
    private Position end = NOT_KNOWN;
    private boolean owned;
    private boolean writing;
    private int refusals;
    private int conflicts;
    private final Wait pause = new Wait();

    /** @param known the cursor's ownership when the tracker was made, or a first one */
    public Claim(TrackerContext context, Ownership known, RandomGenerator random) {
        this.context = context;
        this.known = known;
        this.random = random;
        ownership = known;
    }

    /** The incarnation, and the epoch with its claims once it {@link #isOwned}. */
    public Ownership ownership() {
        return ownership;
    }

    /** The topic's end when the epoch was claimed; -1:-1 if unknown. */
    public Position end() {
        return end;
    }

    public boolean isOwned() {
        return owned;
    }

    /**
     * True if this is the subscription's first owner: nobody has told a daemon of its acknowledgements before. The write by
     * compare-and-set proves it.
     */
    boolean isFirst() {
        return owned && ownership.epoch() == 1;
    }

    /** True if no other tracker has owned the subscription between that claim and this one. */
    boolean follows(Claim former) {
        return former.owned && known.epoch() == former.ownership.epoch() && known.claims().equals(former.ownership.claims());
    }

    /** Adopts the present epoch, for a caller that only has a last word about the subscription. */
    public void take() {
        owned = true;
        end = NOT_KNOWN;
    }

    /** Claims anew after another broker claimed a greater epoch: works only if this one is the owner after all. */
    public void lost() {
        owned = false;
    }

    /** The ownership to write now, or null; the caller must report the outcome to {@link #written}. */
    public Ownership begin(long nowMs) {
        if (owned || writing || !pause.isOver(nowMs, pauseMs()) || !context.mayPutOwnership()) {
            return null;
        }
        writing = true;
        Ownership there = context.ownership();
        ownership = (there == null ? known : there).next(context.storesSealed(), random);
        // Former owners' indexes hold only entries before now: a topic that ends earlier is another one.
        end = context.lastConfirmed();
        return ownership;
    }

    private long pauseMs() {
        return Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS << Math.min(refusals, 10));
    }

    /** Notes the outcome of the write from {@link #begin}. */
    public void written(TrackerContext.Written written, long nowMs) {
        writing = false;
        owned = written == TrackerContext.Written.DONE;
        if (owned) {
            refusals = 0;
            conflicts = 0;
            return;
        }
        if (written == TrackerContext.Written.UNATTENDED) {
            return;
        }
        refusals++;
        pause.begin(nowMs);
        if (written == TrackerContext.Written.CONFLICT) {
            conflicts++;
            LOG.info("[{}] The cursor's metadata was written by somebody else at the same time: epoch {} is claimed again",
                    context.name(), ownership.epoch());
        } else {
            LOG.info("[{}] The cursor's metadata could not be written: epoch {} is claimed again", context.name(),
                    ownership.epoch());
        }
    }

    /** True if the cursor's metadata version must differ from the stored one. */
    public boolean isStale() {
        return !owned && conflicts >= MAX_CONFLICTS;
    }

    /** @throws IllegalStateException if an invariant does not hold */
    public void check() {
        require(!owned || !writing, "an owner writes an epoch");
        require(conflicts <= refusals, conflicts + " conflicts among " + refusals + " refusals");
    }

    private void require(boolean holds, String broken) {
        if (!holds) {
            throw new IllegalStateException(broken + ": " + ownership);
        }
    }
}
