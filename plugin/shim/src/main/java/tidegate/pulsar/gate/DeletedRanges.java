package tidegate.pulsar.gate;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import tidegate.pulsar.position.PositionView;
import tidegate.pulsar.timing.Wait;
import tidegate.pulsar.wire.PositionBitmaps;

/**
 * Finds positions deleted in the cursor that were never handed out: messages cancelled by the ids that their producer got;
 * and, of any message, acknowledgements beyond the cursor's storage. Why: docs/decisions/cancelled-messages.md.
 *
 * <p>While the cursor counts no further deletion and no position becomes contained, there is nothing to see. Otherwise a
 * look copies the cursor's deleted entries, a bit each, and intersects them with the contained ones, 64 at a time. Beyond
 * the {@link RangeLimit}, it also finds those that the cursor does not store. A finding counts only under the {@link Seal}
 * that stood before and after; looks find it again until {@link #noteTold}.
 *
 * <p>Takes no lock except the cursor's, for the copy. Any thread may look; one at a time watches, by {@link #lookIfChanged}.
 */
final class DeletedRanges {
    /** Most positions reported under one hold of the tracker's lock: about a millisecond. */
    private static final int PART_MAX = 1_024;
    /** A look at 20 million entries takes a few hundred microseconds; the next one then waits 15 ms. */
    private static final long WORDS_PER_MS = 20_000;
    private static final long MAX_PAUSE_MS = 500;

    /** A change in any of these may show something new. */
    private record State(long generation, long deletions, long entered) {}

    /** The cursor's use of the limit at that state. */
    private record Taken(State state, long ranges) {}

    /** One look's findings, in parts. It read the state first, so nothing later counts as seen. */
    static final class Look {
        private final State state;
        private final List<PositionBitmaps> parts = new ArrayList<>();
        private int lastSize = PART_MAX;
        private long words;

        private Look(State state) {
            this.state = state;
        }

        List<PositionBitmaps> parts() {
            return parts;
        }

        private void add(long ledgerId, long entryId) {
            if (lastSize == PART_MAX) {
                parts.add(new PositionBitmaps());
                lastSize = 0;
            }
            parts.get(parts.size() - 1).add(ledgerId, entryId);
            lastSize++;
        }
    }

    private final TrackerContext context;
    private final Seal seal;
    private final PositionView positions;
    private final Wait sinceLook = new Wait();
    private long pauseMs;
    private volatile State told;
    private volatile Taken taken;

    DeletedRanges(TrackerContext context, Seal seal, PositionView positions) {
        this.context = context;
        this.seal = seal;
        this.positions = positions;
    }

    boolean hasChanged() {
        State state = state();
        return (positions.contained() > 0 || mayExceed(state)) && !state.equals(told);
    }

    /** As {@link #look}; null if there is nothing to see, or so much that the next look must wait. */
    Look lookIfChanged(long nowMs) {
        if (!hasChanged() || !sinceLook.isOver(nowMs, pauseMs)) {
            return null;
        }
        Look look = look();
        sinceLook.begin(nowMs);
        pauseMs = Math.min(MAX_PAUSE_MS, look.words / WORDS_PER_MS);
        return look;
    }

    /** The positions deleted in the cursor that are contained, or not stored. Slow. */
    Look look() {
        Look look = new Look(state());
        if (positions.contained() == 0 && !mayExceed(look.state)) {
            return look;
        }
        Map<Long, long[]> deleted = context.deletedEntries();
        deleted.forEach((ledgerId, words) -> {
            look.words += words.length;
            positions.forEachContainedIn(ledgerId, words, look::add);
        });
        RangeLimit limit = context.rangeLimit();
        long ranges = limit.taken(deleted);
        taken = new Taken(look.state, ranges);
        if (ranges > limit.max()) {
            limit.leaveBeyond(deleted);
            deleted.forEach((ledgerId, words) -> {
                positions.clearKnownIn(ledgerId, words);
                addAll(look, ledgerId, words);
            });
        }
        return look;
    }

    private static void addAll(Look look, long ledgerId, long[] words) {
        for (int w = 0; w < words.length; w++) {
            for (long bits = words[w]; bits != 0; bits &= bits - 1) {
                look.add(ledgerId, (long) w << 6 | Long.numberOfTrailingZeros(bits));
            }
        }
    }

    /** False if the cursor surely stores all deletions: each takes at most one range. */
    private boolean mayExceed(State state) {
        Taken before = taken;
        return before == null || before.state.generation() != state.generation()
                || before.ranges + state.deletions() - before.state.deletions() > context.rangeLimit().max();
    }

    /** Notes that all the look's findings were reported, under a standing seal. */
    void noteTold(Look look) {
        told = look.state;
    }

    private State state() {
        return new State(seal.generation(), context.deletions(), positions.entered());
    }
}
