package tidegate.pulsar.cursor;

import java.util.Iterator;
import java.util.function.BooleanSupplier;
import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.PositionFactory;

/** Positions for a cursor to delete; fails if a reset of the cursor begins before the walk ends. */
public final class SealedWalk implements Iterator<Position> {
    private final Iterator<tidegate.pulsar.wire.Position> positions;
    private final BooleanSupplier isReset;

    public SealedWalk(Iterator<tidegate.pulsar.wire.Position> positions, BooleanSupplier isReset) {
        this.positions = positions;
        this.isReset = isReset;
        refuseReset();
    }

    @Override
    public boolean hasNext() {
        boolean more = positions.hasNext();
        if (!more) {
            refuseReset();
        }
        return more;
    }

    @Override
    public Position next() {
        tidegate.pulsar.wire.Position position = positions.next();
        return PositionFactory.create(position.ledgerId(), position.entryId());
    }

    private void refuseReset() {
        if (isReset.getAsBoolean()) {
            throw new IllegalStateException("the cursor is being reset");
        }
    }
}
