package tidegate.pulsar;

import java.util.List;
import java.util.function.Consumer;
import org.apache.bookkeeper.mledger.AsyncCallbacks.DeleteCallback;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.PositionFactory;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The cursor's half of a {@link TrackerHost}; alone, the host of a subscription that has no dispatcher. */
class CursorHost implements TrackerHost {
    private static final Logger LOG = LoggerFactory.getLogger(CursorHost.class);
    private static final Position NOWHERE = new Position(-1, -1);

    private final String name;
    private final ManagedCursor cursor;
    private final DaemonLink link;
    private TrackerCore core;

    CursorHost(String name, ManagedCursor cursor, DaemonLink link) {
        this.name = name;
        this.cursor = cursor;
        this.link = link;
    }

    /** The core that this host serves; set once, before the core is used. */
    void serve(TrackerCore served) {
        core = served;
    }

    TrackerCore core() {
        return core;
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public boolean isDeleted(long ledgerId, long entryId) {
        return cursor.isMessageDeleted(PositionFactory.create(ledgerId, entryId));
    }

    @Override
    public Position markDelete() {
        return position(cursor.getMarkDeletedPosition());
    }

    @Override
    public Position persistedMarkDelete() {
        return position(cursor.getPersistentMarkDeletedPosition());
    }

    private static Position position(org.apache.bookkeeper.mledger.Position position) {
        return position == null ? NOWHERE : new Position(position.getLedgerId(), position.getEntryId());
    }

    @Override
    public boolean isClosed() {
        return cursor.isClosed();
    }

    @Override
    public boolean consumersReplaced() {
        return false;
    }

    @Override
    public boolean hasConsumers() {
        return false;
    }

    @Override
    public boolean isOutstanding(long ledgerId, long entryId) {
        return false;
    }

    @Override
    public long redeliveries() {
        return 0;
    }

    @Override
    public void delete(List<Position> positions, Consumer<Boolean> done) {
        List<org.apache.bookkeeper.mledger.Position> targets = positions.stream()
                .map(position -> PositionFactory.create(position.ledgerId(), position.entryId()))
                .toList();
        cursor.asyncDelete(targets, new DeleteCallback() {
            @Override
            public void deleteComplete(Object ctx) {
                done.accept(true);
            }

            @Override
            public void deleteFailed(ManagedLedgerException e, Object ctx) {
                LOG.warn("[{}] Acknowledging again {} messages that were acknowledged before a failover failed: {}", name,
                        positions.size(), e.getMessage());
                done.accept(false);
            }
        }, null);
    }

    @Override
    public void readMore() {
        // Without a dispatcher nobody reads.
    }

    @Override
    public void wakeAt(long timeMs) {
        // Without a dispatcher nothing is delivered.
    }

    @Override
    public void cancelWake() {
        // None was asked for.
    }

    @Override
    public void rereadAll() {
        // Whoever reads next starts from the mark-delete position anyway.
    }

    @Override
    public void framesWaiting() {
        link.framesWaiting(core);
    }
}
