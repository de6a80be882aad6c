import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.SplittableRandom;
import java.util.TreeMap;

/**
 * The entries of a run, as written by the bench: three columns of little-endian int64, in order of arrival.
 *
 * <p>The bench writes them (bench/peers/inputs.py). Arrays hold all of it before any memory is measured. {@code find} knows
 * the place of a position; for that the entries of a ledger must stand together and count up by one.
 */
final class Workload {
    private static final long DAY_MS = 86_400_000;
    final long[] deliverAt;
    final long[] ledger;
    final long[] entry;
    private final TreeMap<Long, Integer> firstOfLedger = new TreeMap<>();

    private Workload(long[] deliverAt, long[] ledger, long[] entry) {
        this.deliverAt = deliverAt;
        this.ledger = ledger;
        this.entry = entry;
        for (int i = 0; i < ledger.length; i++) {
            if (i == 0 || ledger[i] != ledger[i - 1]) {
                if (firstOfLedger.put(ledger[i], i) != null) {
                    throw new IllegalArgumentException("ledger " + ledger[i] + " comes twice in the workload");
                }
            } else if (entry[i] != entry[i - 1] + 1) {
                throw new IllegalArgumentException("the entries of ledger " + ledger[i] + " have a gap");
            }
        }
    }

    static Workload read(Path folder, int count) throws IOException {
        return new Workload(column(folder, "workload.deliver_at_ms.bin", count),
                column(folder, "workload.ledger_id.bin", count), column(folder, "workload.entry_id.bin", count));
    }

    /** Due evenly over a day: the trackers' warm-up. */
    static Workload uniform(int count, int entriesPerLedger) {
        long[] deliverAt = new SplittableRandom(1).longs(count, DAY_MS, 2 * DAY_MS).toArray();
        long[] ledger = new long[count];
        long[] entry = new long[count];
        Arrays.setAll(ledger, i -> 1 + i / entriesPerLedger);
        Arrays.setAll(entry, i -> i % entriesPerLedger);
        return new Workload(deliverAt, ledger, entry);
    }

    /** The earliest deliver_at of a workload, without the rest of it. */
    static long earliest(Path folder, int count) throws IOException {
        return Arrays.stream(column(folder, "workload.deliver_at_ms.bin", count)).min().orElseThrow();
    }

    private static long[] column(Path folder, String name, int count) throws IOException {
        long[] values = new long[count];
        ByteBuffer buffer = ByteBuffer.allocateDirect(1 << 20).order(ByteOrder.LITTLE_ENDIAN);
        try (FileChannel file = FileChannel.open(folder.resolve(name), StandardOpenOption.READ)) {
            if (file.size() < 8L * count) {
                throw new IOException(name + " has " + file.size() + " bytes, too few for " + count + " entries");
            }
            for (int at = 0; at < count;) {
                buffer.clear().limit((int) Math.min(buffer.capacity(), 8L * (count - at)));
                while (buffer.hasRemaining()) {
                    if (file.read(buffer) < 0) {
                        throw new IOException(name + " became shorter while it was read");
                    }
                }
                LongBuffer longs = buffer.flip().asLongBuffer();
                int read = longs.remaining();
                longs.get(values, at, read);
                at += read;
            }
        }
        return values;
    }

    int size() {
        return deliverAt.length;
    }

    /** The place of a position in the workload. */
    int find(long ledgerId, long entryId) {
        Integer first = firstOfLedger.get(ledgerId);
        if (first == null) {
            throw new IllegalStateException("handed out ledger " + ledgerId + ", which was never added");
        }
        int at = (int) (first + entryId - entry[first]);
        if (at < first || at >= size() || ledger[at] != ledgerId) {
            throw new IllegalStateException("handed out " + ledgerId + ":" + entryId + ", which was never added");
        }
        return at;
    }

    /** The deliver_at of every {@code step}-th of the first entries by time, the last one's at the end. */
    long[] times(int count, int step) {
        long[] sorted = Arrays.copyOf(deliverAt, count);
        Arrays.parallelSort(sorted);
        long[] times = new long[(sorted.length + step - 1) / step];
        for (int i = 0; i < times.length; i++) {
            times[i] = sorted[Math.min((i + 1) * step, sorted.length) - 1];
        }
        return times;
    }

    long earliest() {
        return Arrays.stream(deliverAt).min().orElseThrow();
    }

    long lastLedger() {
        return firstOfLedger.lastKey();
    }
}
