package tidegate.pulsar.gate;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;
import tidegate.pulsar.wire.FrameCodec;
import tidegate.pulsar.wire.OverrideEntry;
import tidegate.pulsar.wire.PositionBitmaps;
import tidegate.pulsar.wire.Records;

/**
 * The ledger that has a subscription's overrides, and the pointer to it.
 *
 * <p>A snapshot begins a ledger, and changes follow. A new one takes its place by {@link Rewriting}: it counts once the pointer
 * names it, {@code 1;LEDGER}, with the ledgers that go, {@code ,LEDGER…}. These are deleted when that is certain. One write is
 * under way at a time. Guarded by the tracker's lock, but for requests and their answers.
 */
final class OverrideLedger {
    /** So many entries of a write are under way at a time. */
    static final int APPENDS_MAX = 8;
    /** A ledger is written anew when it has twice as many records as are stored, and so many more. */
    private static final long SLACK_RECORDS = 1000;
    private static final long NONE = -1;

    /** The end of a rewriting that somebody knows of. */
    enum Outcome {
        /** The pointer names it. */
        DONE,
        /** The pointer is another one than was known, and stays. */
        STALE,
        /** The pointer takes nothing now, and stays. */
        REFUSED,
        /** It could not be written, and the pointer stays. */
        FAILED,
        /** The pointer is not to be changed any more, and stays. */
        OVER
    }

    private final OverrideHome home;
    private String pointer = "";
    private long ledger = NONE;
    private long appended;
    /** Ledgers to delete once the pointer names another. */
    private final List<Long> former = new ArrayList<>();
    /** The pointer may name its ledger: the next one that is surely written tells. Null if there is none such. */
    private Rewriting doubtful;

    OverrideLedger(OverrideHome home) {
        this.home = home;
    }

    /** The ledger that the pointer names was read: nobody can append to it any more. */
    void restore(String text) {
        pointer = text;
        setAside();
        // Only the next pointer that is surely written makes certain that no other names a ledger in doubt.
        List<Long> named = OverrideHome.ledgersOf(text);
        former.removeAll(named);
        former.addAll(0, named);
        ledger = NONE;
    }

    /** True if it is to be written anew before anything is appended. {@code stored}: how many records it must have. */
    boolean isToRewrite(long stored) {
        return ledger == NONE || appended > 2 * stored + SLACK_RECORDS;
    }

    /** It may be fenced, or end with entries that nobody knows of: nothing is appended any more. */
    void giveUp() {
        ledger = NONE;
    }

    /** Notes records that {@link #append} gets. */
    void count(Records records) {
        appended += records.size();
    }

    CompletableFuture<Void> append(Records records, PositionBitmaps left) {
        return appendAll(ledger, records, left);
    }

    /** True if it is to be written anew, or its pointer, to have ledgers deleted that former trackers have left. */
    boolean hasLeftBehind() {
        return !OverrideHome.ledgersOf(pointer).containsAll(home.leftBehind());
    }

    /** A ledger in doubt that has the same records is named once more: a new one for each attempt might be left behind. */
    Rewriting rewrite(Records all) {
        if (doubtful != null && doubtful.all.equals(all)) {
            return doubtful;
        }
        setAside();
        home.leftBehind().stream().filter(one -> !former.contains(one)).forEach(former::add);
        return new Rewriting(all);
    }

    private void setAside() {
        if (doubtful != null && doubtful.next != NONE) {
            former.add(doubtful.next);
        }
        doubtful = null;
    }

    private CompletableFuture<Void> appendAll(long ledgerId, Records records, PositionBitmaps left) {
        List<Supplier<ByteBuffer>> entries = new ArrayList<>();
        // First, as a position can leave with its former time and move to another in one write.
        if (!left.isEmpty()) {
            left.cut(FrameCodec.MAX_SET_BYTES / 2).forEach(part -> entries.add(() -> OverrideEntry.left(part)));
        }
        for (int first = 0; first < records.size(); first += OverrideEntry.MAX_RECORDS) {
            int from = first;
            int to = Math.min(records.size(), from + OverrideEntry.MAX_RECORDS);
            entries.add(() -> OverrideEntry.moved(records, from, to));
        }
        return appendFrom(ledgerId, entries, 0);
    }

    /** Made when they are appended: not all of them are in memory at a time. */
    private CompletableFuture<Void> appendFrom(long ledgerId, List<Supplier<ByteBuffer>> entries, int from) {
        int to = Math.min(entries.size(), from + APPENDS_MAX);
        CompletableFuture<Void> some = CompletableFuture.allOf(entries.subList(from, to).stream()
                .map(entry -> home.append(ledgerId, entry.get())).toArray(CompletableFuture<?>[]::new));
        return to == entries.size() ? some : some.thenCompose(done -> appendFrom(ledgerId, entries, to));
    }

    /** A new ledger in the place of the former, or none where there is nothing to keep. */
    final class Rewriting {
        private final Records all;
        private final String before = pointer;
        private long next = NONE;
        private String after = "";
        /** Why it could not be written. */
        private volatile Throwable failure;
        private volatile boolean isDoubtful;

        private Rewriting(Records all) {
            this.all = all;
        }

        /** Begins it; fails if nobody knows what the pointer names then. {@code isOver}: asked before the pointer is changed. */
        CompletableFuture<Outcome> begin(BooleanSupplier isOver) {
            if (all.isEmpty()) {
                return before.isEmpty() && former.isEmpty() ? CompletableFuture.completedFuture(Outcome.DONE) : point();
            }
            if (isDoubtful) {
                return pointUnless(isOver);
            }
            return home.create()
                    .thenCompose(created -> {
                        next = created;
                        return appendAll(created, all, new PositionBitmaps());
                    })
                    .handle((done, error) -> {
                        failure = error;
                        return error == null;
                    })
                    .thenCompose(isWritten -> {
                        if (!isWritten) {
                            return CompletableFuture.completedFuture(Outcome.FAILED);
                        }
                        StringBuilder text = new StringBuilder(OverrideHome.VERSION).append(next);
                        former.forEach(one -> text.append(',').append(one));
                        after = text.toString();
                        return pointUnless(isOver);
                    });
        }

        private CompletableFuture<Outcome> pointUnless(BooleanSupplier isOver) {
            // A successor may read the ledger that the pointer names.
            return isOver.getAsBoolean() ? CompletableFuture.completedFuture(Outcome.OVER) : point();
        }

        private CompletableFuture<Outcome> point() {
            return home.point(before, after).thenApply(pointed -> switch (pointed) {
                case DONE -> Outcome.DONE;
                case STALE -> Outcome.STALE;
                case REFUSED -> Outcome.REFUSED;
            });
        }

        Throwable failure() {
            return failure;
        }

        /** The pointer names it: returns the ledgers that nobody needs any more. Lock held. */
        List<Long> done() {
            doubtful = null;
            pointer = after;
            ledger = next;
            appended = all.size();
            List<Long> over = List.copyOf(former);
            former.clear();
            if (next != NONE) {
                former.add(next);
            }
            return over;
        }

        /** The pointer may name it. Lock held. */
        void doubt() {
            giveUp();
            isDoubtful = true;
            doubtful = this;
        }

        /** The pointer was not changed: it does not name it, and never will, unless it did before. */
        void discard() {
            if (next != NONE && !isDoubtful) {
                home.delete(next);
            }
        }
    }
}
