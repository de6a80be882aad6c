package tidegate.pulsar.gate;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.time.Clock;
import java.util.ArrayList;
import java.util.List;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.position.TrackedPositions;
import tidegate.pulsar.timing.Wait;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.PositionBitmaps;

/**
 * Deletes settling positions in the cursor, a chunk at a time. The cursor's answer, which may come under its own lock or
 * within the call, is only noted; its consequences follow before the next chunk.
 *
 * <p>Invariant, walked by {@link #check}: at most one chunk is under way, and its size is within the limit. Takes the
 * tracker's lock itself.
 */
final class SettlingDeletes {
    private static final Logger LOG = LoggerFactory.getLogger(SettlingDeletes.class);
    private static final int CHUNK_MAX = 10_000;
    private static final long RETRY_MS = 1000;

    /** A chunk being deleted under one seal. */
    private static final class Chunk {
        private final List<Position> targets = new ArrayList<>();
        private final long generation;
        /** Null until the cursor has answered. */
        private volatile Boolean outcome;

        private Chunk(long generation) {
            this.generation = generation;
        }
    }

    private final TrackerContext context;
    private final Object lock;
    private final Clock clock;
    private final Seal seal;
    @GuardedBy("lock")
    private final TrackedPositions positions;
    @GuardedBy("lock")
    private final Outbox outbox;
    @GuardedBy("lock")
    private final DaemonStream stream;
    @GuardedBy("lock")
    private Chunk underWay;
    @GuardedBy("lock")
    private int chunkMax = CHUNK_MAX;
    @GuardedBy("lock")
    private final Wait sinceRefused = new Wait();

    SettlingDeletes(Object lock, TrackerContext context, Clock clock, Seal seal, TrackedPositions positions, Outbox outbox,
                    DaemonStream stream) {
        this.lock = lock;
        this.context = context;
        this.clock = clock;
        this.seal = seal;
        this.positions = positions;
        this.outbox = outbox;
        this.stream = stream;
    }

    /** Handles the outcome of the last chunk, and begins the next if one is due. */
    void go() {
        Chunk next;
        synchronized (lock) {
            next = next(seal.generation(), clock.millis());
        }
        if (next != null) {
            context.delete(next.targets, next.generation, done -> next.outcome = done);
        }
    }

    @GuardedBy("lock")
    private Chunk next(long generation, long nowMs) {
        if (underWay != null && !finish(nowMs)) {
            return null;
        }
        boolean waits = !sinceRefused.isOver(nowMs, RETRY_MS);
        // A seek disconnects the consumers before it resets the cursor: without any, one may be under way.
        if (positions.settling() == 0 || waits || !context.hasConsumers() || context.isClosed()) {
            return null;
        }
        Chunk chunk = new Chunk(generation);
        positions.forFirstSettling(chunkMax,
                (ledgerId, entryId) -> chunk.targets.add(new Position(ledgerId, entryId)));
        underWay = chunk;
        return chunk;
    }

    /** Abandons the chunk after a reset of the cursor: its answer no longer counts. */
    void abandon() {
        synchronized (lock) {
            underWay = null;
        }
    }

    /** Handles the cursor's answer; true if it has come. */
    @GuardedBy("lock")
    private boolean finish(long nowMs) {
        Boolean done = underWay.outcome;
        if (done == null) {
            return false;
        }
        List<Position> targets = underWay.targets;
        boolean sealed = seal.stood(underWay.generation);
        underWay = null;
        if (!sealed) {
            // The cursor may have left out all of them: its deletions will show under the new seal.
            return true;
        }
        if (done) {
            chunkMax = Math.min(CHUNK_MAX, chunkMax * 2);
            targets.forEach(position -> positions.settled(position.ledgerId(), position.entryId()));
            return true;
        }
        if (context.isClosed()) {
            // The next owner deletes them.
            return true;
        }
        sinceRefused.begin(nowMs);
        if (settleDeleted(targets)) {
            return true;
        }
        if (targets.size() > 1) {
            // A refused position must not hold up the others.
            chunkMax = Math.max(1, targets.size() / 2);
        } else {
            LOG.warn("[{}] {} cannot be acknowledged again: it may be delivered twice", context.name(), targets.get(0));
            giveUp(targets.get(0));
        }
        return true;
    }

    /** Gives up a position that the cursor refuses to delete: it is delivered again. */
    @GuardedBy("lock")
    private void giveUp(Position position) {
        positions.unreport(position.ledgerId(), position.entryId());
        PositionBitmaps one = new PositionBitmaps();
        one.add(position.ledgerId(), position.entryId());
        outbox.unacknowledge(one);
        stream.signal();
    }

    /**
     * Settles the positions deleted in the cursor; true if all are. A cursor that could not write its record has them as
     * deleted all the same; after a crash before its next record, the daemon still has them.
     */
    @GuardedBy("lock")
    private boolean settleDeleted(List<Position> targets) {
        boolean all = true;
        for (Position position : targets) {
            if (context.isDeleted(position.ledgerId(), position.entryId())) {
                positions.settled(position.ledgerId(), position.entryId());
            } else {
                all = false;
            }
        }
        return all;
    }

    /** @throws IllegalStateException if an invariant does not hold */
    void check() {
        synchronized (lock) {
            if (chunkMax < 1 || chunkMax > CHUNK_MAX || underWay != null && underWay.targets.size() > CHUNK_MAX) {
                throw new IllegalStateException("a chunk of " + chunkMax + " positions");
            }
        }
    }
}
