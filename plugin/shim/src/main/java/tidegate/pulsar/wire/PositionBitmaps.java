package tidegate.pulsar.wire;

import java.io.IOException;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.TreeMap;
import org.roaringbitmap.RoaringBitmap;

/**
 * A set of positions as frames carry it: a RoaringBitmap of entry ids for each ledger, ledgers ascending, no bitmap empty.
 *
 * <p>Not thread-safe. Entry ids are unsigned 32-bit; a Pulsar ledger is closed long before that.
 */
public final class PositionBitmaps {
    private static final int CONTAINER_BITS = 16;
    private static final int LEDGER_BYTES = Long.BYTES + Integer.BYTES;

    private final NavigableMap<Long, RoaringBitmap> ledgers = new TreeMap<>();

    /** Called for each position in ascending order. */
    @FunctionalInterface
    public interface Visitor {
        void visit(long ledgerId, long entryId);
    }

    public void add(long ledgerId, long entryId) {
        if (entryId < 0 || entryId > 0xFFFF_FFFFL) {
            throw new IllegalArgumentException("entry id " + entryId + " does not fit in 32 bits");
        }
        ledgers.computeIfAbsent(ledgerId, id -> new RoaringBitmap()).add((int) entryId);
    }

    /** Puts a whole ledger; the set owns the bitmap from now on. */
    public void put(long ledgerId, RoaringBitmap entryIds) {
        if (!entryIds.isEmpty()) {
            ledgers.put(ledgerId, entryIds);
        }
    }

    public void addAll(PositionBitmaps other) {
        other.ledgers.forEach((ledgerId, entryIds) ->
                ledgers.computeIfAbsent(ledgerId, id -> new RoaringBitmap()).or(entryIds));
    }

    public void discardUpTo(long ledgerId, long entryId) {
        ledgers.headMap(ledgerId, false).clear();
        RoaringBitmap entryIds = ledgers.get(ledgerId);
        if (entryIds != null && entryId >= 0) {
            entryIds.remove(0L, entryId + 1);
            if (entryIds.isEmpty()) {
                ledgers.remove(ledgerId);
            }
        }
    }

    boolean contains(long ledgerId, long entryId) {
        RoaringBitmap entryIds = ledgers.get(ledgerId);
        return entryIds != null && entryIds.contains((int) entryId);
    }

    public boolean isEmpty() {
        return ledgers.isEmpty();
    }

    public long size() {
        long size = 0;
        for (RoaringBitmap entryIds : ledgers.values()) {
            size += entryIds.getLongCardinality();
        }
        return size;
    }

    public NavigableMap<Long, RoaringBitmap> ledgers() {
        return ledgers;
    }

    public void forEach(Visitor visitor) {
        ledgers.forEach((ledgerId, entryIds) ->
                entryIds.forEach((int entryId) -> visitor.visit(ledgerId, Integer.toUnsignedLong(entryId))));
    }

    /**
     * Cuts the set into parts of at most {@code maxBytes} on the wire: at ledger borders, and inside a larger ledger at entry
     * ids.
     */
    public List<PositionBitmaps> cut(int maxBytes) {
        List<PositionBitmaps> parts = new ArrayList<>();
        PositionBitmaps part = new PositionBitmaps();
        int bytes = Integer.BYTES;
        for (Map.Entry<Long, RoaringBitmap> ledger : ledgers.entrySet()) {
            for (RoaringBitmap piece : pieces(ledger.getValue(), maxBytes - Integer.BYTES - LEDGER_BYTES)) {
                int more = LEDGER_BYTES + piece.serializedSizeInBytes();
                if (!part.isEmpty() && (bytes + more > maxBytes || part.ledgers.containsKey(ledger.getKey()))) {
                    parts.add(part);
                    part = new PositionBitmaps();
                    bytes = Integer.BYTES;
                }
                part.ledgers.put(ledger.getKey(), piece);
                bytes += more;
            }
        }
        if (!part.isEmpty()) {
            parts.add(part);
        }
        return parts;
    }

    /** The bitmap in pieces of at most {@code maxBytes}, ascending; a single container is never cut. */
    private static List<RoaringBitmap> pieces(RoaringBitmap entryIds, int maxBytes) {
        long first = Integer.toUnsignedLong(entryIds.first());
        long last = Integer.toUnsignedLong(entryIds.last());
        if (entryIds.serializedSizeInBytes() <= maxBytes || first >>> CONTAINER_BITS == last >>> CONTAINER_BITS) {
            return List.of(entryIds);
        }
        long middle = Integer.toUnsignedLong(entryIds.select((int) (entryIds.getLongCardinality() / 2)));
        long border = middle >>> CONTAINER_BITS << CONTAINER_BITS;
        if (border <= first) {
            border += 1L << CONTAINER_BITS;
        }
        List<RoaringBitmap> pieces = new ArrayList<>();
        pieces.addAll(pieces(entryIds.selectRange(0, border), maxBytes));
        pieces.addAll(pieces(entryIds.selectRange(border, last + 1), maxBytes));
        return pieces;
    }

    /** Run-length encodes bitmaps that shrink by it. */
    public PositionBitmaps optimized() {
        ledgers.values().forEach(RoaringBitmap::runOptimize);
        return this;
    }

    public int sizeBytes() {
        int bytes = Integer.BYTES;
        for (RoaringBitmap entryIds : ledgers.values()) {
            bytes += LEDGER_BYTES + entryIds.serializedSizeInBytes();
        }
        return bytes;
    }

    void write(ByteBuffer out) {
        out.putInt(ledgers.size());
        ledgers.forEach((ledgerId, entryIds) -> {
            out.putLong(ledgerId);
            int sizeBytes = entryIds.serializedSizeInBytes();
            out.putInt(sizeBytes);
            entryIds.serialize(out);
        });
    }

    static PositionBitmaps read(ByteBuffer in) throws ProtocolException {
        PositionBitmaps positions = new PositionBitmaps();
        int count = in.getInt();
        long previous = Long.MIN_VALUE;
        for (int i = 0; i < count; i++) {
            long ledgerId = in.getLong();
            if (ledgerId < 0) {
                throw ProtocolException.malformed("a set of positions names ledger " + ledgerId + ", which cannot be");
            }
            if (i > 0 && ledgerId <= previous) {
                throw ProtocolException.malformed("ledger " + ledgerId + " comes after ledger " + previous + " in a set of positions");
            }
            previous = ledgerId;
            positions.ledgers.put(ledgerId, readBitmap(in, ledgerId));
        }
        return positions;
    }

    private static RoaringBitmap readBitmap(ByteBuffer in, long ledgerId) throws ProtocolException {
        int sizeBytes = in.getInt();
        if (sizeBytes < 0 || sizeBytes > in.remaining()) {
            throw new BufferUnderflowException();
        }
        RoaringBitmap entryIds = new RoaringBitmap();
        try {
            entryIds.deserialize(in.slice(in.position(), sizeBytes));
        } catch (IOException | RuntimeException e) {
            throw ProtocolException.malformed("the bitmap of ledger " + ledgerId + " is not a RoaringBitmap: " + e.getMessage());
        }
        if (entryIds.isEmpty() || entryIds.serializedSizeInBytes() != sizeBytes) {
            throw ProtocolException.malformed("the bitmap of ledger " + ledgerId + " is empty or has another size than it says");
        }
        in.position(in.position() + sizeBytes);
        return entryIds;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof PositionBitmaps that && ledgers.equals(that.ledgers);
    }

    @Override
    public int hashCode() {
        return ledgers.hashCode();
    }

    @Override
    public String toString() {
        return ledgers.toString();
    }
}
