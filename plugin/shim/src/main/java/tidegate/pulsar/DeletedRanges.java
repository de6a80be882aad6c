package tidegate.pulsar;

import java.util.ArrayList;
import java.util.List;

/**
 * Notices what the cursor has as deleted although nobody was given it: messages that were cancelled, by the ids that their
 * producer got, before they were due.
 *
 * <p>Such a position may be any of millions, so none is asked about by itself. As long as the cursor counts no further deletion
 * and nothing has come to be contained, there is nothing to see. Else the cursor's deleted entries are copied, a bit each, and
 * laid over those that are contained, 64 at a time. What is found counts only under the {@link Seal} that stood before and after,
 * as every acknowledgement; it is found again until {@link #noteTold} says that it was told. Why so:
 * docs/decisions/cancelled-messages.md.
 *
 * <p>Takes no lock but, for the copy, the cursor's. Any thread may look; one at a time watches, by {@link #lookIfChanged}.
 */
final class DeletedRanges {
    /** So many positions are told with the tracker's lock held once: about a millisecond. */
    private static final int PART_MAX = 1_024;
    /** A look at 20 million entries takes a few hundred microseconds: then the next one waits for 15 ms. */
    private static final long WORDS_PER_MS = 20_000;
    private static final long MAX_PAUSE_MS = 500;

    /** What decides whether there is anything to see. */
    private record State(long generation, long deletions, long entered) {}

    /** What one look has found, in parts. The state was read before it: nothing that came later is taken for seen. */
    static final class Look {
        private final State state;
        private final List<Positions> parts = new ArrayList<>();
        private int lastSize = PART_MAX;
        private long words;

        private Look(State state) {
            this.state = state;
        }

        List<Positions> parts() {
            return parts;
        }

        private void add(long ledgerId, long entryId) {
            if (lastSize == PART_MAX) {
                parts.add(new Positions());
                lastSize = 0;
            }
            parts.get(parts.size() - 1).add(ledgerId, entryId);
            lastSize++;
        }
    }

    private final TrackerHost host;
    private final Seal seal;
    private final PositionStates positions;
    private final Wait sinceLook = new Wait();
    private long pauseMs;
    private volatile State told;

    DeletedRanges(TrackerHost host, Seal seal, PositionStates positions) {
        this.host = host;
        this.seal = seal;
        this.positions = positions;
    }

    /** Whether a look may show something. */
    boolean hasChanged() {
        return positions.contained() > 0 && !state().equals(told);
    }

    /** As {@link #look}; null if there is nothing to see, or so much that the next look is to wait. */
    Look lookIfChanged(long nowMs) {
        if (!hasChanged() || !sinceLook.isOver(nowMs, pauseMs)) {
            return null;
        }
        Look look = look();
        sinceLook.begin(nowMs);
        pauseMs = Math.min(MAX_PAUSE_MS, look.words / WORDS_PER_MS);
        return look;
    }

    /** The contained positions that the cursor has as deleted. It may take a while. */
    Look look() {
        Look look = new Look(state());
        if (positions.contained() == 0) {
            return look;
        }
        host.deletedEntries().forEach((ledgerId, words) -> {
            look.words += words.length;
            positions.forEachContainedIn(ledgerId, words, look::add);
        });
        return look;
    }

    /** All that the look has found was told, under a seal that stood. */
    void noteTold(Look look) {
        told = look.state;
    }

    private State state() {
        return new State(seal.generation(), host.deletions(), positions.entered());
    }
}
