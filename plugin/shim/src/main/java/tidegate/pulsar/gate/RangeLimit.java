package tidegate.pulsar.gate;

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
 * @param countsEntries true if each entry counts, false if each unbroken row of entries of a ledger counts once
 */
public record RangeLimit(int max, boolean countsEntries) {
    /** Everything is stored, or the limit is unknown. */
    public static final RangeLimit UNKNOWN = new RangeLimit(Integer.MAX_VALUE, false);

    /** The part of the limit that these take; {@code deleted} as in {@link TrackerContext#deletedEntries}. */
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
        long left = max;
        for (long[] words : new TreeMap<>(deleted).values()) {
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
        return countsEntries ? word : word & ~(word << 1 | before >>> 63);
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
