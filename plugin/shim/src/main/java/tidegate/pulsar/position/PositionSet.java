package tidegate.pulsar.position;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.LongBuffer;
import java.util.Arrays;
import org.roaringbitmap.BitSetUtil;
import org.roaringbitmap.CharIterator;
import org.roaringbitmap.Container;
import org.roaringbitmap.ContainerPointer;
import org.roaringbitmap.RoaringBitmap;
import org.roaringbitmap.RoaringBitmapWriter;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.PositionBitmaps;

/**
 * A set of positions: for each ledger, pages of 4,096 bits.
 *
 * <p>One writer at a time (the owner's lock); {@link #contains} and {@link #size} may be called by any thread without a
 * lock and see every write that happened before. A bit is one word access, so that the read of the dispatcher's thread and
 * the look-ups of BookKeeper's threads never wait for each other. Pages and ledgers are never reused for other positions:
 * a reader that still holds a dropped one sees old bits of the same positions, never those of others. Why not a
 * RoaringBitmap under a lock: docs/decisions/position-set.md.
 */
public final class PositionSet {
    private static final int PAGE_SHIFT = 12;
    private static final int PAGE_WORDS = 1 << (PAGE_SHIFT - 6);
    private static final int PAGE_BYTES = PAGE_WORDS * Long.BYTES + 24;
    private static final int LEDGER_BYTES = 64;
    private static final int CONTAINER_SHIFT = 16;
    /** A container with this many of its 65,536 positions is dense. */
    private static final int DENSE = 1_024;
    private static final long[] NONE = new long[PAGE_WORDS];
    private static final Ledger[] NO_LEDGERS = new Ledger[0];
    private static final VarHandle WORD = MethodHandles.arrayElementVarHandle(long[].class);
    private static final VarHandle PAGE = MethodHandles.arrayElementVarHandle(long[][].class);
    private static final VarHandle SIZE;

    static {
        try {
            SIZE = MethodHandles.lookup().findVarHandle(PositionSet.class, "size", long.class);
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    private static final class Ledger {
        final long id;
        volatile long[][] pages = new long[1][];
        int[] counts = new int[1];

        Ledger(long id) {
            this.id = id;
        }
    }

    /** Ascending by id; replaced, never changed. */
    private volatile Ledger[] ledgers = NO_LEDGERS;

    /** Where the last look-up ended: reads come in ascending order, so the next one mostly ends there too. A hint only. */
    private int lastIndex;

    private long size;

    public boolean contains(long ledgerId, long entryId) {
        Ledger ledger = find(ledgerId);
        if (ledger == null) {
            return false;
        }
        long[] page = page(ledger.pages, entryId);
        return page != null && ((long) WORD.getOpaque(page, word(entryId)) >>> entryId & 1L) != 0;
    }

    /** The first entry of the ledger from that one on that is not in the set. Needs no lock. */
    public long firstAbsent(long ledgerId, long entryId) {
        Ledger ledger = find(ledgerId);
        long at = entryId;
        while (ledger != null) {
            long[] page = page(ledger.pages, at);
            long absent = page == null ? 1L : ~(long) WORD.getOpaque(page, word(at)) >>> at;
            if (absent != 0) {
                return at + Long.numberOfTrailingZeros(absent);
            }
            at = (at | 63) + 1;
        }
        return at;
    }

    public long size() {
        return (long) SIZE.getOpaque(this);
    }

    public boolean isEmpty() {
        return size() == 0;
    }

    /** Adds a position; false if it was in already. */
    public boolean add(long ledgerId, long entryId) {
        Ledger ledger = find(ledgerId);
        if (ledger == null) {
            ledger = insert(ledgerId);
        }
        int index = (int) (entryId >>> PAGE_SHIFT);
        long[] page = pageForWrite(ledger, index);
        int word = word(entryId);
        long bits = page[word];
        long bit = 1L << entryId;
        if ((bits & bit) != 0) {
            return false;
        }
        WORD.setRelease(page, word, bits | bit);
        ledger.counts[index]++;
        SIZE.setOpaque(this, size + 1);
        return true;
    }

    /** Removes a position; false if it was not in. */
    public boolean remove(long ledgerId, long entryId) {
        Ledger ledger = find(ledgerId);
        if (ledger == null) {
            return false;
        }
        long[] page = page(ledger.pages, entryId);
        int word = word(entryId);
        long bit = 1L << entryId;
        if (page == null || (page[word] & bit) == 0) {
            return false;
        }
        WORD.setRelease(page, word, page[word] & ~bit);
        ledger.counts[(int) (entryId >>> PAGE_SHIFT)]--;
        SIZE.setOpaque(this, size - 1);
        return true;
    }

    /** Adds all of another set that no other thread changes meanwhile. */
    public void addAll(PositionSet other) {
        for (Ledger from : other.ledgers) {
            Ledger to = find(from.id);
            if (to == null) {
                to = insert(from.id);
            }
            long[][] pages = from.pages;
            for (int i = 0; i < pages.length; i++) {
                if (pages[i] != null && from.counts[i] > 0) {
                    orPage(to, i, pages[i]);
                }
            }
        }
    }

    private void orPage(Ledger ledger, int index, long[] more) {
        long[] page = pageForWrite(ledger, index);
        int added = 0;
        for (int w = 0; w < PAGE_WORDS; w++) {
            long news = more[w] & ~page[w];
            if (news != 0) {
                added += Long.bitCount(news);
                WORD.setRelease(page, w, page[w] | news);
            }
        }
        ledger.counts[index] += added;
        SIZE.setOpaque(this, size + added);
    }

    /** Removes all of another set that no other thread changes meanwhile. */
    public void removeAll(PositionSet other) {
        for (Ledger from : other.ledgers) {
            Ledger of = find(from.id);
            int pages = of == null ? 0 : Math.min(of.pages.length, from.pages.length);
            for (int i = 0; i < pages; i++) {
                if (from.counts[i] > 0 && of.counts[i] > 0) {
                    andNotPage(of, i, from.pages[i]);
                }
            }
        }
    }

    private void andNotPage(Ledger ledger, int index, long[] less) {
        long[] page = ledger.pages[index];
        int removed = 0;
        for (int w = 0; w < PAGE_WORDS; w++) {
            long gone = less[w] & page[w];
            if (gone != 0) {
                removed += Long.bitCount(gone);
                WORD.setRelease(page, w, page[w] & ~gone);
            }
        }
        ledger.counts[index] -= removed;
        SIZE.setOpaque(this, size - removed);
    }

    /** Goes word by word where there are many: a new owner is told of millions, with code that is not compiled yet. */
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
        Ledger found = find(ledgerId);
        Ledger ledger = found == null ? insert(ledgerId) : found;
        LongBuffer words = entries.toBitmapContainer().toLongBuffer().rewind();
        long[] page = new long[PAGE_WORDS];
        for (int index = (int) (firstEntryId >>> PAGE_SHIFT); words.hasRemaining(); index++) {
            words.get(page);
            if (!Arrays.equals(page, NONE)) {
                orPage(ledger, index, page);
            }
        }
    }

    public void removeAll(PositionBitmaps positions) {
        positions.forEach(this::remove);
    }

    /** Removes everything up to and including the position. */
    public void discardUpTo(long ledgerId, long entryId) {
        Ledger[] all = ledgers;
        int first = 0;
        while (first < all.length && all[first].id < ledgerId) {
            drop(all[first++], Long.MAX_VALUE);
        }
        if (first > 0) {
            ledgers = Arrays.copyOfRange(all, first, all.length);
        }
        Ledger border = find(ledgerId);
        if (border != null && entryId >= 0) {
            drop(border, entryId);
        }
    }

    private void drop(Ledger ledger, long lastEntryId) {
        long[][] pages = ledger.pages;
        int border = (int) Math.min(pages.length, lastEntryId >>> PAGE_SHIFT);
        long removed = 0;
        for (int i = 0; i < border; i++) {
            if (pages[i] != null) {
                removed += ledger.counts[i];
                ledger.counts[i] = 0;
                PAGE.setRelease(pages, i, null);
            }
        }
        if (border < pages.length && pages[border] != null && ledger.counts[border] > 0) {
            int bits = 0;
            int borderWord = word(lastEntryId);
            for (int w = 0; w <= borderWord; w++) {
                long keep = w < borderWord || (lastEntryId & 63) == 63 ? 0 : -1L << (lastEntryId + 1);
                bits += Long.bitCount(pages[border][w] & ~keep);
                WORD.setRelease(pages[border], w, pages[border][w] & keep);
            }
            ledger.counts[border] -= bits;
            removed += bits;
        }
        SIZE.setOpaque(this, size - removed);
    }

    public void clear() {
        ledgers = NO_LEDGERS;
        SIZE.setOpaque(this, 0L);
    }

    /** Gives back pages and ledgers that have become empty. The highest ledger stays: it is where the next adds go. */
    void trim() {
        Ledger[] all = ledgers;
        Ledger[] kept = new Ledger[all.length];
        int count = 0;
        for (int l = 0; l < all.length; l++) {
            Ledger ledger = all[l];
            long[][] pages = ledger.pages;
            boolean used = l == all.length - 1;
            for (int i = 0; i < pages.length; i++) {
                if (ledger.counts[i] > 0) {
                    used = true;
                } else if (pages[i] != null && i < pages.length - 1) {
                    PAGE.setRelease(pages, i, null);
                }
            }
            if (used) {
                kept[count++] = ledger;
            }
        }
        if (count < all.length) {
            ledgers = Arrays.copyOf(kept, count);
        }
    }

    /** Visits every position in ascending order; without a lock it may miss or include what changes meanwhile. */
    public void forEach(PositionBitmaps.Visitor visitor) {
        forFirst(Long.MAX_VALUE, visitor);
    }

    /** A question about a position. */
    @FunctionalInterface
    public interface Test {
        boolean test(long ledgerId, long entryId);
    }

    /** As {@link #forEach}, but at most {@code max} of them. */
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
    void forWhile(Test test) {
        for (Ledger ledger : ledgers) {
            long[][] pages = ledger.pages;
            for (int i = 0; i < pages.length; i++) {
                long[] page = (long[]) PAGE.getAcquire(pages, i);
                for (int w = 0; page != null && w < PAGE_WORDS; w++) {
                    long bits = (long) WORD.getOpaque(page, w);
                    long base = (long) i << PAGE_SHIFT | (long) w << 6;
                    while (bits != 0) {
                        if (!test.test(ledger.id, base | Long.numberOfTrailingZeros(bits))) {
                            return;
                        }
                        bits &= bits - 1;
                    }
                }
            }
        }
    }

    /**
     * Visits the positions of one ledger that are also in {@code words}, laid out as in a {@link java.util.BitSet}: 64 at a time,
     * so that a position in only one of the two costs little. Needs no lock, as {@link #forEach}.
     */
    void forEachIn(long ledgerId, long[] words, PositionBitmaps.Visitor visitor) {
        Ledger ledger = find(ledgerId);
        long[][] pages = ledger == null ? new long[0][] : ledger.pages;
        for (int i = 0; i < pages.length && i * PAGE_WORDS < words.length; i++) {
            long[] page = (long[]) PAGE.getAcquire(pages, i);
            int first = i * PAGE_WORDS;
            int count = page == null ? 0 : Math.min(PAGE_WORDS, words.length - first);
            for (int w = 0; w < count; w++) {
                long bits = words[first + w] == 0 ? 0 : (long) WORD.getOpaque(page, w) & words[first + w];
                while (bits != 0) {
                    visitor.visit(ledgerId, (long) (first + w) << 6 | Long.numberOfTrailingZeros(bits));
                    bits &= bits - 1;
                }
            }
        }
    }

    /** Clears the bits of {@code words}, laid out as in {@link #forEachIn}, whose positions are in the set. Needs no lock. */
    public void clearIn(long ledgerId, long[] words) {
        Ledger ledger = find(ledgerId);
        long[][] pages = ledger == null ? new long[0][] : ledger.pages;
        for (int i = 0; i < pages.length && i * PAGE_WORDS < words.length; i++) {
            long[] page = (long[]) PAGE.getAcquire(pages, i);
            int first = i * PAGE_WORDS;
            int count = page == null ? 0 : Math.min(PAGE_WORDS, words.length - first);
            for (int w = 0; w < count; w++) {
                words[first + w] &= ~(long) WORD.getOpaque(page, w);
            }
        }
    }

    /** The lowest position for which the test holds; null if there is none. */
    Position first(Test test) {
        Position[] first = {null};
        forWhile((ledgerId, entryId) -> {
            if (test.test(ledgerId, entryId)) {
                first[0] = new Position(ledgerId, entryId);
            }
            return first[0] == null;
        });
        return first[0];
    }

    /**
     * All positions up to and including that one, as frames carry them. Built from words, not positions: it may be a whole
     * backlog.
     */
    PositionBitmaps upTo(long ledgerId, long entryId) {
        PositionBitmaps positions = new PositionBitmaps();
        for (Ledger ledger : ledgers) {
            if (ledger.id < ledgerId || ledger.id == ledgerId && entryId >= 0) {
                positions.put(ledger.id, bitmapUpTo(ledger, ledger.id < ledgerId ? Long.MAX_VALUE : entryId));
            }
        }
        return positions;
    }

    /** Starts at the first container that has any: positions before a cursor have mostly left. */
    private static RoaringBitmap bitmapUpTo(Ledger ledger, long lastEntryId) {
        long[][] pages = ledger.pages;
        int end = (int) Math.min(pages.length, (lastEntryId >>> PAGE_SHIFT) + 1);
        int first = 0;
        while (first < end && ledger.counts[first] == 0) {
            first++;
        }
        first -= first % (1 << CONTAINER_SHIFT - PAGE_SHIFT);
        long[] words = new long[Math.max(0, end - first) * PAGE_WORDS];
        for (int i = first; i < end; i++) {
            if (pages[i] != null) {
                System.arraycopy(pages[i], 0, words, (i - first) * PAGE_WORDS, PAGE_WORDS);
            }
        }
        long lastWord = (lastEntryId >>> 6) - (long) first * PAGE_WORDS;
        for (int w = words.length - 1; w > lastWord; w--) {
            words[w] = 0;
        }
        if (lastWord < words.length && lastWord >= 0 && (lastEntryId & 63) != 63) {
            words[(int) lastWord] &= ~(-1L << (lastEntryId + 1));
        }
        RoaringBitmap bitmap = BitSetUtil.bitmapOf(words);
        return first == 0 ? bitmap : RoaringBitmap.addOffset(bitmap, (long) first << PAGE_SHIFT);
    }

    /** The set as frames carry it. */
    public PositionBitmaps toPositions() {
        PositionBitmaps positions = new PositionBitmaps();
        for (Ledger ledger : ledgers) {
            RoaringBitmapWriter<RoaringBitmap> writer = RoaringBitmapWriter.writer().get();
            long[][] pages = ledger.pages;
            for (int i = 0; i < pages.length; i++) {
                for (int w = 0; pages[i] != null && w < PAGE_WORDS; w++) {
                    long bits = pages[i][w];
                    int base = i << PAGE_SHIFT | w << 6;
                    while (bits != 0) {
                        writer.add(base | Long.numberOfTrailingZeros(bits));
                        bits &= bits - 1;
                    }
                }
            }
            positions.put(ledger.id, writer.get());
        }
        return positions.optimized();
    }

    /** The highest position as {ledger id, entry id}, or null if the set is empty. */
    long[] last() {
        Ledger[] all = ledgers;
        for (int l = all.length - 1; l >= 0; l--) {
            long[][] pages = all[l].pages;
            for (int i = pages.length - 1; i >= 0; i--) {
                for (int w = PAGE_WORDS - 1; pages[i] != null && w >= 0; w--) {
                    long bits = pages[i][w];
                    if (bits != 0) {
                        return new long[] {
                            all[l].id, (long) i << PAGE_SHIFT | (long) w << 6 | (63 - Long.numberOfLeadingZeros(bits))
                        };
                    }
                }
            }
        }
        return null;
    }

    long memoryBytes() {
        long bytes = 0;
        for (Ledger ledger : ledgers) {
            long[][] pages = ledger.pages;
            bytes += LEDGER_BYTES + (long) pages.length * (Long.BYTES + Integer.BYTES);
            for (long[] page : pages) {
                bytes += page == null ? 0 : PAGE_BYTES;
            }
        }
        return bytes;
    }

    private Ledger find(long ledgerId) {
        Ledger[] all = ledgers;
        int hint = lastIndex;
        if (hint < all.length && all[hint].id == ledgerId) {
            return all[hint];
        }
        int low = 0;
        int high = all.length - 1;
        while (low <= high) {
            int middle = (low + high) >>> 1;
            long id = all[middle].id;
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

    private Ledger insert(long ledgerId) {
        Ledger[] all = ledgers;
        int at = all.length;
        while (at > 0 && all[at - 1].id > ledgerId) {
            at--;
        }
        Ledger[] more = new Ledger[all.length + 1];
        System.arraycopy(all, 0, more, 0, at);
        more[at] = new Ledger(ledgerId);
        System.arraycopy(all, at, more, at + 1, all.length - at);
        ledgers = more;
        return more[at];
    }

    private static long[] pageForWrite(Ledger ledger, int index) {
        long[][] pages = ledger.pages;
        if (index >= pages.length) {
            int length = Math.max(index + 1, pages.length * 2);
            pages = Arrays.copyOf(pages, length);
            ledger.counts = Arrays.copyOf(ledger.counts, length);
            ledger.pages = pages;
        }
        long[] page = pages[index];
        if (page == null) {
            page = new long[PAGE_WORDS];
            PAGE.setRelease(pages, index, page);
        }
        return page;
    }

    private static long[] page(long[][] pages, long entryId) {
        int index = (int) (entryId >>> PAGE_SHIFT);
        return index < pages.length ? (long[]) PAGE.getAcquire(pages, index) : null;
    }

    private static int word(long entryId) {
        return (int) (entryId >>> 6) & (PAGE_WORDS - 1);
    }
}
