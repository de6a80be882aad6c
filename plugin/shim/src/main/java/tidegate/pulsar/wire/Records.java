package tidegate.pulsar.wire;

import java.util.Arrays;

/**
 * A growing list of entries, three longs each: ledger id, entry id, deliver_at in ms since the epoch.
 *
 * <p>Primitive on purpose: the dispatcher's thread appends one for every delayed message that it reads.
 */
public final class Records {
    public static final int WIDTH = 3;
    private static final int FIRST_CAPACITY = 64;

    private long[] values;
    private int length;

    public Records() {
        this(FIRST_CAPACITY);
    }

    public Records(int capacity) {
        values = new long[capacity * WIDTH];
    }

    /** The records of (ledger, entry, deliver_at) triples; for tests and decoders. */
    public static Records of(long... triples) {
        if (triples.length % WIDTH != 0) {
            throw new IllegalArgumentException(triples.length + " numbers are not whole records");
        }
        Records records = new Records(0);
        records.values = triples.clone();
        records.length = triples.length;
        return records;
    }

    public void add(long ledgerId, long entryId, long deliverAtMs) {
        int at = length;
        if (at == values.length) {
            values = Arrays.copyOf(values, Math.max(FIRST_CAPACITY * WIDTH, values.length * 2));
        }
        values[at] = ledgerId;
        values[at + 1] = entryId;
        values[at + 2] = deliverAtMs;
        length = at + WIDTH;
    }

    public int size() {
        return length / WIDTH;
    }

    public boolean isEmpty() {
        return length == 0;
    }

    public long ledgerId(int index) {
        return values[index * WIDTH];
    }

    public long entryId(int index) {
        return values[index * WIDTH + 1];
    }

    public long deliverAtMs(int index) {
        return values[index * WIDTH + 2];
    }

    public void clear() {
        length = 0;
    }

    public long memoryBytes() {
        return (long) values.length * Long.BYTES;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Records that && Arrays.equals(values, 0, length, that.values, 0, that.length);
    }

    @Override
    public int hashCode() {
        return Arrays.hashCode(Arrays.copyOf(values, length));
    }

    @Override
    public String toString() {
        return "Records" + Arrays.toString(Arrays.copyOf(values, length));
    }
}
