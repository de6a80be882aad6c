package tidegate.pulsar.position;

import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.PositionBitmaps;

/**
 * {@link TrackedPositions} for any thread: no method takes or needs the tracker's lock.
 *
 * <p>An answer is true of a moment. Two answers may be of different moments.
 */
public interface PositionView {
    /** True if the dispatcher must not read the position. */
    boolean contains(long ledgerId, long entryId);

    /** True if this broker hands the position out when due. */
    boolean isNear(long ledgerId, long entryId);

    /** The positions that the dispatcher's cursor must not read. */
    PositionSet containedPositions();

    PositionSet handedOutPositions();

    long contained();

    long delayed();

    /** True if the next look at the cursor may change something here. */
    boolean hasUnseen();

    /** Visits the positions that may be acknowledged unseen: handed out, asked for, or doubtful. */
    void forEachUnseen(PositionBitmaps.Visitor visitor);

    /** The lowest position that was given to the dispatcher and passes the test; null without one. */
    Position lowestUnseen(PositionPredicate test);

    /** A number that changes whenever a position becomes contained. */
    long entered();

    /** Visits the contained positions of one ledger that are also in {@code words}; as {@link PositionSet#forEachIn}. */
    void forEachContainedIn(long ledgerId, long[] words, PositionBitmaps.Visitor visitor);

    /** Clears the bits of {@code words} whose positions this tracker has or has told; as {@link PositionSet#clearIn}. */
    void clearKnownIn(long ledgerId, long[] words);
}
