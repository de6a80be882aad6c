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
 * <p>Everything returns at once and takes none of Pulsar's locks but, for a moment, the cursor's; so the core may call it with
 * its own lock held. Any thread may call it, unless a method says that it needs the dispatcher's lock.
 */
public interface TrackerContext {
    /** The outcome of reading one position by itself. */
    enum Readable {
        YES("it can be read"),
        /** It can be read, and is a chunk of a message, not the first one. */
        LATER_CHUNK("it is a later chunk of a message"),
        /** It can be read, and is such a chunk, whose first one is acknowledged: no consumer can put the message together. */
        LONE_CHUNK("it is a later chunk of a message, and the first one is acknowledged"),
        /** Perhaps later: a server is away, or has too much to do. */
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

        /** For log lines. */
        String words() {
            return words;
        }
    }

    /** Topic and subscription, for log lines. */
    String name();

    /** True if the cursor has the position as deleted (acknowledged). */
    boolean isDeleted(long ledgerId, long entryId);

    /**
     * How many positions the cursor has counted as deleted, up to a constant: the number changes with each deletion. A cursor
     * that does not count always returns the same.
     */
    default long deletions() {
        return 0;
    }

    /**
     * A copy of the entries that the cursor has as deleted beyond its mark-delete position, for each ledger that has some, as the
     * words of a {@link java.util.BitSet}. It holds the cursor's lock while copying. It is empty for a cursor that cannot tell.
     */
    default Map<Long, long[]> deletedEntries() {
        return Map.of();
    }

    /** How many of {@link #deletedEntries} the cursor stores. */
    default RangeLimit rangeLimit() {
        return RangeLimit.UNKNOWN;
    }

    /** Everything up to and including it is deleted, as far as this broker knows. */
    Position markDelete();

    /** The mark-delete position that survives a crash; never beyond {@link #markDelete}, and nowhere if it is not known. */
    Position persistedMarkDelete();

    /** The topic's last position: nothing behind it was ever read by anybody. -1:-1 if it is not known. */
    Position lastConfirmed();

    /** The last seal put with {@link #putSeal}, unless a reset of the cursor has removed it since: then {@link Seal#NONE}. */
    long seal();

    /** True if the cursor's acknowledgements are from now on always stored with a seal, except in a reset's record. */
    boolean storesSealed();

    /**
     * Puts a number among the properties that the cursor persists with its mark-delete position; false if the cursor takes none.
     * It is persisted when the cursor is next.
     */
    boolean putSeal(long seal);

    /** True if the topic has such a message, acknowledged or not; messages of a trimmed ledger are gone. */
    boolean exists(long ledgerId, long entryId);

    /** The subscription's ownership as this broker last read or wrote it; null if there is none. */
    Ownership ownership();

    /** The outcome of a write of the cursor's metadata. */
    enum Written {
        DONE,
        /** They have another version than this broker knows. */
        CONFLICT,
        /** It was not tried: the last consumer has just gone, see {@link #mayPutOwnership}. */
        UNATTENDED,
        FAILED
    }

    /** True if the ownership can be written now: of a cursor that has never been stored, only while a consumer is connected. */
    default boolean mayPutOwnership() {
        return true;
    }

    /**
     * Writes the ownership into the cursor's metadata unless anybody else has written there since this broker did. Returns at
     * once; {@code done} is called on another thread.
     */
    void putOwnership(Ownership next, Consumer<Written> done);

    /** The rules for the subscription's delayed messages that its topic and namespace have. Called with any lock held. */
    default DelayPolicy policy() {
        return DelayPolicy.NONE;
    }

    /** The pace of release that the cursor's record has. */
    default ReleasePace pace() {
        return ReleasePace.NONE;
    }

    /**
     * Writes the pace into the cursor's metadata, as {@link #putOwnership}. Returns at once; {@code done} is called on any thread,
     * within this call perhaps.
     */
    void putPace(ReleasePace next, Consumer<Written> done);

    /**
     * Closes the topic here, so that it is loaded anew with the current metadata of its cursor. Returns at once. It may be
     * refused, as it disturbs the topic's clients.
     */
    default void reopenTopic() {
        // A subscription that has no dispatcher disturbs nobody.
    }

    /** The index log of the subscription. */
    default LogHome log() {
        return LogHome.NONE;
    }

    /** Where overrides of the subscription are stored. */
    default OverrideHome overrides() {
        return OverrideHome.NONE;
    }

    /** True if the subscription outlives its consumers; otherwise it goes with the last of them, and nobody says so. */
    default boolean isDurable() {
        return true;
    }

    /** True if the cursor is closed: no acknowledgement comes any more. */
    boolean isClosed();

    /**
     * Tells how the consumers have changed since the last call. Pulsar delivers again all that a gone consumer held. If all were
     * replaced, it has forgotten what it had handed to them and has rewound its cursor. Called with the dispatcher's lock held.
     */
    SeenConsumers.Change lookAtConsumers();

    /** A number that most likely changes when the consumers do. */
    int consumersHash();

    /** True if any consumer is connected. */
    boolean hasConsumers();

    /**
     * The consumers connected now, each the same object as long as it is connected. A reset disconnects all of them before it
     * touches the cursor.
     */
    List<?> consumers();

    /**
     * True if a seal may be put now: not without consumers, as a reset may be under way, nor while a reset that a crash has
     * undone is yet to be done again.
     */
    boolean maySeal();

    /**
     * True if a consumer has the position and has not acknowledged it. Certain with the dispatcher's lock held; without, it may
     * be on its way to one.
     */
    boolean isOutstanding(long ledgerId, long entryId);

    /** The count of a broker that does not count redeliveries. */
    int UNCOUNTED = -1;

    /** How often a consumer has given the position back, by a negative acknowledgement or a time-out; or {@link #UNCOUNTED}. */
    int redeliveryCount(long ledgerId, long entryId);

    /** How many positions the dispatcher itself has queued for redelivery. */
    long redeliveries();

    /** The lowest position that the dispatcher itself has queued for redelivery; null if there is none, or nobody knows. */
    default Position firstRedelivery() {
        return null;
    }

    /**
     * Deletes the positions in the cursor, unless it has another seal by now; it decides that in one step with the deletion.
     * {@code done} gets true after that, false if it failed. The context may call it within this call, and with locks of the
     * cursor held.
     */
    void delete(List<Position> positions, long seal, Consumer<Boolean> done);

    /** The outcome of {@link #deleteAndStore}. */
    enum Stored {
        /** The cursor's record has all of the positions as deleted: a crash of the broker leaves that record. */
        YES,
        /** Perhaps not all of them: ask again. */
        NOT_NOW,
        /** The record has no room for everything that is deleted. */
        NO_ROOM
    }

    /**
     * Deletes the positions in the cursor, unless it has another seal by now, and stores the cursor. Needs no consumer. Positions
     * that are deleted already are stored, too. Returns at once; {@code done} is called on any thread, within this call perhaps.
     */
    void deleteAndStore(List<Position> positions, long seal, Consumer<Stored> done);

    /** Reads the position by itself. {@code done} is called on any thread, within this call perhaps. */
    void read(Position position, Consumer<Readable> done);

    /** Reads the messages of a PEEK, a few at a time. {@code done} is called on any thread, within this call perhaps. */
    void peek(Frame.Peek peek, Consumer<Frame.Peeked> done);

    /** True if the broker is at present configured to skip lost data (autoSkipNonRecoverableData). */
    boolean skipsLost();

    /** Acknowledges all of a lost ledger in every subscription of the topic, as the broker does when a normal read meets it. */
    void skipLedger(long ledgerId);

    /**
     * Moves the start of the dispatcher's next read past an unbroken row of held positions, unless a read is on its way: Pulsar
     * would get there too, but slowly. Any thread may change the set meanwhile. Dispatcher's lock held.
     */
    default void pass(PositionSet held) {
        // A subscription that has no dispatcher reads nothing.
    }

    /**
     * Moves the start of the dispatcher's next read past replayed positions. Pulsar does that too, by one position at a time and
     * with a warning for each. Dispatcher's lock held.
     */
    default void passReplayed(PositionSet replayed) {
        // As above.
    }

    /**
     * True if a read could only fail: the topic was terminated, all of it was read, and a read at its end has failed already.
     * After the consumers were {@code replaced} one read is needed: Pulsar may have postponed a rewind until its end.
     * Dispatcher's lock held.
     */
    default boolean isAtTerminatedEnd(boolean replaced) {
        return false;
    }

    /** True if the dispatcher waits for no replay, and some consumer has permits and takes messages, as far as can be seen. */
    boolean mayDeliver();

    /** Has the dispatcher look for something to deliver soon. */
    void readMore();

    /** Calls {@link DeliveryQueue#onWake} at that time, instead of at any time asked for before. */
    void wakeAt(long timeMs);

    /** No more wake-ups. */
    void cancelWake();

    /** The core has frames to send; they are fetched soon, on the link's thread, with {@link StreamHandler#takeFrames}. */
    void framesWaiting();
}
