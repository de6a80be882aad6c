package tidegate.pulsar;

import java.util.random.RandomGenerator;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One tracker's claim to be the owner of its subscription: the next epoch and a random number, written into the cursor's metadata
 * by compare-and-set, before the daemon hears of it. Of a new subscription that waits for a consumer.
 *
 * <p>Only who could write the cursor's metadata last can write it again, so two brokers never claim the same epoch, and no
 * clock has a part in it. A refused write is tried again with growing pauses: the cursor's own writes share its version.
 * Guarded by the tracker's lock, but for {@link #write}.
 */
final class Claim {
    private static final Logger LOG = LoggerFactory.getLogger(Claim.class);
    private static final long FIRST_PAUSE_MS = 100;
    private static final long MAX_PAUSE_MS = 10_000;
    /** So many refusals in a row no other writer explains: a cursor that does not know its metadata's version never learns it. */
    private static final int MAX_CONFLICTS = 4;
    private static final TrackerHost.Position NOT_KNOWN = new TrackerHost.Position(-1, -1);

    private final TrackerHost host;
    private final Ownership known;
    private final RandomGenerator random;
    private Ownership ownership;
    private TrackerHost.Position end = NOT_KNOWN;
    private boolean owned;
    private boolean writing;
    private int refusals;
    private int conflicts;
    private final Wait pause = new Wait();

    /** @param known what the cursor said when the tracker was made, or a first one */
    Claim(TrackerHost host, Ownership known, RandomGenerator random) {
        this.host = host;
        this.known = known;
        this.random = random;
        ownership = known;
    }

    /** The incarnation, and the epoch with its claims once it {@link #isOwned}. */
    Ownership ownership() {
        return ownership;
    }

    /** Where the topic ended when the epoch was claimed; -1:-1 if that is not known. */
    TrackerHost.Position end() {
        return end;
    }

    /** Whether the epoch is in the cursor's metadata. */
    boolean isOwned() {
        return owned;
    }

    /** Goes by the epoch that is there already: for who only has a last word about the subscription. */
    void take() {
        owned = true;
        end = NOT_KNOWN;
    }

    /** Somebody has claimed a greater epoch: claims anew, which succeeds only if this is the owner all the same. */
    void lost() {
        owned = false;
    }

    /** What to write now, or null; the answer must be brought to {@link #written}. */
    Ownership begin(long nowMs) {
        if (owned || writing || !pause.isOver(nowMs, pauseMs()) || !host.mayPutOwnership()) {
            return null;
        }
        writing = true;
        Ownership there = host.ownership();
        ownership = (there == null ? known : there).next(host.storesSealed(), random);
        // What the index has of the former owners was read before now: a topic that ends earlier is not the one they knew.
        end = host.lastConfirmed();
        return ownership;
    }

    private long pauseMs() {
        return Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS << Math.min(refusals, 10));
    }

    /** What has become of what {@link #begin} gave. */
    void written(TrackerHost.Written written, long nowMs) {
        writing = false;
        owned = written == TrackerHost.Written.DONE;
        if (owned) {
            refusals = 0;
            conflicts = 0;
            return;
        }
        if (written == TrackerHost.Written.UNATTENDED) {
            return;
        }
        refusals++;
        pause.begin(nowMs);
        if (written == TrackerHost.Written.CONFLICT) {
            conflicts++;
            LOG.info("[{}] The cursor's metadata was written by somebody else at the same time: epoch {} is claimed again",
                    host.name(), ownership.epoch());
        } else {
            LOG.info("[{}] The cursor's metadata could not be written: epoch {} is claimed again", host.name(),
                    ownership.epoch());
        }
    }

    /** Whether the version of the metadata that the cursor goes by must be another than theirs. */
    boolean isStale() {
        return !owned && conflicts >= MAX_CONFLICTS;
    }

    /** @throws IllegalStateException if an invariant does not hold */
    void check() {
        require(!owned || !writing, "an epoch is written by who owns one");
        require(conflicts <= refusals, conflicts + " conflicts among " + refusals + " refusals");
    }

    private void require(boolean holds, String broken) {
        if (!holds) {
            throw new IllegalStateException(broken + ": " + ownership);
        }
    }
}
