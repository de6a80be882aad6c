package tidegate.pulsar.position;

import java.util.Arrays;
import tidegate.pulsar.wire.Records;

/**
 * The entries that the broker hands out itself: a heap by (deliver_at, ledger, entry), gated by the clock.
 *
 * <p>Removal is lazy: a removed position's heap record stays until it comes to the top and {@link #members} lacks the
 * position. An entry pushed by the daemon, or due when a stream opened, holds one of the daemon's credits until it leaves.
 *
 * <p>Example, records as time/entry: the heap has 10/a, 20/b, 30/c, members are a, b, c, and the daemon pushed all three. An
 * acknowledgement removes b: members are a, c, one credit is free, the heap keeps 20/b. At 35 the dispatcher pops a, which
 * frees a credit; {@link #headMs} drops 20/b and answers 30.
 *
 * <p>Invariants: no heap record of a position is earlier than its true deliver_at, so a stale record can never let an entry
 * out early. {@link #check} tests two more: every member has a record in the heap, and no credit is free twice. Only
 * {@link TrackedPositions} adds and removes members, with their state. Guarded by the tracker's lock, except
 * {@link #contains} and {@link #size}.
 */
public final class NearTier {
    public static final long NONE = Long.MAX_VALUE;
    /** The time of an entry due at once, by any clock. */
    public static final long AT_ONCE_MS = 0;
    private static final int FIRST_CAPACITY = 64;
    private static final int STALE_SLACK = 4096;

    private final PositionSet members = new PositionSet();
    /** Members that came by DUE, or count as such. */
    private final PositionSet credited = new PositionSet();
    private long[] heap = new long[FIRST_CAPACITY * Records.WIDTH];
    private int count;
    private int creditBack;

    boolean contains(long ledgerId, long entryId) {
        return members.contains(ledgerId, entryId);
    }

    public long size() {
        return members.size();
    }

    public PositionSet members() {
        return members;
    }

    /** Adds an entry; false, without a change, if the position is present. */
    boolean add(long ledgerId, long entryId, long deliverAtMs, boolean holdsCredit) {
        if (!members.add(ledgerId, entryId)) {
            return false;
        }
        if (holdsCredit) {
            credited.add(ledgerId, entryId);
        }
        push(deliverAtMs, ledgerId, entryId);
        return true;
    }

    /** Removes a position; false if absent. */
    boolean remove(long ledgerId, long entryId) {
        if (!members.remove(ledgerId, entryId)) {
            return false;
        }
        if (count > 2 * members.size() + STALE_SLACK) {
            dropStale();
        }
        if (!credited.isEmpty() && credited.remove(ledgerId, entryId)) {
            creditBack++;
        }
        return true;
    }

    /** The time of the earliest entry, or {@link #NONE}. */
    public long headMs() {
        while (count > 0 && !members.contains(heap[1], heap[2])) {
            pop();
        }
        return count == 0 ? NONE : heap[0];
    }

    long headLedgerId() {
        return heap[1];
    }

    long headEntryId() {
        return heap[2];
    }

    /** The earliest time of a member that is not due at once, or {@link #NONE}. O(members). */
    public long firstTimeMs() {
        long firstMs = NONE;
        for (int i = 0; i < count; i++) {
            int at = i * Records.WIDTH;
            if (heap[at] > AT_ONCE_MS && heap[at] < firstMs && members.contains(heap[at + 1], heap[at + 2])) {
                firstMs = heap[at];
            }
        }
        return firstMs;
    }

    /** The number of members due up to that time. O(members). */
    public int countDueUpTo(long timeMs) {
        int due = 0;
        for (int i = 0; i < count; i++) {
            int at = i * Records.WIDTH;
            if (heap[at] <= timeMs && members.contains(heap[at + 1], heap[at + 2])) {
                due++;
            }
        }
        return due;
    }

    /** The members due up to that time. */
    PositionSet dueUpTo(long timeMs) {
        PositionSet due = new PositionSet();
        for (int i = 0; i < count; i++) {
            int at = i * Records.WIDTH;
            if (heap[at] <= timeMs && members.contains(heap[at + 1], heap[at + 2])) {
                due.add(heap[at + 1], heap[at + 2]);
            }
        }
        return due;
    }

    /** Forgets everything up to and including the position. */
    void discardUpTo(long ledgerId, long entryId) {
        members.discardUpTo(ledgerId, entryId);
        long before = credited.size();
        credited.discardUpTo(ledgerId, entryId);
        creditBack += Math.toIntExact(before - credited.size());
    }

    void clear() {
        creditBack += Math.toIntExact(credited.size());
        members.clear();
        credited.clear();
        count = 0;
        heap = new long[FIRST_CAPACITY * Records.WIDTH];
    }

    // ---- credit ---------------------------------------------------------------------------------------------------

    /** Frees the credit of a pushed entry that is not added. */
    public void freeCredit() {
        creditBack++;
    }

    /** The free credit not yet given back to the daemon. */
    public int creditBack() {
        return creditBack;
    }

    public boolean isAllCreditFree() {
        return credited.isEmpty();
    }

    public int takeCredit() {
        int credit = creditBack;
        creditBack = 0;
        return credit;
    }

    /** Makes due members hold credit, {@code most} at most; returns the credit held by all members. */
    public int holdCredit(long nowMs, int most) {
        for (int i = 0; i < count && credited.size() < most; i++) {
            int at = i * Records.WIDTH;
            if (heap[at] <= nowMs && members.contains(heap[at + 1], heap[at + 2])) {
                credited.add(heap[at + 1], heap[at + 2]);
            }
        }
        return Math.toIntExact(credited.size());
    }

    /** Takes the credit from members due later than that time; they stay near. */
    public void freeCreditAfter(long timeMs) {
        for (int i = 0; i < count && !credited.isEmpty(); i++) {
            int at = i * Records.WIDTH;
            if (heap[at] > timeMs && credited.remove(heap[at + 1], heap[at + 2])) {
                creditBack++;
            }
        }
    }

    /** Forgets all credit: the next stream begins without any. */
    public void forgetCredit() {
        creditBack = 0;
        credited.clear();
    }

    // ---- the heap -------------------------------------------------------------------------------------------------


    private void push(long deliverAtMs, long ledgerId, long entryId) {
        if ((count + 1) * Records.WIDTH > heap.length) {
            heap = Arrays.copyOf(heap, heap.length * 2);
        }
        siftUp(count++, deliverAtMs, ledgerId, entryId);
    }

    private void pop() {
        int last = --count * Records.WIDTH;
        if (count > 0) {
            siftDown(heap[last], heap[last + 1], heap[last + 2]);
        }
    }

    /** Rebuilds the heap from the current members, if it has stale records. */
    void dropStale() {
        if (count == members.size()) {
            return;
        }
        long[] old = heap;
        int oldCount = count;
        count = 0;
        heap = new long[Math.max(FIRST_CAPACITY, Math.toIntExact(members.size()) * 2) * Records.WIDTH];
        for (int i = 0; i < oldCount; i++) {
            int at = i * Records.WIDTH;
            if (members.contains(old[at + 1], old[at + 2])) {
                push(old[at], old[at + 1], old[at + 2]);
            }
        }
    }

    private void siftUp(int index, long deliverAtMs, long ledgerId, long entryId) {
        int child = index;
        while (child > 0) {
            int parent = (child - 1) >>> 1;
            if (!before(deliverAtMs, ledgerId, entryId, parent * Records.WIDTH)) {
                break;
            }
            move(parent, child);
            child = parent;
        }
        set(child, deliverAtMs, ledgerId, entryId);
    }

    private void siftDown(long deliverAtMs, long ledgerId, long entryId) {
        int parent = 0;
        while (2 * parent + 1 < count) {
            int child = 2 * parent + 1;
            int right = (child + 1) * Records.WIDTH;
            if (child + 1 < count && before(heap[right], heap[right + 1], heap[right + 2], child * Records.WIDTH)) {
                child++;
            }
            if (before(deliverAtMs, ledgerId, entryId, child * Records.WIDTH)) {
                break;
            }
            move(child, parent);
            parent = child;
        }
        set(parent, deliverAtMs, ledgerId, entryId);
    }

    private boolean before(long deliverAtMs, long ledgerId, long entryId, int at) {
        if (deliverAtMs != heap[at]) {
            return deliverAtMs < heap[at];
        }
        return ledgerId != heap[at + 1] ? ledgerId < heap[at + 1] : entryId < heap[at + 2];
    }

    private void move(int from, int to) {
        System.arraycopy(heap, from * Records.WIDTH, heap, to * Records.WIDTH, Records.WIDTH);
    }

    private void set(int index, long deliverAtMs, long ledgerId, long entryId) {
        int at = index * Records.WIDTH;
        heap[at] = deliverAtMs;
        heap[at + 1] = ledgerId;
        heap[at + 2] = entryId;
    }

    // ---- the whole ------------------------------------------------------------------------------------------------

    void trim() {
        members.trim();
        credited.trim();
    }

    long memoryBytes() {
        return (long) heap.length * Long.BYTES + members.memoryBytes() + credited.memoryBytes();
    }

    /** @throws IllegalStateException if an invariant does not hold */
    public void check() {
        long inHeap = dueUpTo(NONE).size();
        if (inHeap != members.size()) {
            throw new IllegalStateException(members.size() + " near entries, " + inHeap + " of them in the heap");
        }
        credited.forEach((ledgerId, entryId) -> {
            if (!members.contains(ledgerId, entryId)) {
                throw new IllegalStateException(ledgerId + ":" + entryId + " holds a credit and is not near");
            }
        });
        if (creditBack < 0) {
            throw new IllegalStateException("credit was given back twice: " + creditBack);
        }
    }
}
