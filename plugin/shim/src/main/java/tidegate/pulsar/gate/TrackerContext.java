package tidegate.pulsar.gate;

import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import tidegate.pulsar.position.PositionSet;
import tidegate.pulsar.wire.Ownership;
import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.ReleasePace;

/**
 * The broker as a {@link TrackerCore} sees it: a cursor, a dispatcher and a timer, without Pulsar's types.
 *
 * <p>Every method returns at once and takes only, for a moment, the cursor's lock; so the core may call it under its own
 * lock. Any thread may call it, unless the dispatcher's lock is required. {@code done} is called on any thread, perhaps
 * within the call.
 */
public interface TrackerContext {
    /** The outcome of reading one position by itself. */
    enum Readable {
        YES("it can be read"),
        /** It can be read, and is a later chunk of a message. */
        LATER_CHUNK("it is a later chunk of a message"),
        /** A later chunk whose first one is acknowledged: no consumer can assemble the message. */
        LONE_CHUNK("it is a later chunk of a message, and the first one is acknowledged"),
        /** Perhaps later: a server is away, or overloaded. */
        NOT_NOW("not now"),
        ENTRY_LOST("no bookie has it"),
        LEDGER_LOST("its ledger does not exist any more"),
        /** The topic does not have the ledger, so there is no such message. */
        LEDGER_NOT_OURS("the topic has no such ledger");

        private final String words;

        Readable(String words) {
            this.words = words;
        }

        boolean isLost() {
            return this == ENTRY_LOST || this == LEDGER_LOST || this == LEDGER_NOT_OURS;
        }

        String words() {
            return words;
        }
    }

    /** Topic and subscription, for log lines. */
    String name();

    /** True while the daemon is connected. */
    default boolean reachesDaemon() {
        return true;
    }

    /** True if the cursor has the position as deleted (acknowledged). */
    boolean isDeleted(long ledgerId, long entryId);

    /**
     * The number of deletions that the cursor has counted, up to a constant: it changes with each deletion. Constant for a
     * cursor that does not count.
     */
    default long deletions() {
        return 0;
    }

    /**
     * A copy of the entries deleted beyond the cursor's mark-delete position, for each ledger with any, as the words of a
     * {@link java.util.BitSet}. Holds the cursor's lock while copying. Empty for a cursor that cannot tell.
     */
    default Map<Long, long[]> deletedEntries() {
        return Map.of();
    }

    /** The number of {@link #deletedEntries} that the cursor stores. */
    default RangeLimit rangeLimit() {
        return RangeLimit.UNKNOWN;
    }

    /** The position up to which everything is deleted, as far as this broker knows. */
    Position markDelete();

    /** The mark-delete position that survives a crash; never beyond {@link #markDelete}, and nowhere if unknown. */
    Position persistedMarkDelete();

    /** The topic's last position, beyond which no read has gone. -1:-1 if unknown. */
    Position lastConfirmed();

    /** The last seal put with {@link #putSeal}; {@link Seal#NONE} if a reset of the cursor has removed it since. */
    long seal();

    /** True if every further record of the cursor's acknowledgements, except a reset's, has a seal. */
    boolean storesSealed();

    /**
     * Puts a number among the properties that the cursor persists with its mark-delete position, in its next record; false if
     * the cursor takes none.
     */
    boolean putSeal(long seal);

    /** True if the topic has such a message, acknowledged or not; messages of a trimmed ledger are gone. */
    boolean exists(long ledgerId, long entryId);

    /** The subscription's ownership as this broker last read or wrote it; null without one. */
    Ownership ownership();

    /** The outcome of a write of the cursor's metadata. */
    enum Written {
        DONE,
        /** The metadata have another version than this broker knows. */
        CONFLICT,
        /** Not tried: the last consumer has just gone, see {@link #mayPutOwnership}. */
        UNATTENDED,
        FAILED
    }

    /** True if the ownership can be written now: for a cursor never stored, only while a consumer is connected. */
    default boolean mayPutOwnership() {
        return true;
    }

    /**
     * Writes the ownership into the cursor's metadata unless another writer came there since this broker's last write.
     * {@code done} is called on another thread.
     */
    void putOwnership(Ownership next, Consumer<Written> done);

    /** The rules of topic and namespace for the subscription's delayed messages. Any lock may be held. */
    default DelayPolicy policy() {
        return DelayPolicy.NONE;
    }

    /** False while {@link #policy} lacks the rules of a place whose answer is still to come. Any lock may be held. */
    default boolean knowsPolicy() {
        return true;
    }

    default ReleasePace pace() {
        return ReleasePace.NONE;
    }

    /** Writes the pace into the cursor's metadata, as {@link #putOwnership}. */
    void putPace(ReleasePace next, Consumer<Written> done);

    /**
     * Closes the topic here, so that it is loaded anew with its cursor's current metadata. May be refused, because it
     * disturbs the topic's clients.
     */
    default void reopenTopic() {
        // A subscription without a dispatcher disturbs nobody.
    }

    default LogHome log() {
        return LogHome.NONE;
    }

    default OverrideHome overrides() {
        return OverrideHome.NONE;
    }

    /** True if the subscription outlives its consumers; otherwise it goes with the last of them. */
    default boolean isDurable() {
        return true;
    }

    /** True if the cursor is closed: no more acknowledgements come. */
    boolean isClosed();

    /**
     * The change of the consumers since the last call. Pulsar redelivers everything that a gone consumer held. If all were
     * replaced, it has forgotten its hand-outs and rewound its cursor. Needs the dispatcher's lock.
     */
    SeenConsumers.Change lookAtConsumers();

    /** A number that most likely changes with the consumers. */
    int consumersHash();

    boolean hasConsumers();

    /** The consumers connected now, each the same object while connected. A reset disconnects all first. */
    List<?> consumers();

    /**
     * True if a seal may be put now: not without consumers (a reset may be under way), nor before a reset undone by a crash
     * is repeated.
     */
    boolean maySeal();

    /**
     * True if a consumer has the position and has not acknowledged it. Certain under the dispatcher's lock; without, it may
     * be on its way to one.
     */
    boolean isOutstanding(long ledgerId, long entryId);

    /** For a broker that does not count redeliveries. */
    int UNCOUNTED = -1;

    /** How often consumers have given the position back (negative acknowledgement, time-out); or {@link #UNCOUNTED}. */
    int redeliveryCount(long ledgerId, long entryId);

    /** The number of positions that the dispatcher itself has queued for redelivery. */
    long redeliveries();

    /** The lowest position that the dispatcher itself has queued for redelivery; null without one, or if unknown. */
    default Position firstRedelivery() {
        return null;
    }

    /**
     * Deletes the positions in the cursor, unless it has another seal by now, decided in one step with the deletion.
     * {@code done} gets true after that, false after a failure, perhaps under locks of the cursor.
     */
    void delete(List<Position> positions, long seal, Consumer<Boolean> done);

    /** The outcome of {@link #deleteAndStore}. */
    enum Stored {
        /** The cursor's record, which survives a crash, has all of the positions as deleted. */
        YES,
        /** The record may lack some: ask again. */
        NOT_NOW,
        /** The record has no room for all deletions. */
        NO_ROOM
    }

    /**
     * Deletes the positions in the cursor, unless it has another seal by now, and stores the cursor, with earlier deletions.
     * Needs no consumer.
     */
    void deleteAndStore(List<Position> positions, long seal, Consumer<Stored> done);

    /** Reads the position by itself. */
    void read(Position position, Consumer<Readable> done);

    /** Reads the messages of a PEEK, a few at a time. */
    void peek(Frame.Peek peek, Consumer<Frame.Peeked> done);

    /** True if the broker skips lost data at present (autoSkipNonRecoverableData). */
    boolean skipsLost();

    /** Acknowledges all of a lost ledger for every subscription of the topic, as after a normal read of it. */
    void skipLedger(long ledgerId);

    /**
     * Moves the start of the dispatcher's next read past an unbroken row of held positions, unless a read is on its way:
     * Pulsar would get there slowly. Any thread may change the set meanwhile. Dispatcher's lock held.
     */
    default void pass(PositionSet held) {
        // A subscription without a dispatcher reads nothing.
    }

    /**
     * Moves the start of the dispatcher's next read past replayed positions. Pulsar does that one position at a time, with a
     * warning each. Dispatcher's lock held.
     */
    default void passReplayed(PositionSet replayed) {
        // As above.
    }

    /**
     * True if a read could only fail: the topic is terminated and read to its end, where a read has failed already. After the
     * consumers were {@code replaced} one read is needed: Pulsar may have postponed a rewind until its end. Dispatcher's lock
     * held.
     */
    default boolean isAtTerminatedEnd(boolean replaced) {
        return false;
    }

    /** True if the dispatcher waits for no replay, and some consumer seems to take messages. */
    boolean mayDeliver();

    /** Makes the dispatcher look for messages to deliver soon. */
    void readMore();

    /** Calls {@link DeliveryQueue#onWake} at that time, in place of any requested before. */
    void wakeAt(long timeMs);

    void cancelWake();

    /** Notes that the core has frames to send, which the link's thread fetches soon ({@link StreamHandler#takeFrames}). */
    void framesWaiting();
}
