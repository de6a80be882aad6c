package tidegate.pulsar.position;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.LongBuffer;
import java.util.Arrays;
import org.roaringbitmap.BitSetUtil;
import org.roaringbitmap.Container;
import org.roaringbitmap.RoaringBitmap;
import org.roaringbitmap.RoaringBitmapWriter;
import tidegate.pulsar.wire.PositionBitmaps;

/**
 * The entries of one ledger in a {@link PositionSet}: pages of 4,096 bits, with a count each.
 *
 * <p>One writer at a time; readers need no lock. A bit is one word access. A page is never reused for other entries.
 */
final class LedgerPages {
    private static final int PAGE_SHIFT = 12;
    private static final int PAGE_WORDS = 1 << (PAGE_SHIFT - 6);
    private static final int PAGE_BYTES = PAGE_WORDS * Long.BYTES + 24;
    private static final int OBJECT_BYTES = 64;
    private static final int CONTAINER_SHIFT = 16;
    private static final long[] NONE = new long[PAGE_WORDS];
    private static final VarHandle WORD = MethodHandles.arrayElementVarHandle(long[].class);
    private static final VarHandle PAGE = MethodHandles.arrayElementVarHandle(long[][].class);

    final long ledgerId;
    private volatile long[][] pages = new long[1][];
    private int[] counts = new int[1];

    LedgerPages(long ledgerId) {
        this.ledgerId = ledgerId;
    }

    boolean contains(long entryId) {
        long[] page = page(pages, entryId);
        return page != null && ((long) WORD.getOpaque(page, word(entryId)) >>> entryId & 1L) != 0;
    }

    /** The first absent entry from that one on. */
    long firstAbsent(long entryId) {
        long at = entryId;
        while (true) {
            long[] page = page(pages, at);
            long absent = page == null ? 1L : ~(long) WORD.getOpaque(page, word(at)) >>> at;
            if (absent != 0) {
                return at + Long.numberOfTrailingZeros(absent);
            }
            at = (at | 63) + 1;
        }
    }

    // ---- one writer -----------------------------------------------------------------------------------------------

    /** Adds an entry; false if present. */
    boolean add(long entryId) {
        int index = (int) (entryId >>> PAGE_SHIFT);
        long[] page = pageForWrite(index);
        int word = word(entryId);
        long bits = page[word];
        long bit = 1L << entryId;
        if ((bits & bit) != 0) {
            return false;
        }
        WORD.setRelease(page, word, bits | bit);
        counts[index]++;
        return true;
    }

    /** Removes an entry; false if absent. */
    boolean remove(long entryId) {
        long[] page = page(pages, entryId);
        int word = word(entryId);
        long bit = 1L << entryId;
        if (page == null || (page[word] & bit) == 0) {
            return false;
        }
        WORD.setRelease(page, word, page[word] & ~bit);
        counts[(int) (entryId >>> PAGE_SHIFT)]--;
        return true;
    }

    /** Adds all of another, which no other thread changes meanwhile; returns how many were new. */
    long addAll(LedgerPages other) {
        long added = 0;
        long[][] from = other.pages;
        for (int i = 0; i < from.length; i++) {
            if (from[i] != null && other.counts[i] > 0) {
                added += orPage(i, from[i]);
            }
        }
        return added;
    }

    /** Adds a container of entries from {@code firstEntryId} on, word by word; returns how many were new. */
    long addAll(long firstEntryId, Container entries) {
        LongBuffer words = entries.toBitmapContainer().toLongBuffer().rewind();
        long[] page = new long[PAGE_WORDS];
        long added = 0;
        for (int index = (int) (firstEntryId >>> PAGE_SHIFT); words.hasRemaining(); index++) {
            words.get(page);
            if (!Arrays.equals(page, NONE)) {
                added += orPage(index, page);
            }
        }
        return added;
    }

    private int orPage(int index, long[] more) {
        long[] page = pageForWrite(index);
        int added = 0;
        for (int w = 0; w < PAGE_WORDS; w++) {
            long news = more[w] & ~page[w];
            if (news != 0) {
                added += Long.bitCount(news);
                WORD.setRelease(page, w, page[w] | news);
            }
        }
        counts[index] += added;
        return added;
    }

    /** Removes all of another, which no other thread changes meanwhile; returns how many. */
    long removeAll(LedgerPages other) {
        long removed = 0;
        int shared = Math.min(pages.length, other.pages.length);
        for (int i = 0; i < shared; i++) {
            if (other.counts[i] > 0 && counts[i] > 0) {
                removed += andNotPage(i, other.pages[i]);
            }
        }
        return removed;
    }

    private int andNotPage(int index, long[] less) {
        long[] page = pages[index];
        int removed = 0;
        for (int w = 0; w < PAGE_WORDS; w++) {
            long gone = less[w] & page[w];
            if (gone != 0) {
                removed += Long.bitCount(gone);
                WORD.setRelease(page, w, page[w] & ~gone);
            }
        }
        counts[index] -= removed;
        return removed;
    }

    /** Removes everything up to and including the entry; returns how many. */
    long discardUpTo(long lastEntryId) {
        long[][] all = pages;
        int border = (int) Math.min(all.length, lastEntryId >>> PAGE_SHIFT);
        long removed = 0;
        for (int i = 0; i < border; i++) {
            if (all[i] != null) {
                removed += counts[i];
                counts[i] = 0;
                PAGE.setRelease(all, i, null);
            }
        }
        if (border < all.length && all[border] != null && counts[border] > 0) {
            int bits = 0;
            int borderWord = word(lastEntryId);
            for (int w = 0; w <= borderWord; w++) {
                long keep = w < borderWord || (lastEntryId & 63) == 63 ? 0 : -1L << (lastEntryId + 1);
                bits += Long.bitCount(all[border][w] & ~keep);
                WORD.setRelease(all[border], w, all[border][w] & keep);
            }
            counts[border] -= bits;
            removed += bits;
        }
        return removed;
    }

    /** Frees empty pages, except the last one; true if there is an entry. */
    boolean trim() {
        long[][] all = pages;
        boolean used = false;
        for (int i = 0; i < all.length; i++) {
            if (counts[i] > 0) {
                used = true;
            } else if (all[i] != null && i < all.length - 1) {
                PAGE.setRelease(all, i, null);
            }
        }
        return used;
    }

    private long[] pageForWrite(int index) {
        long[][] all = pages;
        if (index >= all.length) {
            int length = Math.max(index + 1, all.length * 2);
            all = Arrays.copyOf(all, length);
            counts = Arrays.copyOf(counts, length);
            pages = all;
        }
        long[] page = all[index];
        if (page == null) {
            page = new long[PAGE_WORDS];
            PAGE.setRelease(all, index, page);
        }
        return page;
    }

    // ---- walking --------------------------------------------------------------------------------------------------

    /** Tests each entry in ascending order; false once a test is false. */
    boolean forWhile(PositionPredicate test) {
        long[][] all = pages;
        for (int i = 0; i < all.length; i++) {
            long[] page = (long[]) PAGE.getAcquire(all, i);
            for (int w = 0; page != null && w < PAGE_WORDS; w++) {
                long bits = (long) WORD.getOpaque(page, w);
                long base = (long) i << PAGE_SHIFT | (long) w << 6;
                while (bits != 0) {
                    if (!test.test(ledgerId, base | Long.numberOfTrailingZeros(bits))) {
                        return false;
                    }
                    bits &= bits - 1;
                }
            }
        }
        return true;
    }

    /** Tests each entry up to that one in descending order; false once a test is false. */
    boolean forWhileDown(long lastEntryId, PositionPredicate test) {
        long[][] all = pages;
        for (int i = (int) Math.min(all.length - 1, lastEntryId >>> PAGE_SHIFT); i >= 0; i--) {
            long[] page = (long[]) PAGE.getAcquire(all, i);
            for (int w = PAGE_WORDS - 1; page != null && w >= 0; w--) {
                long base = (long) i << PAGE_SHIFT | (long) w << 6;
                long bits = (long) WORD.getOpaque(page, w);
                while (bits != 0) {
                    int highest = 63 - Long.numberOfLeadingZeros(bits);
                    if (base + highest <= lastEntryId && !test.test(ledgerId, base | highest)) {
                        return false;
                    }
                    bits &= ~(1L << highest);
                }
            }
        }
        return true;
    }

    /** As {@link PositionSet#forEachIn}. */
    void forEachIn(long[] words, PositionBitmaps.Visitor visitor) {
        long[][] all = pages;
        for (int i = 0; i < all.length && i * PAGE_WORDS < words.length; i++) {
            long[] page = (long[]) PAGE.getAcquire(all, i);
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

    /** As {@link PositionSet#clearIn}. */
    void clearIn(long[] words) {
        long[][] all = pages;
        for (int i = 0; i < all.length && i * PAGE_WORDS < words.length; i++) {
            long[] page = (long[]) PAGE.getAcquire(all, i);
            int first = i * PAGE_WORDS;
            int count = page == null ? 0 : Math.min(PAGE_WORDS, words.length - first);
            for (int w = 0; w < count; w++) {
                words[first + w] &= ~(long) WORD.getOpaque(page, w);
            }
        }
    }

    /** The highest entry, -1 without one. */
    long last() {
        long[][] all = pages;
        for (int i = all.length - 1; i >= 0; i--) {
            for (int w = PAGE_WORDS - 1; all[i] != null && w >= 0; w--) {
                long bits = all[i][w];
                if (bits != 0) {
                    return (long) i << PAGE_SHIFT | (long) w << 6 | (63 - Long.numberOfLeadingZeros(bits));
                }
            }
        }
        return -1;
    }

    // ---- as bitmaps -----------------------------------------------------------------------------------------------

    /**
     * The entries up to and including that one, from words. Starts at the first container with any: positions before a
     * cursor have mostly left.
     */
    RoaringBitmap bitmapUpTo(long lastEntryId) {
        long[][] all = pages;
        int end = (int) Math.min(all.length, (lastEntryId >>> PAGE_SHIFT) + 1);
        int first = 0;
        while (first < end && counts[first] == 0) {
            first++;
        }
        first -= first % (1 << CONTAINER_SHIFT - PAGE_SHIFT);
        long[] words = new long[Math.max(0, end - first) * PAGE_WORDS];
        for (int i = first; i < end; i++) {
            if (all[i] != null) {
                System.arraycopy(all[i], 0, words, (i - first) * PAGE_WORDS, PAGE_WORDS);
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

    RoaringBitmap bitmap() {
        RoaringBitmapWriter<RoaringBitmap> writer = RoaringBitmapWriter.writer().get();
        long[][] all = pages;
        for (int i = 0; i < all.length; i++) {
            for (int w = 0; all[i] != null && w < PAGE_WORDS; w++) {
                long bits = all[i][w];
                int base = i << PAGE_SHIFT | w << 6;
                while (bits != 0) {
                    writer.add(base | Long.numberOfTrailingZeros(bits));
                    bits &= bits - 1;
                }
            }
        }
        return writer.get();
    }

    long memoryBytes() {
        long[][] all = pages;
        long bytes = OBJECT_BYTES + (long) all.length * (Long.BYTES + Integer.BYTES);
        for (long[] page : all) {
            bytes += page == null ? 0 : PAGE_BYTES;
        }
        return bytes;
    }

    private static long[] page(long[][] pages, long entryId) {
        int index = (int) (entryId >>> PAGE_SHIFT);
        return index < pages.length ? (long[]) PAGE.getAcquire(pages, index) : null;
    }

    private static int word(long entryId) {
        return (int) (entryId >>> 6) & (PAGE_WORDS - 1);
    }
}
