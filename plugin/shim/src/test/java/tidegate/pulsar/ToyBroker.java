package tidegate.pulsar;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.NavigableMap;
import java.util.NavigableSet;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.Consumer;

/**
 * A Pulsar topic with one Shared subscription, reduced to what a tracker sees: a log, a cursor that persists late, a
 * dispatcher with its redelivery set, consumers with what they have not acknowledged.
 *
 * <p>Follows PersistentDispatcherMultipleConsumers and ManagedCursorImpl of Pulsar 4.0: the order of calls, what a rewind and
 * a reset forget, what is skipped.
 */
class ToyBroker implements TrackerHost {
    static final String TOPIC = "persistent://public/default/toy";
    static final String SUBSCRIPTION = "sub";
    private static final Position START = new Position(0, -1);

    /** A consumer: what it holds and has not acknowledged. */
    static final class ToyConsumer {
        final NavigableSet<Position> pending = new TreeSet<>();
    }

    /** A message that reached a consumer. */
    record Delivery(Position position, long deliverAtMs, long atMs) {}

    private final VirtualClock clock;
    final NavigableMap<Position, Long> log = new TreeMap<>();
    final List<Delivery> deliveries = new ArrayList<>();
    final List<ToyConsumer> consumers = new ArrayList<>();
    TrackerCore core;

    // The cursor.
    private NavigableSet<Position> deleted = new TreeSet<>();
    private Position markDelete = START;
    private NavigableSet<Position> persistedDeleted = new TreeSet<>();
    private Position persistedMarkDelete = START;
    private Position readPosition = START;
    private boolean cursorClosed;
    /** One of these in a list makes the whole deletion fail, as a position beyond the last entry does. */
    final Set<Position> undeletable = new HashSet<>();

    // The dispatcher.
    private final NavigableSet<Position> redelivery = new TreeSet<>();
    private final SeenConsumers seen = new SeenConsumers();
    private boolean trackerMade;
    int readBatch = 5;
    int permits = 20;

    // What the core asked for.
    boolean readRequested;
    boolean framesRequested;
    boolean rereadRequested;
    long wakeMs = NearTier.NONE;
    private final List<Runnable> deletions = new ArrayList<>();
    int reads;

    ToyBroker(VirtualClock clock) {
        this.clock = clock;
    }

    // ---- the topic ----

    Position publish(Position position, long deliverAtMs) {
        log.put(position, deliverAtMs);
        readRequested = true;
        return position;
    }

    boolean isFullyAcknowledged() {
        return log.keySet().stream().allMatch(position -> isDeleted(position.ledgerId(), position.entryId()));
    }

    // ---- the cursor ----

    @Override
    public boolean isDeleted(long ledgerId, long entryId) {
        Position position = new Position(ledgerId, entryId);
        return position.compareTo(markDelete) <= 0 || deleted.contains(position);
    }

    @Override
    public Position markDelete() {
        return markDelete;
    }

    @Override
    public Position persistedMarkDelete() {
        return persistedMarkDelete;
    }

    @Override
    public boolean isClosed() {
        return cursorClosed;
    }

    private void delete(Position position) {
        if (position.compareTo(markDelete) > 0) {
            deleted.add(position);
        }
        Position next;
        while ((next = log.higherKey(markDelete)) != null && deleted.remove(next)) {
            markDelete = next;
        }
    }

    /** Pulsar persists the mark-delete position at most once a second, and {@code ranges} individual acknowledgements. */
    void persistCursor(int acknowledgements) {
        persistedMarkDelete = markDelete;
        persistedDeleted = new TreeSet<>();
        deleted.stream().limit(acknowledgements).forEach(persistedDeleted::add);
    }

    private void rewind() {
        Position next = log.higherKey(markDelete);
        readPosition = next == null ? new Position(markDelete.ledgerId(), markDelete.entryId() + 1) : next;
    }

    /** Seek: consumers are disconnected first, individual acknowledgements are gone, mark-delete moves either way. */
    void reset(Position to) {
        disconnectAll();
        Position previous = log.lowerKey(to);
        markDelete = previous == null ? START : previous;
        deleted = new TreeSet<>();
        persistedMarkDelete = markDelete;
        persistedDeleted = new TreeSet<>();
        readPosition = to;
    }

    /** Skips the backlog up to what was the last entry when it was asked for; what came and was read since then stays. */
    void clearBacklog(Position last) {
        markDelete = last;
        deleted.headSet(last, true).clear();
        persistedMarkDelete = markDelete;
        persistedDeleted = new TreeSet<>(deleted);
        Position next = new Position(last.ledgerId(), last.entryId() + 1);
        readPosition = readPosition.compareTo(next) < 0 ? next : readPosition;
    }

    void clearBacklog() {
        if (!log.isEmpty()) {
            clearBacklog(log.lastKey());
        }
    }

    @Override
    public void delete(List<Position> positions, Consumer<Boolean> done) {
        deletions.add(() -> {
            boolean possible = positions.stream().noneMatch(undeletable::contains);
            if (possible) {
                positions.forEach(this::delete);
            }
            done.accept(possible);
        });
    }

    void runDeletions() {
        List<Runnable> now = List.copyOf(deletions);
        deletions.clear();
        now.forEach(Runnable::run);
    }

    // ---- the dispatcher ----

    void connect() {
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
        } else {
            redelivery.addAll(consumer.pending);
            readRequested = true;
        }
    }

    void disconnectAll() {
        List.copyOf(consumers).forEach(this::disconnect);
    }

    void acknowledge(ToyConsumer consumer, Position position) {
        consumer.pending.remove(position);
        delete(position);
    }

    void negativeAcknowledge(ToyConsumer consumer, Position position) {
        consumer.pending.remove(position);
        redelivery.add(position);
        readRequested = true;
    }

    private ToyConsumer freeConsumer() {
        return consumers.stream().filter(consumer -> consumer.pending.size() < permits).findFirst().orElse(null);
    }

    /** readMoreEntries, with the reads done at once. Returns whether anything was read. */
    boolean readMore(TrackerMaker maker) {
        readRequested = false;
        if (core != null && core.shouldPause() || freeConsumer() == null) {
            return false;
        }
        redelivery.headSet(markDelete, true).clear();
        if (core != null && core.hasDue()) {
            core.popDue(readBatch, (ledgerId, entryId) -> redelivery.add(new Position(ledgerId, entryId)));
        }
        redelivery.removeIf(position -> isDeleted(position.ledgerId(), position.entryId()));
        if (!redelivery.isEmpty()) {
            for (Position position : redelivery.stream().limit(readBatch).toList()) {
                ToyConsumer consumer = freeConsumer();
                if (consumer == null) {
                    break;
                }
                redelivery.remove(position);
                dispatch(consumer, position, maker);
            }
            return true;
        }
        return readNormally(maker);
    }

    private boolean readNormally(TrackerMaker maker) {
        List<Position> entries = new ArrayList<>();
        for (Position position : log.tailMap(readPosition, true).keySet()) {
            if (entries.size() == readBatch) {
                break;
            }
            readPosition = new Position(position.ledgerId(), position.entryId() + 1);
            boolean skipped = core != null && core.contains(position.ledgerId(), position.entryId())
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
        long deliverAtMs = log.get(position);
        if (deliverAtMs >= 0 && !trackerMade) {
            trackerMade = true;
            core = maker.make();
        }
        if (core != null && core.addMessage(position.ledgerId(), position.entryId(), deliverAtMs)) {
            return;
        }
        consumer.pending.add(position);
        deliveries.add(new Delivery(position, deliverAtMs, clock.millis()));
    }

    @Override
    public boolean consumersReplaced() {
        return seen.replacedBy(consumers);
    }

    @Override
    public boolean hasConsumers() {
        return !consumers.isEmpty();
    }

    @Override
    public boolean isOutstanding(long ledgerId, long entryId) {
        return consumers.stream().anyMatch(consumer -> consumer.pending.contains(new Position(ledgerId, entryId)));
    }

    /** What Pulsar's dispatcher does when two replay reads overlap: it dispatches a position for the second time. */
    void replayTwice(Position position) {
        dispatch(freeConsumer(), position, () -> core);
    }

    @Override
    public long redeliveries() {
        return redelivery.size();
    }

    @Override
    public void readMore() {
        readRequested = true;
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
    public void rereadAll() {
        rereadRequested = true;
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
    }

    /** The cursor is closed after having persisted what Pulsar can persist. */
    void closeCursor(int acknowledgements) {
        persistCursor(acknowledgements);
        cursorClosed = true;
    }

    /** The topic as the next owner loads it: the log, and of the cursor what was persisted. */
    ToyBroker next() {
        ToyBroker next = new ToyBroker(clock);
        next.log.putAll(log);
        next.deliveries.addAll(deliveries);
        next.markDelete = persistedMarkDelete;
        next.deleted = new TreeSet<>(persistedDeleted);
        next.persistedMarkDelete = persistedMarkDelete;
        next.persistedDeleted = new TreeSet<>(persistedDeleted);
        next.permits = permits;
        next.readBatch = readBatch;
        next.rewind();
        return next;
    }
}
