package tidegate.pulsar.gate;

import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;

/**
 * The number of a cursor's deletions beyond its mark-delete position that are stored: the lowest ones. Pulsar forgets the
 * others when the topic is unloaded.
 *
 * <p>Example, {@code max} 2, entries 11 12 14 17 18 deleted: counted by rows, 11-12 and 14 are stored, and 17 18 forgotten;
 * counted by entries, 11 and 12 are stored.
 *
 * @param max the number stored
 */
public record RangeLimit(int max, Unit unit) {
    /** A part that counts once. */
    public enum Unit {
        /** An unbroken row of entries of a ledger. */
        ROW,
        /** An entry. */
        ENTRY,
        /** An entry, and a ledger is stored as a whole or not; if even the first one is too large, rows are stored instead. */
        ENTRY_OF_WHOLE_LEDGER
    }

    /** Everything is stored, or the limit is unknown. */
    public static final RangeLimit UNKNOWN = new RangeLimit(Integer.MAX_VALUE, Unit.ROW);

    /**
     * The part of the limit that these take, or more where whole ledgers give way to rows; {@code deleted} as in
     * {@link TrackerContext#deletedEntries}.
     */
    long taken(Map<Long, long[]> deleted) {
        long taken = 0;
        for (long[] words : deleted.values()) {
            long before = 0;
            for (long word : words) {
                taken += Long.bitCount(counted(word, before));
                before = word;
            }
        }
        return taken;
    }

    void leaveBeyond(Map<Long, long[]> deleted) {
        TreeMap<Long, long[]> ordered = new TreeMap<>(deleted);
        if (unit != Unit.ENTRY_OF_WHOLE_LEDGER) {
            leaveBeyond(ordered.values());
        } else if (!ordered.isEmpty() && entries(ordered.firstEntry().getValue()) > max) {
            new RangeLimit(max, Unit.ROW).leaveBeyond(ordered.values());
        } else {
            long left = max;
            for (long[] words : ordered.values()) {
                left -= entries(words);
                if (left >= 0) {
                    Arrays.fill(words, 0);
                }
            }
        }
    }

    private static long entries(long[] words) {
        return Arrays.stream(words).map(Long::bitCount).sum();
    }

    private void leaveBeyond(Iterable<long[]> ordered) {
        long left = max;
        for (long[] words : ordered) {
            long before = 0;
            for (int w = 0; w < words.length && left >= 0; w++) {
                long counted = counted(words[w], before);
                before = words[w];
                int count = Long.bitCount(counted);
                words[w] = count <= left ? 0 : words[w] & -1L << bit(counted, (int) left);
                left -= count;
            }
        }
    }

    /** The bits that count: all, or those that begin a row. {@code before} is the word before. */
    private long counted(long word, long before) {
        return unit != Unit.ROW ? word : word & ~(word << 1 | before >>> 63);
    }

    /** The index of the bit with {@code lower} set bits below it. */
    private static int bit(long word, int lower) {
        long bits = word;
        for (int i = 0; i < lower; i++) {
            bits &= bits - 1;
        }
        return Long.numberOfTrailingZeros(bits);
    }
}
