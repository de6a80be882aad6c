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
 * <p>A snapshot begins a ledger, and changes follow. A new one replaces it by {@link Rewriting}: it counts once the pointer
 * names it, {@code 1;LEDGER}, with the ledgers to delete once that is certain, {@code ,LEDGER…}. One write is under way at a
 * time. Guarded by the tracker's lock, but for requests and their answers.
 *
 * <p>Example: pointer {@code 1;7}. Ledger 8 is written with the snapshot, then the pointer becomes {@code 1;8,7}, then 7 is
 * deleted. A crash before the second step leaves 7 in force; one after it leaves 7 named, for the next owner to delete.
 */
final class OverrideLedger {
    /** Most entries of a write under way at a time. */
    static final int APPENDS_MAX = 8;
    /** A new ledger is due at twice as many records as are stored, and so many more. */
    private static final long SLACK_RECORDS = 1000;
    private static final long NONE = -1;

    enum Outcome {
        /** The pointer names the new ledger. */
        DONE,
        /** The pointer is not the expected one, and stays. */
        STALE,
        /** The pointer takes nothing now, and stays. */
        REFUSED,
        /** The ledger could not be written, and the pointer stays. */
        FAILED,
        /** The pointer must not be changed any more, and stays. */
        OVER
    }

    private final OverrideHome home;
    private String pointer = "";
    private long ledger = NONE;
    private long appended;
    /** Ledgers to delete once the pointer names another. */
    private final List<Long> former = new ArrayList<>();
    /** The rewriting whose ledger the pointer may name, until the next certain write. Null without one. */
    private Rewriting doubtful;

    OverrideLedger(OverrideHome home) {
        this.home = home;
    }

    /** Takes the ledger of the pointer just read: no former owner can append to it any more. */
    void restore(String text) {
        pointer = text;
        setAside();
        // Only the next certain write of a pointer excludes that another names a ledger in doubt.
        List<Long> named = OverrideHome.ledgersOf(text);
        former.removeAll(named);
        former.addAll(0, named);
        ledger = NONE;
    }

    /** True if the ledger must be written anew before an append. {@code stored}: the number of records it must have. */
    boolean isToRewrite(long stored) {
        return ledger == NONE || appended > 2 * stored + SLACK_RECORDS;
    }

    /** Stops appending: the ledger may be fenced, or end with unknown entries. */
    void giveUp() {
        ledger = NONE;
    }

    void count(Records records) {
        appended += records.size();
    }

    CompletableFuture<Void> append(Records records, PositionBitmaps left) {
        return appendAll(ledger, records, left);
    }

    /** True if a write is due to have former trackers' ledgers deleted. */
    boolean hasLeftBehind() {
        return !OverrideHome.ledgersOf(pointer).containsAll(home.leftBehind());
    }

    /** Begins a new ledger, or reuses one in doubt with the same records, so that attempts leave none behind. */
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
        // First, because a position can leave with its former time and move to another in one write.
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

    /** Appends one after another, and makes each entry then: not all are in memory at a time. */
    private CompletableFuture<Void> appendFrom(long ledgerId, List<Supplier<ByteBuffer>> entries, int from) {
        int to = Math.min(entries.size(), from + APPENDS_MAX);
        CompletableFuture<Void> some = CompletableFuture.allOf(entries.subList(from, to).stream()
                .map(entry -> home.append(ledgerId, entry.get())).toArray(CompletableFuture<?>[]::new));
        return to == entries.size() ? some : some.thenCompose(done -> appendFrom(ledgerId, entries, to));
    }

    /** A new ledger in place of the former, or none if there is nothing to keep. */
    final class Rewriting {
        private final Records all;
        private final String before = pointer;
        private long next = NONE;
        private String after = "";
        /** The reason for a ledger's failure. */
        private volatile Throwable failure;
        private volatile boolean isDoubtful;

        private Rewriting(Records all) {
            this.all = all;
        }

        /**
         * Begins the rewriting; fails if the pointer's ledger is unknown then. {@code isOver}: asked before the pointer
         * changes.
         */
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

        /** Notes that the pointer names the ledger; returns the ledgers no longer needed. Lock held. */
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

        /** Notes that the pointer may name the ledger. Lock held. */
        void doubt() {
            giveUp();
            isDoubtful = true;
            doubtful = this;
        }

        /** Notes that the pointer was not changed: it never names the ledger, unless it did before. */
        void discard() {
            if (next != NONE && !isDoubtful) {
                home.delete(next);
            }
        }
    }
}
