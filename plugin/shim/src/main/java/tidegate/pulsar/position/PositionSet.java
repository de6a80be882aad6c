package tidegate.pulsar.position;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.Arrays;
import org.roaringbitmap.CharIterator;
import org.roaringbitmap.Container;
import org.roaringbitmap.ContainerPointer;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.PositionBitmaps;

/**
 * A set of positions: for each ledger, its {@link LedgerPages pages}.
 *
 * <p>One writer at a time (the owner's lock); any thread may call {@link #contains} and {@link #size} without a lock and
 * sees every write that happened before. A bit is one word access, so readers never wait for each other. Pages and ledgers
 * are never reused for other positions: a reader with a dropped page sees old bits of the same positions. Why not a
 * RoaringBitmap under a lock: docs/decisions/position-set.md.
 */
public final class PositionSet {
    private static final int CONTAINER_SHIFT = 16;
    /** A container with this many of its 65,536 positions is dense. */
    private static final int DENSE = 1_024;
    private static final LedgerPages[] NO_LEDGERS = new LedgerPages[0];
    private static final VarHandle SIZE;

    static {
        try {
            SIZE = MethodHandles.lookup().findVarHandle(PositionSet.class, "size", long.class);
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    /** Ascending by id; replaced, never changed. */
    private volatile LedgerPages[] ledgers = NO_LEDGERS;

    /** The last look-up's index, a hint: reads come in ascending order. */
    private int lastIndex;

    private long size;

    public boolean contains(long ledgerId, long entryId) {
        LedgerPages ledger = find(ledgerId);
        return ledger != null && ledger.contains(entryId);
    }

    /** The ledger's first absent entry from that one on. Needs no lock. */
    public long firstAbsent(long ledgerId, long entryId) {
        LedgerPages ledger = find(ledgerId);
        return ledger == null ? entryId : ledger.firstAbsent(entryId);
    }

    public long size() {
        return (long) SIZE.getOpaque(this);
    }

    public boolean isEmpty() {
        return size() == 0;
    }

    /** Adds a position; false if present. */
    public boolean add(long ledgerId, long entryId) {
        boolean added = forWrite(ledgerId).add(entryId);
        if (added) {
            grow(1);
        }
        return added;
    }

    /** Removes a position; false if absent. */
    public boolean remove(long ledgerId, long entryId) {
        LedgerPages ledger = find(ledgerId);
        boolean removed = ledger != null && ledger.remove(entryId);
        if (removed) {
            grow(-1);
        }
        return removed;
    }

    /** Adds all of another set, which no other thread changes meanwhile. */
    public void addAll(PositionSet other) {
        for (LedgerPages from : other.ledgers) {
            grow(forWrite(from.ledgerId).addAll(from));
        }
    }

    /** Removes all of another set, which no other thread changes meanwhile. */
    public void removeAll(PositionSet other) {
        for (LedgerPages from : other.ledgers) {
            LedgerPages of = find(from.ledgerId);
            if (of != null) {
                grow(-of.removeAll(from));
            }
        }
    }

    private void grow(long by) {
        SIZE.setOpaque(this, size + by);
    }

    /** Adds word by word where there are many: a new owner gets millions while its code is cold. */
    public void addAll(PositionBitmaps positions) {
        positions.ledgers().forEach((ledgerId, entryIds) -> {
            for (ContainerPointer at = entryIds.getContainerPointer(); at.getContainer() != null; at.advance()) {
                addContainer(ledgerId, (long) at.key() << CONTAINER_SHIFT, at.getContainer());
            }
        });
    }

    private void addContainer(long ledgerId, long firstEntryId, Container entries) {
        if (entries.getCardinality() < DENSE) {
            for (CharIterator each = entries.getCharIterator(); each.hasNext();) {
                add(ledgerId, firstEntryId + each.next());
            }
            return;
        }
        grow(forWrite(ledgerId).addAll(firstEntryId, entries));
    }

    public void removeAll(PositionBitmaps positions) {
        positions.forEach(this::remove);
    }

    /** Removes everything up to and including the position. */
    public void discardUpTo(long ledgerId, long entryId) {
        LedgerPages[] all = ledgers;
        int first = 0;
        while (first < all.length && all[first].ledgerId < ledgerId) {
            grow(-all[first++].discardUpTo(Long.MAX_VALUE));
        }
        if (first > 0) {
            ledgers = Arrays.copyOfRange(all, first, all.length);
        }
        LedgerPages border = find(ledgerId);
        if (border != null && entryId >= 0) {
            grow(-border.discardUpTo(entryId));
        }
    }

    public void clear() {
        ledgers = NO_LEDGERS;
        SIZE.setOpaque(this, 0L);
    }

    /** Frees empty pages and ledgers. The highest ledger stays: the next adds go there. */
    void trim() {
        LedgerPages[] all = ledgers;
        LedgerPages[] kept = new LedgerPages[all.length];
        int count = 0;
        for (int l = 0; l < all.length; l++) {
            if (all[l].trim() || l == all.length - 1) {
                kept[count++] = all[l];
            }
        }
        if (count < all.length) {
            ledgers = Arrays.copyOf(kept, count);
        }
    }

    /** Visits every position in ascending order; without a lock it may miss or include concurrent changes. */
    public void forEach(PositionBitmaps.Visitor visitor) {
        forFirst(Long.MAX_VALUE, visitor);
    }

    /** As {@link #forEach}, at most {@code max} positions. */
    void forFirst(long max, PositionBitmaps.Visitor visitor) {
        long[] left = {max};
        forWhile((ledgerId, entryId) -> {
            if (left[0]-- == 0) {
                return false;
            }
            visitor.visit(ledgerId, entryId);
            return true;
        });
    }

    /** As {@link #forEach}, up to and including the first position that fails the test. */
    void forWhile(PositionPredicate test) {
        for (LedgerPages ledger : ledgers) {
            if (!ledger.forWhile(test)) {
                return;
            }
        }
    }

    /** Tests each position before that one in descending order, until a test is false. */
    void forWhileBefore(long ledgerId, long entryId, PositionPredicate test) {
        LedgerPages[] all = ledgers;
        for (int l = all.length - 1; l >= 0; l--) {
            long last = all[l].ledgerId == ledgerId ? entryId - 1 : Long.MAX_VALUE;
            if (all[l].ledgerId <= ledgerId && last >= 0 && !all[l].forWhileDown(last, test)) {
                return;
            }
        }
    }

    /**
     * Visits the positions of one ledger that are also in {@code words}, laid out as in a {@link java.util.BitSet}: 64 at a
     * time, so that a position in only one of the two costs little. Needs no lock, as {@link #forEach}.
     */
    void forEachIn(long ledgerId, long[] words, PositionBitmaps.Visitor visitor) {
        LedgerPages ledger = find(ledgerId);
        if (ledger != null) {
            ledger.forEachIn(words, visitor);
        }
    }

    /** Clears those bits of {@code words}, laid out as in {@link #forEachIn}, that are in the set. Needs no lock. */
    public void clearIn(long ledgerId, long[] words) {
        LedgerPages ledger = find(ledgerId);
        if (ledger != null) {
            ledger.clearIn(words);
        }
    }

    /** The lowest position that passes the test; null without one. */
    Position first(PositionPredicate test) {
        Position[] first = {null};
        forWhile((ledgerId, entryId) -> {
            if (test.test(ledgerId, entryId)) {
                first[0] = new Position(ledgerId, entryId);
            }
            return first[0] == null;
        });
        return first[0];
    }

    /** All positions up to and including that one, as frames carry them. Built from words: it may be a whole backlog. */
    PositionBitmaps upTo(long ledgerId, long entryId) {
        PositionBitmaps positions = new PositionBitmaps();
        for (LedgerPages ledger : ledgers) {
            if (ledger.ledgerId < ledgerId || ledger.ledgerId == ledgerId && entryId >= 0) {
                positions.put(ledger.ledgerId, ledger.bitmapUpTo(ledger.ledgerId < ledgerId ? Long.MAX_VALUE : entryId));
            }
        }
        return positions;
    }

    /** The set as frames carry it. */
    public PositionBitmaps toPositions() {
        PositionBitmaps positions = new PositionBitmaps();
        for (LedgerPages ledger : ledgers) {
            positions.put(ledger.ledgerId, ledger.bitmap());
        }
        return positions.optimized();
    }

    /** The highest position as {ledger id, entry id}; null if the set is empty. */
    long[] last() {
        LedgerPages[] all = ledgers;
        for (int l = all.length - 1; l >= 0; l--) {
            long entryId = all[l].last();
            if (entryId >= 0) {
                return new long[] {all[l].ledgerId, entryId};
            }
        }
        return null;
    }

    long memoryBytes() {
        long bytes = 0;
        for (LedgerPages ledger : ledgers) {
            bytes += ledger.memoryBytes();
        }
        return bytes;
    }

    private LedgerPages find(long ledgerId) {
        LedgerPages[] all = ledgers;
        int hint = lastIndex;
        if (hint < all.length && all[hint].ledgerId == ledgerId) {
            return all[hint];
        }
        int low = 0;
        int high = all.length - 1;
        while (low <= high) {
            int middle = (low + high) >>> 1;
            long id = all[middle].ledgerId;
            if (id == ledgerId) {
                lastIndex = middle;
                return all[middle];
            } else if (id < ledgerId) {
                low = middle + 1;
            } else {
                high = middle - 1;
            }
        }
        return null;
    }

    private LedgerPages forWrite(long ledgerId) {
        LedgerPages found = find(ledgerId);
        return found == null ? insert(ledgerId) : found;
    }

    private LedgerPages insert(long ledgerId) {
        LedgerPages[] all = ledgers;
        int at = all.length;
        while (at > 0 && all[at - 1].ledgerId > ledgerId) {
            at--;
        }
        LedgerPages[] more = new LedgerPages[all.length + 1];
        System.arraycopy(all, 0, more, 0, at);
        more[at] = new LedgerPages(ledgerId);
        System.arraycopy(all, at, more, at + 1, all.length - at);
        ledgers = more;
        return more[at];
    }
}
