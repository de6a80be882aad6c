package tidegate.pulsar.gate;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.NavigableSet;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import java.util.function.Predicate;
import java.util.function.Supplier;
import tidegate.pulsar.position.NearTier;
import tidegate.pulsar.position.PositionSet;
import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.Ownership;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.PositionBitmaps;
import tidegate.pulsar.wire.ReleasePace;

/**
 * A Pulsar topic with one Shared subscription at one owner, reduced to the parts that a tracker sees: a log, a cursor that
 * persists late, a dispatcher with its redelivery set, consumers with their unacknowledged messages.
 *
 * <p>Follows PersistentDispatcherMultipleConsumers and ManagedCursorImpl of Pulsar 4.0: the order of calls, the state
 * forgotten by a rewind and a reset, the skipped positions, and a record's contents: the mark-delete position, as many
 * individual acknowledgements as fit, and the seal. Acknowledging keeps the seal, a reset wipes it before it clears the
 * acknowledgements and again in that step.
 */
public class ToyBroker implements TrackerContext {
    public static final String TOPIC = "persistent://public/default/toy";
    public static final String SUBSCRIPTION = "sub";
    private static final Position START = new Position(0, -1);
    private static final Position UNKNOWN = new Position(-1, -1);
    private static final long PERSIST_INTERVAL_MS = 1000;

    /** The stored part of the cursor, whoever owns the topic: its record, and the metadata with its version. */
    public static final class Disk {
        Position markDelete = START;
        NavigableSet<Position> deleted = new TreeSet<>();
        long seal = Seal.NONE;
        Ownership ownership;
        ReleasePace pace = ReleasePace.NONE;
        public int version;
        /** Overrides: the ledgers by number, and the pointer among the cursor's properties. */
        final Map<Long, ToyLedger> ledgers = new TreeMap<>();
        long lastLedger = 100;
        String overridePointer = "";
    }

    /** A ledger of overrides. */
    static final class ToyLedger {
        final List<ByteBuffer> entries = new ArrayList<>();
        boolean fenced;
    }

    /** A consumer with its unacknowledged messages. */
    public static final class ToyConsumer {
        final NavigableSet<Position> pending = new TreeSet<>();
    }

    /** A message that reached a consumer. */
    public record Delivery(Position position, long deliverAtMs, long atMs) {}

    private final VirtualClock clock;
    public final Disk disk;
    final NavigableMap<Position, Long> log;
    public final List<Delivery> deliveries;
    public final List<ToyConsumer> consumers = new ArrayList<>();
    public TrackerCore core;

    // The cursor.
    private NavigableSet<Position> deleted;
    private Position markDelete;
    private Position persistedMarkDelete;
    private long persistedMs;
    private Position readPosition = START;
    private long seal;
    private long deletions;
    private final boolean loadedSealed;
    private Ownership ownership;
    private ReleasePace pace;
    private int version;
    private String overridePointer;
    /** Of so many in a hundred requests about overrides some fail, before or after they are done. */
    int failingOverrides;
    /** So many of the next pointers are written, and written again as the answer is lost: they conflict with themselves. */
    int repeatedPointers;
    /** One of them was this broker's last write. */
    private boolean hasRepeated;
    Random luck = new Random(5);
    private Position resettingTo;
    private boolean cursorClosed;
    public boolean durable = true;
    /** Room of a record for individual acknowledgements. */
    int persistedRanges = 1000;
    /** True once the cursor was stored: before, only a connected consumer shows that no reset is under way. */
    boolean isStored = true;
    /** So many of the next writes of the metadata coincide with one of the cursor's own. */
    public int metadataConflicts;
    /** The metadata store takes no write, and says so. */
    public boolean refusesMetadata;
    /** Runs once, before the next look at the seal. */
    Runnable beforeSeal;
    /** Runs once, after the next check for consumers. */
    Runnable afterConsumersSeen = () -> { };
    /** The rules of topic and namespace. */
    DelayPolicy policy = DelayPolicy.NONE;
    /** The machine's link has a connection. */
    BooleanSupplier reachesDaemon = () -> true;
    /** The metadata store answers a question for the namespace's rules. */
    boolean tellsPolicy = true;
    /** One of these in a list makes the whole deletion fail, as a position beyond the last entry does. */
    final Set<Position> undeletable = new HashSet<>();
    /** So many of the next deletions take place and cannot be written down. */
    int failingStores;
    /** Data unreadable for good, for two reasons. */
    final Set<Long> lostLedgers = new HashSet<>();
    final Set<Position> lostEntries = new HashSet<>();
    /** autoSkipNonRecoverableData. */
    boolean skipsLost;
    /** Later chunks, each with its message's first one; a dispatcher gives none away before it has met that. */
    Map<Position, Position> chunks = new TreeMap<>();
    private final Set<Position> metChunks = new HashSet<>();
    /** Copies made of the deleted positions. */
    int copies;
    /** Positions read one by one. */
    int probes;
    /** Runs once, before the next deletion of positions. */
    Runnable beforeDelete = () -> { };

    // The dispatcher.
    private final NavigableSet<Position> redelivery = new TreeSet<>();
    private final Map<Position, Integer> redeliveryCounts = new TreeMap<>();
    private SeenConsumers seen = new SeenConsumers(List.of());
    private boolean trackerMade;
    /** Selects the messages that a Key_Shared dispatcher has for a consumer without permits. */
    Predicate<Position> isForStuck = position -> false;
    private final Set<Position> knownForStuck = new HashSet<>();
    /** No consumer could take anything of the last replay: the next round reads normally. */
    private boolean looksAhead;
    /** The classic dispatcher asks again for due entries right before it reads normally. */
    boolean isClassic;
    /** Runs once, before a classic dispatcher asks again. */
    Runnable beforeAsking = () -> { };
    /** Rounds begun by the dispatcher. */
    int rounds;
    public int readBatch = 5;
    private int replayBatch = readBatch;
    public int permits = 20;

    // The core's requests.
    boolean readRequested;
    /** So many of its next requests to read come to nothing. */
    int lostRequests;
    boolean framesRequested;
    long wakeMs = NearTier.NONE;
    private final List<Runnable> cursorCalls = new ArrayList<>();
    public int reads;

    /** The cursor's pointer to an index log. */
    String logPointer = "";
    String logHome = "";

    public ToyBroker(VirtualClock clock) {
        this(clock, new Disk(), new TreeMap<>(), new ArrayList<>());
    }

    /** A topic as the next owner loads it from the stored data. */
    private ToyBroker(VirtualClock clock, Disk disk, NavigableMap<Position, Long> log, List<Delivery> deliveries) {
        this.clock = clock;
        this.disk = disk;
        this.log = log;
        this.deliveries = deliveries;
        markDelete = disk.markDelete;
        persistedMarkDelete = disk.markDelete;
        persistedMs = clock.millis() - PERSIST_INTERVAL_MS;
        deleted = new TreeSet<>(disk.deleted);
        seal = disk.seal;
        loadedSealed = seal != Seal.NONE;
        ownership = disk.ownership;
        pace = disk.pace;
        version = disk.version;
        overridePointer = disk.overridePointer;
        rewind();
    }

    /** The topic as the next owner, with that clock, loads it. */
    ToyBroker next(VirtualClock itsClock) {
        ToyBroker next = new ToyBroker(itsClock, disk, log, deliveries);
        next.isClassic = isClassic;
        next.permits = permits;
        next.readBatch = readBatch;
        next.chunks = chunks;
        next.persistedRanges = persistedRanges;
        next.failingOverrides = failingOverrides;
        next.luck = luck;
        next.policy = policy;
        next.tellsPolicy = tellsPolicy;
        return next;
    }

    /** The subscription was deleted and made again. */
    void recreate(Ownership another) {
        disk.ownership = another;
        ownership = another;
        seal = Seal.NONE;
    }

    // ---- the topic ----

    public Position publish(Position position, long deliverAtMs) {
        log.put(position, deliverAtMs);
        readRequested = true;
        return position;
    }

    boolean isFullyAcknowledged() {
        return log.keySet().stream().allMatch(position -> isDeleted(position.ledgerId(), position.entryId()));
    }

    // ---- the cursor ----

    @Override
    public LogHome log() {
        return new LogHome() {
            @Override
            public String home() {
                return logHome;
            }

            @Override
            public String pointer() {
                return logPointer;
            }

            @Override
            public CompletableFuture<Frame.LogAnswer> answer(Frame.LogRequest request) {
                return NONE.answer(request);
            }

            @Override
            public void close() {
                // There is nothing.
            }
        };
    }

    /** Done at the cursor's next turn, and answered then or a turn later: a crash between loses the answer. */
    private <T> CompletableFuture<T> requested(Supplier<T> request) {
        CompletableFuture<T> answer = new CompletableFuture<>();
        cursorCalls.add(() -> {
            boolean fails = luck.nextInt(100) < failingOverrides;
            if (fails && luck.nextBoolean()) {
                answer.completeExceptionally(new IllegalStateException("the test says so"));
                return;
            }
            T result;
            try {
                result = request.get();
            } catch (RuntimeException e) {
                answer.completeExceptionally(e);
                return;
            }
            Runnable tell = fails ? () -> answer.completeExceptionally(new IllegalStateException("done, and the test says no"))
                    : () -> answer.complete(result);
            if (luck.nextBoolean()) {
                tell.run();
            } else {
                cursorCalls.add(tell);
            }
        });
        return answer;
    }

    @Override
    public OverrideHome overrides() {
        return new OverrideHome() {
            @Override
            public boolean isAvailable() {
                return resettingTo == null && mayPutOwnership();
            }

            @Override
            public String pointer() {
                return overridePointer;
            }

            @Override
            public CompletableFuture<Long> create() {
                return requested(() -> {
                    disk.ledgers.put(++disk.lastLedger, new ToyLedger());
                    return disk.lastLedger;
                });
            }

            @Override
            public CompletableFuture<Void> append(long ledgerId, ByteBuffer entry) {
                return requested(() -> {
                    ToyLedger ledger = disk.ledgers.get(ledgerId);
                    if (ledger == null || ledger.fenced) {
                        throw new IllegalStateException("fenced");
                    }
                    ledger.entries.add(entry);
                    return null;
                });
            }

            @Override
            public CompletableFuture<List<ByteBuffer>> read(long ledgerId) {
                return requested(() -> {
                    ToyLedger ledger = disk.ledgers.get(ledgerId);
                    if (ledger == null) {
                        throw new CompletionException(new NoLedgerException("no ledger " + ledgerId));
                    }
                    ledger.fenced = true;
                    return List.copyOf(ledger.entries);
                });
            }

            @Override
            public CompletableFuture<Pointed> point(String former, String next) {
                return requested(() -> {
                    if (!overridePointer.equals(former)) {
                        return Pointed.STALE;
                    }
                    if (cursorClosed || resettingTo != null) {
                        return Pointed.REFUSED;
                    }
                    if (refusesMetadata) {
                        throw new IllegalStateException("no write is taken");
                    }
                    if (disk.version != version) {
                        throw new CompletionException(new ConflictException("another version"));
                    }
                    disk.overridePointer = next;
                    if (repeatedPointers > 0) {
                        repeatedPointers--;
                        hasRepeated = true;
                        disk.version++;
                        throw new CompletionException(new ConflictException("the version that this write made"));
                    }
                    overridePointer = next;
                    version = ++disk.version;
                    return Pointed.DONE;
                });
            }

            @Override
            public void delete(long ledgerId) {
                cursorCalls.add(() -> disk.ledgers.remove(ledgerId));
            }

            @Override
            public void close() {
                // Nothing is open.
            }
        };
    }

    /** Nothing else would fail if the next owner could not read the times. */
    void checkOverrides() {
        OverrideHome.ledgersOf(disk.overridePointer).stream().limit(1).forEach(ledgerId -> {
            if (!disk.ledgers.containsKey(ledgerId)) {
                throw new IllegalStateException("the pointer names ledger " + ledgerId + ", which is deleted");
            }
        });
    }

    @Override
    public boolean isDeleted(long ledgerId, long entryId) {
        Position position = new Position(ledgerId, entryId);
        return position.compareTo(markDelete) <= 0 || deleted.contains(position);
    }

    @Override
    public long deletions() {
        return deletions;
    }

    @Override
    public Map<Long, long[]> deletedEntries() {
        copies++;
        Map<Long, BitSet> entries = new TreeMap<>();
        deleted.forEach(one -> entries.computeIfAbsent(one.ledgerId(), id -> new BitSet()).set((int) one.entryId()));
        Map<Long, long[]> words = new TreeMap<>();
        entries.forEach((ledgerId, bits) -> words.put(ledgerId, bits.toLongArray()));
        return words;
    }

    @Override
    public RangeLimit rangeLimit() {
        return new RangeLimit(persistedRanges, RangeLimit.Unit.ENTRY);
    }

    @Override
    public Position markDelete() {
        return markDelete;
    }

    @Override
    public Position persistedMarkDelete() {
        return resettingTo == null ? persistedMarkDelete : UNKNOWN;
    }

    @Override
    public Position lastConfirmed() {
        return log.isEmpty() ? START : log.lastKey();
    }

    @Override
    public long seal() {
        Runnable first = beforeSeal;
        beforeSeal = null;
        if (first != null) {
            first.run();
        }
        return seal;
    }

    @Override
    public boolean putSeal(long number) {
        seal = number;
        return true;
    }

    @Override
    public boolean exists(long ledgerId, long entryId) {
        return log.containsKey(new Position(ledgerId, entryId));
    }

    @Override
    public boolean storesSealed() {
        return loadedSealed || seal != Seal.NONE && deleted.isEmpty();
    }

    @Override
    public Ownership ownership() {
        return ownership;
    }

    @Override
    public boolean mayPutOwnership() {
        return isStored || !consumers.isEmpty();
    }

    @Override
    public DelayPolicy policy() {
        return tellsPolicy ? policy : DelayPolicy.NONE;
    }

    @Override
    public boolean reachesDaemon() {
        return reachesDaemon.getAsBoolean();
    }

    @Override
    public boolean knowsPolicy() {
        return tellsPolicy;
    }

    @Override
    public ReleasePace pace() {
        return pace;
    }

    @Override
    public void putPace(ReleasePace next, Consumer<Written> done) {
        put(() -> {
            disk.pace = next;
            pace = next;
        }, done);
    }

    @Override
    public void putOwnership(Ownership next, Consumer<Written> done) {
        put(() -> {
            disk.ownership = next;
            ownership = next;
        }, done);
    }

    private void put(Runnable write, Consumer<Written> done) {
        cursorCalls.add(() -> {
            if (!mayPutOwnership()) {
                done.accept(Written.UNATTENDED);
                return;
            }
            if (refusesMetadata) {
                done.accept(Written.FAILED);
                return;
            }
            boolean first = metadataConflicts-- <= 0 && disk.version == version;
            metadataConflicts = Math.max(0, metadataConflicts);
            if (first) {
                write.run();
                version = ++disk.version;
            }
            done.accept(first ? Written.DONE : Written.CONFLICT);
        });
    }

    @Override
    public boolean isDurable() {
        return durable;
    }

    @Override
    public boolean isClosed() {
        return cursorClosed;
    }

    private void delete(Position position) {
        if (position.compareTo(markDelete) > 0 && deleted.add(position)) {
            deletions++;
        }
        Position next;
        while ((next = log.higherKey(markDelete)) != null && deleted.remove(next)) {
            markDelete = next;
        }
    }

    /** Writes the record, with as many individual acknowledgements as fit. */
    void persistCursor() {
        persistCursor(persistedRanges);
    }

    void persistCursor(int acknowledgements) {
        // A reset under way has replaced the record to store next, and not yet the state in memory.
        disk.markDelete = resettingTo == null ? markDelete : before(resettingTo);
        disk.deleted = new TreeSet<>(deleted.stream().limit(acknowledgements).toList());
        disk.seal = seal;
        persistedMarkDelete = markDelete;
        persistedMs = clock.millis();
    }

    /** Pulsar writes the record with the first acknowledgement in a second. */
    private void persistAtTimes() {
        if (clock.millis() - persistedMs >= PERSIST_INTERVAL_MS || clock.millis() < persistedMs) {
            persistCursor();
        }
    }

    private void rewind() {
        Position next = log.higherKey(markDelete);
        readPosition = next == null ? new Position(markDelete.ledgerId(), markDelete.entryId() + 1) : next;
    }

    /** Seek: consumers are disconnected first, individual acknowledgements are gone, mark-delete moves either way. */
    void reset(Position to) {
        beginReset(to);
        completeReset();
    }

    /** The seal goes first; the acknowledgements stay until the new record is written. Meanwhile nobody may connect. */
    void beginReset(Position to) {
        disconnectAll();
        resettingTo = to;
        seal = Seal.NONE;
    }

    boolean isResetting() {
        return resettingTo != null;
    }

    /** The target of the reset under way; null without one. */
    Position resettingTo() {
        return resettingTo;
    }

    /** The seek is answered after this. */
    void completeReset() {
        markDelete = before(resettingTo);
        deletions -= deleted.size();
        deleted = new TreeSet<>();
        seal = Seal.NONE;
        readPosition = resettingTo;
        resettingTo = null;
        persistCursor();
    }

    private Position before(Position position) {
        Position previous = log.lowerKey(position);
        return previous == null ? START : previous;
    }

    /** The cursor's ledger is unreadable: only an older mark-delete position in the metadata remains. */
    void loseRecord() {
        disk.markDelete = START;
        disk.deleted = new TreeSet<>();
        disk.seal = Seal.NONE;
    }

    /** Skips the backlog up to the last entry at the request; entries read since stay. */
    void clearBacklog(Position last) {
        moveForward(last, false);
    }

    /** Moves mark-delete. Only expiry and trimmed ledgers keep the properties stored with it, and so the seal. */
    void moveForward(Position last, boolean keepsSeal) {
        markDelete = last;
        deleted.headSet(last, true).clear();
        if (!keepsSeal) {
            seal = Seal.NONE;
        }
        persistCursor();
        Position next = new Position(last.ledgerId(), last.entryId() + 1);
        readPosition = readPosition.compareTo(next) < 0 ? next : readPosition;
    }

    void clearBacklog() {
        if (!log.isEmpty()) {
            clearBacklog(log.lastKey());
        }
    }

    @Override
    public void delete(List<Position> positions, long sealed, Consumer<Boolean> done) {
        cursorCalls.add(() -> {
            Runnable first = beforeDelete;
            beforeDelete = () -> { };
            first.run();
            boolean possible = !cursorClosed && positions.stream().noneMatch(undeletable::contains);
            boolean stored = possible;
            if (possible && seal == sealed) {
                positions.forEach(this::delete);
                stored = failingStores == 0;
                if (stored) {
                    persistAtTimes();
                } else {
                    failingStores--;
                }
            }
            done.accept(stored);
        });
    }

    /** True if a crash of the broker leaves it deleted. */
    boolean isOnDisk(Position position) {
        return position.compareTo(disk.markDelete) <= 0 || disk.deleted.contains(position);
    }

    @Override
    public void deleteAndStore(List<Position> positions, long sealed, Consumer<Stored> done) {
        cursorCalls.add(() -> {
            boolean possible = !cursorClosed && resettingTo == null && seal == sealed
                    && positions.stream().noneMatch(undeletable::contains);
            if (!possible || failingStores > 0) {
                failingStores = Math.max(0, failingStores - 1);
                done.accept(Stored.NOT_NOW);
                return;
            }
            positions.forEach(this::delete);
            persistCursor();
            isStored = true;
            boolean hasRoom = deleted.size() <= persistedRanges;
            if (hasRoom && !positions.stream().allMatch(this::isOnDisk)) {
                throw new IllegalStateException("answered as stored, and a crash would bring it back: " + positions);
            }
            done.accept(hasRoom ? Stored.YES : Stored.NO_ROOM);
        });
    }

    /** Does the cursor's requested work. */
    public void runCursor() {
        List<Runnable> now = List.copyOf(cursorCalls);
        cursorCalls.clear();
        now.forEach(Runnable::run);
    }

    // ---- the dispatcher ----

    Position readPosition() {
        return readPosition;
    }

    public void connect() {
        if (isResetting()) {
            return;
        }
        if (consumers.isEmpty()) {
            rewind();
            redelivery.clear();
        }
        consumers.add(new ToyConsumer());
        readRequested = true;
    }

    void disconnect(ToyConsumer consumer) {
        consumers.remove(consumer);
        if (consumers.isEmpty()) {
            redelivery.clear();
            redeliveryCounts.clear();
        } else {
            redelivery.addAll(consumer.pending);
            readRequested = true;
        }
    }

    public void disconnectAll() {
        List.copyOf(consumers).forEach(this::disconnect);
    }

    public void acknowledge(ToyConsumer consumer, Position position) {
        consumer.pending.remove(position);
        delete(position);
        persistAtTimes();
    }

    /** A message that no consumer has is acknowledged by its producer's id. */
    void cancel(Position position) {
        delete(position);
        persistAtTimes();
    }

    void negativeAcknowledge(ToyConsumer consumer, Position position) {
        consumer.pending.remove(position);
        redelivery.add(position);
        redeliveryCounts.merge(position, 1, Integer::sum);
        readRequested = true;
    }

    private ToyConsumer freeConsumer() {
        return consumers.stream().filter(this::isFree).findFirst().orElse(null);
    }

    /** Gives the others the messages for the consumer without permits. */
    void unstick() {
        isForStuck = position -> false;
        knownForStuck.clear();
    }

    private boolean isFree(ToyConsumer consumer) {
        return consumer.pending.size() < permits;
    }

    /** readMoreEntries, with the reads done at once. Returns true if anything was read. */
    boolean readMore(TrackerMaker maker) {
        readRequested = false;
        rounds++;
        if (core != null && core.queue().shouldPause() || freeConsumer() == null) {
            return false;
        }
        if (looksAhead) {
            looksAhead = false;
            return readNormally(maker);
        }
        redelivery.headSet(markDelete, true).clear();
        if (core != null && core.queue().hasDue()) {
            core.queue().popDue(readBatch, (ledgerId, entryId) -> redelivery.add(new Position(ledgerId, entryId)));
        }
        boolean wereDeleted = redelivery.removeIf(position -> isDeleted(position.ledgerId(), position.entryId()));
        if (wereDeleted && redelivery.isEmpty()) {
            return true;
        }
        List<Position> batch = redelivery.stream().filter(one -> !knownForStuck.contains(one)).limit(replayBatch).toList();
        if (!batch.isEmpty()) {
            if (batch.stream().anyMatch(this::isLost)) {
                // As a whole; Pulsar tries again after 15 s, or on a request, with one entry.
                replayBatch = 1;
                return false;
            }
            replayBatch = Math.min(readBatch, replayBatch * 2);
            if (batch.stream().noneMatch(this::isGiven)) {
                // It tries the same again after a pause.
                return false;
            }
            looksAhead = true;
            for (Position position : batch) {
                if (isForStuck.test(position)) {
                    knownForStuck.add(position);
                    continue;
                }
                looksAhead = false;
                ToyConsumer consumer = freeConsumer();
                if (consumer == null) {
                    break;
                }
                redelivery.remove(position);
                dispatch(consumer, position, maker);
            }
            return true;
        }
        if (isClassic && core != null) {
            Runnable first = beforeAsking;
            beforeAsking = () -> { };
            first.run();
            if (core.queue().hasDue()) {
                core.queue().popDue(1, (ledgerId, entryId) -> redelivery.add(new Position(ledgerId, entryId)));
            }
        }
        return readNormally(maker);
    }

    /** True if the dispatcher gives it to a consumer, or asks the tracker about it. */
    private boolean isGiven(Position position) {
        if (chunks.containsValue(position)) {
            metChunks.add(position);
        }
        Position first = chunks.get(position);
        return first == null || metChunks.contains(first);
    }

    private boolean isLost(Position position) {
        return lostLedgers.contains(position.ledgerId()) || lostEntries.contains(position) || !log.containsKey(position);
    }

    @Override
    public void read(Position position, Consumer<Readable> done) {
        probes++;
        Position first = chunks.get(position);
        Readable chunk = first != null && isDeleted(first.ledgerId(), first.entryId()) ? Readable.LONE_CHUNK : Readable.LATER_CHUNK;
        Readable there = first == null ? Readable.YES : chunk;
        Readable readable = lostEntries.contains(position) ? Readable.ENTRY_LOST : there;
        readable = lostLedgers.contains(position.ledgerId()) ? Readable.LEDGER_LOST : readable;
        Readable answer = log.keySet().stream().anyMatch(one -> one.ledgerId() == position.ledgerId())
                ? readable : Readable.LEDGER_NOT_OURS;
        cursorCalls.add(() -> done.accept(answer));
    }

    /** Its messages have no content. */
    @Override
    public void peek(Frame.Peek peek, Consumer<Frame.Peeked> done) {
        done.accept(new Frame.Peeked(new PositionBitmaps(), peek.positions(), 0, ByteBuffer.allocate(0)));
    }

    @Override
    public boolean skipsLost() {
        return skipsLost;
    }

    @Override
    public void skipLedger(long ledgerId) {
        cursorCalls.add(() -> log.keySet().stream().filter(one -> one.ledgerId() == ledgerId).toList().forEach(this::delete));
    }

    @Override
    public void pass(PositionSet held) {
        for (Position position : log.tailMap(readPosition, true).keySet()) {
            boolean skipped = held.contains(position.ledgerId(), position.entryId())
                    || isDeleted(position.ledgerId(), position.entryId());
            if (consumers.isEmpty() || !skipped) {
                return;
            }
            readPosition = new Position(position.ledgerId(), position.entryId() + 1);
        }
    }

    private boolean readNormally(TrackerMaker maker) {
        List<Position> entries = new ArrayList<>();
        for (Position position : log.tailMap(readPosition, true).keySet()) {
            if (entries.size() == readBatch) {
                break;
            }
            readPosition = new Position(position.ledgerId(), position.entryId() + 1);
            boolean skipped = core != null && core.queue().contains(position.ledgerId(), position.entryId())
                    || isDeleted(position.ledgerId(), position.entryId());
            if (!skipped) {
                entries.add(position);
            }
        }
        reads += entries.size();
        for (Position position : entries) {
            ToyConsumer consumer = freeConsumer();
            if (consumer == null) {
                redelivery.add(position);
            } else {
                dispatch(consumer, position, maker);
            }
        }
        return !entries.isEmpty();
    }

    /** Makes the tracker when the first delayed message is read. */
    interface TrackerMaker {
        TrackerCore make();
    }

    private void dispatch(ToyConsumer consumer, Position position, TrackerMaker maker) {
        if (!isGiven(position)) {
            redelivery.add(position);
            return;
        }
        long deliverAtMs = log.get(position);
        if (deliverAtMs >= 0 && !trackerMade) {
            trackerMade = true;
            seen = new SeenConsumers(consumers);
            core = maker.make();
        }
        if (core != null && core.queue().addMessage(position.ledgerId(), position.entryId(), deliverAtMs)) {
            return;
        }
        consumer.pending.add(position);
        deliveries.add(new Delivery(position, deliverAtMs, clock.millis()));
    }

    @Override
    public SeenConsumers.Change lookAtConsumers() {
        return seen.look(consumers);
    }

    @Override
    public boolean hasConsumers() {
        boolean has = !consumers.isEmpty();
        Runnable next = afterConsumersSeen;
        afterConsumersSeen = () -> { };
        next.run();
        return has;
    }

    @Override
    public List<?> consumers() {
        return List.copyOf(consumers);
    }

    @Override
    public int consumersHash() {
        return consumers.stream().mapToInt(System::identityHashCode).sum();
    }

    @Override
    public boolean mayDeliver() {
        return consumers.stream().anyMatch(this::isFree);
    }

    @Override
    public boolean maySeal() {
        return hasConsumers();
    }

    @Override
    public boolean isOutstanding(long ledgerId, long entryId) {
        return consumers.stream().anyMatch(consumer -> consumer.pending.contains(new Position(ledgerId, entryId)));
    }

    @Override
    public int redeliveryCount(long ledgerId, long entryId) {
        return redeliveryCounts.getOrDefault(new Position(ledgerId, entryId), 0);
    }

    /** Dispatches a position for the second time, as Pulsar's dispatcher does when two replay reads overlap. */
    void replayTwice(Position position) {
        dispatch(freeConsumer(), position, () -> core);
    }

    @Override
    public long redeliveries() {
        return redelivery.size();
    }

    @Override
    public Position firstRedelivery() {
        return redelivery.isEmpty() ? null : redelivery.first();
    }

    @Override
    public void readMore() {
        if (lostRequests > 0) {
            lostRequests--;
        } else {
            readRequested = true;
        }
    }

    /** If the topic stays here, the tracker sees only that the metadata are known again. */
    @Override
    public void reopenTopic() {
        if (hasRepeated) {
            hasRepeated = false;
            version = disk.version;
            overridePointer = disk.overridePointer;
        }
    }

    @Override
    public void wakeAt(long timeMs) {
        wakeMs = timeMs;
    }

    @Override
    public void cancelWake() {
        wakeMs = NearTier.NONE;
    }

    @Override
    public void framesWaiting() {
        framesRequested = true;
    }

    @Override
    public String name() {
        return TOPIC + " / " + SUBSCRIPTION;
    }

    /** The dispatcher and its tracker are closed; the cursor is closed a moment later. */
    void closeDispatcher() {
        if (core != null) {
            core.close();
        }
        consumers.clear();
        redelivery.clear();
        redeliveryCounts.clear();
    }

    /** Another dispatcher of the same cursor is next, as for another subscription type. */
    void replaceDispatcher() {
        closeDispatcher();
        core = null;
        trackerMade = false;
        metChunks.clear();
    }

    /** The cursor is closed after having persisted as much as Pulsar can persist. */
    void closeCursor(int acknowledgements) {
        persistCursor(acknowledgements);
        cursorClosed = true;
    }
}
