package tidegate.pulsar;

import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import java.util.function.Supplier;
import org.apache.bookkeeper.mledger.AsyncCallbacks.DeleteCallback;
import org.apache.bookkeeper.mledger.AsyncCallbacks.ReadEntryCallback;
import org.apache.bookkeeper.mledger.Entry;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedger;
import org.apache.bookkeeper.mledger.ManagedLedgerConfig;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.ManagedLedgerException.BadVersionException;
import org.apache.bookkeeper.mledger.ManagedLedgerException.LedgerNotExistException;
import org.apache.bookkeeper.mledger.ManagedLedgerException.NonRecoverableLedgerException;
import org.apache.bookkeeper.mledger.PositionFactory;
import org.apache.bookkeeper.mledger.impl.ManagedCursorImpl;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.cursor.WriteConflicts;
import tidegate.pulsar.cursor.CursorProperties;
import tidegate.pulsar.cursor.CursorRecord;
import tidegate.pulsar.cursor.SealedWalk;
import tidegate.pulsar.cursor.DeletedEntries;
import tidegate.pulsar.cursor.RefusedResets;
import tidegate.pulsar.cursor.UndoneResets;
import tidegate.pulsar.cursor.RecordCapacity;
import tidegate.pulsar.gate.RangeLimit;
import tidegate.pulsar.gate.Seal;
import tidegate.pulsar.gate.SeenConsumers;
import tidegate.pulsar.gate.TrackerCore;
import tidegate.pulsar.gate.TrackerContext;
import tidegate.pulsar.indexlog.LogLedgers;
import tidegate.pulsar.indexlog.OverrideLedgers;
import tidegate.pulsar.link.DaemonLink;
import tidegate.pulsar.wire.Ownership;
import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.ReleasePace;

/** The cursor's half of a {@link TrackerContext}; alone, the context of a subscription without a dispatcher. */
class CursorContext implements TrackerContext {
    private static final Logger LOG = LoggerFactory.getLogger(CursorContext.class);
    private static final Position NOWHERE = new Position(-1, -1);
    private final String name;
    private final ManagedCursor cursor;
    private final CursorProperties properties;
    private final DaemonLink link;
    private final Executor background;
    private final WriteConflicts conflicts = new WriteConflicts(this::reopenTopic);
    private final LogLedgers log;
    private final OverrideLedgers overrides;
    private final UndoneResets undone;
    private volatile String unreadablePace;
    private volatile LoneChunk lastLone;
    private volatile TrackerCore core;

    /** A chunk whose message's first chunk was acknowledged under that seal. */
    private record LoneChunk(long seal, String uuid, org.apache.bookkeeper.mledger.Position at) {}

    /** {@code background} runs work that may take a while. */
    CursorContext(String name, CursorProperties properties, DaemonLink link, Executor background, LogLedgers.Shared logs,
            UndoneResets undone) {
        this.name = name;
        this.properties = properties;
        cursor = properties.cursor();
        this.link = link;
        this.background = background;
        this.undone = undone;
        log = new LogLedgers(name, properties, conflicts, logs);
        overrides = new OverrideLedgers(name, properties, logs);
    }

    /** Sets the core that this context serves; once, before its use. */
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
    public boolean reachesDaemon() {
        return link.isConnected();
    }

    @Override
    public boolean isDeleted(long ledgerId, long entryId) {
        return cursor.isMessageDeleted(PositionFactory.create(ledgerId, entryId));
    }

    @Override
    public long deletions() {
        return cursor instanceof ManagedCursorImpl counting ? counting.getMessagesConsumedCounter() : 0;
    }

    @Override
    public Map<Long, long[]> deletedEntries() {
        return cursor instanceof ManagedCursorImpl readable ? DeletedEntries.copyOf(readable) : Map.of();
    }

    @Override
    public RangeLimit rangeLimit() {
        ManagedLedgerConfig config = cursor.getManagedLedger().getConfig();
        return new RangeLimit(config.getMaxUnackedRangesToPersist(), RecordCapacity.unit(config));
    }

    @Override
    public Position markDelete() {
        return position(cursor.getMarkDeletedPosition());
    }

    @Override
    public Position persistedMarkDelete() {
        Position persisted = position(cursor.getPersistentMarkDeletedPosition());
        // Pulsar writes an acknowledgement made during a seek with the position before the seek, after the seek's record, and
        // takes that position for persisted.
        return persisted.compareTo(markDelete()) > 0 ? NOWHERE : persisted;
    }

    @Override
    public Position lastConfirmed() {
        return position(cursor.getManagedLedger().getLastConfirmedEntry());
    }

    private static Position position(org.apache.bookkeeper.mledger.Position position) {
        return position == null ? NOWHERE : new Position(position.getLedgerId(), position.getEntryId());
    }

    @Override
    public long seal() {
        return CursorRecord.seal(cursor);
    }

    @Override
    public boolean storesSealed() {
        return undone.wasLoadedSealed(cursor)
                || seal() != Seal.NONE && cursor.getTotalNonContiguousDeletedMessagesRange() == 0;
    }

    @Override
    public boolean putSeal(long seal) {
        return cursor.putProperty(CursorRecord.SEAL, seal);
    }

    @Override
    public boolean exists(long ledgerId, long entryId) {
        return cursor.getManagedLedger().getLedgersInfo().containsKey(ledgerId)
                && new Position(ledgerId, entryId).compareTo(lastConfirmed()) <= 0;
    }

    @Override
    public Ownership ownership() {
        return CursorRecord.ownership(cursor);
    }

    @Override
    public ReleasePace pace() {
        return CursorRecord.pace(cursor, this::warnOfPace);
    }

    private void warnOfPace(String unreadable) {
        // The watch asks each second.
        if (!unreadable.equals(unreadablePace)) {
            unreadablePace = unreadable;
            LOG.warn("[{}] The pace of release {} cannot be read, so nothing leaves: set it with tidegate resume or pace", name,
                    unreadable);
        }
    }

    @Override
    public void putPace(ReleasePace next, Consumer<Written> done) {
        put(() -> properties.put(CursorRecord.PACE, next.text()).thenApply(written -> true), conflicts::count, done);
    }

    @Override
    public void putOwnership(Ownership next, Consumer<Written> done) {
        BooleanSupplier isNext = () -> {
            Ownership there = CursorRecord.ownership(cursor);
            return there == null || next.follows(there);
        };
        // The claim counts its conflicts itself.
        put(() -> properties.putIf(isNext, CursorRecord.OWNERSHIP, next.toString()), error -> { }, done);
    }

    private void put(Supplier<CompletableFuture<Boolean>> write, Consumer<Throwable> outcome, Consumer<Written> done) {
        try {
            CompletableFuture.supplyAsync(write, background)
                    .thenCompose(written -> written)
                    .whenComplete((isWritten, error) -> {
                        outcome.accept(error);
                        done.accept(error == null && !isWritten ? Written.CONFLICT : written(error));
                    });
        } catch (RejectedExecutionException e) {
            LOG.debug("[{}] The broker stops; the next owner writes this", name, e);
            done.accept(Written.FAILED);
        }
    }

    @Override
    public boolean mayPutOwnership() {
        return properties.mayPut();
    }

    private static Written written(Throwable error) {
        if (error == null) {
            return Written.DONE;
        }
        Throwable cause = error instanceof CompletionException ? error.getCause() : error;
        if (cause instanceof CursorProperties.UnattendedException) {
            return Written.UNATTENDED;
        }
        return cause instanceof BadVersionException ? Written.CONFLICT : Written.FAILED;
    }

    @Override
    public LogLedgers log() {
        return log;
    }

    @Override
    public OverrideLedgers overrides() {
        return overrides;
    }

    @Override
    public boolean isDurable() {
        return cursor.isDurable();
    }

    @Override
    public boolean isClosed() {
        return cursor.isClosed();
    }

    @Override
    public SeenConsumers.Change lookAtConsumers() {
        return SeenConsumers.Change.NONE;
    }

    @Override
    public boolean hasConsumers() {
        return false;
    }

    @Override
    public List<?> consumers() {
        return List.of();
    }

    @Override
    public boolean maySeal() {
        return hasConsumers() && !undone.isPending(cursor);
    }

    @Override
    public boolean isOutstanding(long ledgerId, long entryId) {
        return false;
    }

    @Override
    public int redeliveryCount(long ledgerId, long entryId) {
        return 0;
    }

    @Override
    public long redeliveries() {
        return 0;
    }

    /**
     * The cursor walks over the positions under its write lock, and a reset clears acknowledgements and seal together under
     * the same lock. So either all positions are deleted before the reset, which brings them back, or none is.
     *
     * <p>The walk fails if a reset has begun before it ends, so that the cursor writes nothing. Otherwise its position before
     * the reset would be written after the reset's record, and Pulsar would store no lower position afterwards: a crash,
     * however late, would restore it.
     */
    @Override
    public void delete(List<Position> positions, long seal, Consumer<Boolean> done) {
        RefusedResets resets = properties.resets();
        if (resets.isUnderWay()) {
            resets.look();
            done.accept(false);
            return;
        }
        BooleanSupplier isReset = () -> seal() != seal || resets.isUnderWay();
        Iterable<org.apache.bookkeeper.mledger.Position> sealed = () -> new SealedWalk(positions.iterator(), isReset);
        cursor.asyncDelete(sealed, new DeleteCallback() {
            @Override
            public void deleteComplete(Object ctx) {
                done.accept(true);
            }

            @Override
            public void deleteFailed(ManagedLedgerException e, Object ctx) {
                LOG.warn("[{}] Acknowledging {} lost or formerly acknowledged messages failed: {}", name,
                        positions.size(), e.getMessage());
                done.accept(false);
            }
        }, null);
    }

    @Override
    public void deleteAndStore(List<Position> positions, long seal, Consumer<Stored> done) {
        properties.storedDeletions().store(positions, seal, done);
    }

    private void lookBefore(org.apache.bookkeeper.mledger.Position chunk, String uuid, Consumer<Readable> done) {
        LoneChunk former = lastLone;
        long seal = seal();
        boolean isSame = former != null && former.seal == seal && former.uuid.equals(uuid);
        new LaterChunk(cursor.getManagedLedger(), one -> isDeleted(one.getLedgerId(), one.getEntryId()),
                cursor.getMarkDeletedPosition(), background, isSame ? former.at : null, uuid,
                first -> firstChunkWaits(uuid, new Position(first.getLedgerId(), first.getEntryId())), found -> {
                    if (found == Readable.LONE_CHUNK) {
                        lastLone = new LoneChunk(seal, uuid, chunk);
                    }
                    done.accept(found);
                }).lookBefore(chunk);
    }

    /** Notes that the dispatcher does not give away a later chunk of this message, whose first one is not acknowledged. */
    void firstChunkWaits(String uuid, Position first) {
        // Without a dispatcher no consumer has any chunk.
    }

    @Override
    public void read(Position position, Consumer<Readable> done) {
        ManagedLedger ledger = cursor.getManagedLedger();
        ledger.asyncReadEntry(PositionFactory.create(position.ledgerId(), position.entryId()), new ReadEntryCallback() {
            @Override
            public void readEntryComplete(Entry entry, Object ctx) {
                String uuid = LaterChunk.uuidOf(entry);
                entry.release();
                if (uuid == null) {
                    done.accept(Readable.YES);
                } else {
                    lookBefore(PositionFactory.create(position.ledgerId(), position.entryId()), uuid, done);
                }
            }

            @Override
            public void readEntryFailed(ManagedLedgerException e, Object ctx) {
                done.accept(readable(ledger, position, e));
            }
        }, null);
    }

    @Override
    public void peek(Frame.Peek peek, Consumer<Frame.Peeked> done) {
        new PeekOp(cursor.getManagedLedger(), peek, background, done).go();
    }

    /** The same exceptions as in a normal managed-ledger read, which then skips the lost entries. */
    private static Readable readable(ManagedLedger ledger, Position position, ManagedLedgerException e) {
        if (e instanceof LedgerNotExistException) {
            return ledger.getLedgersInfo().containsKey(position.ledgerId()) ? Readable.LEDGER_LOST : Readable.LEDGER_NOT_OURS;
        }
        return e instanceof NonRecoverableLedgerException ? Readable.ENTRY_LOST : Readable.NOT_NOW;
    }

    @Override
    public boolean skipsLost() {
        return cursor.getManagedLedger().getConfig().isAutoSkipNonRecoverableData();
    }

    @Override
    public void skipLedger(long ledgerId) {
        cursor.getManagedLedger().skipNonRecoverableLedger(ledgerId);
    }

    @Override
    public boolean mayDeliver() {
        return false;
    }

    @Override
    public int consumersHash() {
        return 0;
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
        // No wake-up was requested.
    }

    @Override
    public void framesWaiting() {
        link.framesWaiting(core);
    }
}
