package tidegate.pulsar.gate;

import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import tidegate.pulsar.position.PositionSet;
import tidegate.pulsar.wire.Ownership;
import tidegate.pulsar.wire.Position;

/**
 * What a {@link TrackerCore} sees of the broker: a cursor, a dispatcher and a timer, without Pulsar's types.
 *
 * <p>Everything returns at once and takes none of Pulsar's locks but, for a moment, the cursor's; so the core may call it with
 * its own lock held. Any thread may call it, unless a method says that it needs the dispatcher's lock.
 */
public interface TrackerHost {
    /** What reading one position by itself shows. */
    enum Readable {
        YES("it can be read"),
        /** Perhaps later: somebody is away, or has too much to do. */
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
            return this != YES && this != NOT_NOW;
        }

        /** For log lines. */
        String words() {
            return words;
        }
    }

    /** Topic and subscription, for log lines. */
    String name();

    /** Whether the cursor has the position as deleted (acknowledged). */
    boolean isDeleted(long ledgerId, long entryId);

    /**
     * How many positions the cursor has counted as deleted, up to a constant: another number whenever one has been deleted since.
     * A cursor that does not count always tells the same.
     */
    default long deletions() {
        return 0;
    }

    /**
     * A copy of what the cursor has as deleted beyond its mark-delete position: for each ledger that has some its entries, as
     * the words of a {@link java.util.BitSet}. It takes the cursor's lock for as long as copying takes. Of a cursor that cannot
     * tell it is empty.
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

    /** What was put last with {@link #putSeal}, and no reset of the cursor has removed since; {@link Seal#NONE} if nothing. */
    long seal();

    /** Whether the cursor's acknowledgements are stored with a seal from now on, always, but for those of a reset's record. */
    boolean storesSealed();

    /**
     * Puts a number among the properties that the cursor persists with its mark-delete position; false if it takes none. It
     * is persisted when the cursor is next.
     */
    boolean putSeal(long seal);

    /** The subscription's ownership as this broker last read or wrote it; null if there is none. */
    Ownership ownership();

    /** What has become of a write of the cursor's metadata. */
    enum Written {
        DONE,
        /** They have another version than this broker knows. */
        CONFLICT,
        /** It was not tried: the last consumer has just gone, see {@link #mayPutOwnership}. */
        UNATTENDED,
        FAILED
    }

    /** Whether the ownership can be written now: of a cursor that has never been stored, only while a consumer is connected. */
    default boolean mayPutOwnership() {
        return true;
    }

    /**
     * Writes the ownership into the cursor's metadata unless anybody else has written there since this broker did. Returns at
     * once; {@code done} is called on another thread.
     */
    void putOwnership(Ownership next, Consumer<Written> done);

    /**
     * Has the topic closed here, and so loaded anew with all that the cursor's metadata say now. Returns at once. It may be
     * refused, as it disturbs the topic's clients.
     */
    default void reopenTopic() {
        // A subscription that has no dispatcher disturbs nobody.
    }

    /** The index log of the subscription. */
    default LogHome log() {
        return LogHome.NONE;
    }

    /** Whether the subscription outlives its consumers; one that does not goes with the last of them, and nobody says so. */
    default boolean isDurable() {
        return true;
    }

    /** Whether the cursor is closed: no acknowledgement comes any more. */
    boolean isClosed();

    /**
     * What has become of the consumers seen at the last call. Of those that have gone Pulsar delivers again what they held. If
     * all were replaced, it has forgotten what it had handed to them and has rewound its cursor. Called with the dispatcher's
     * lock held.
     */
    SeenConsumers.Change lookAtConsumers();

    /** A number that is another one, most likely, when the consumers are others. */
    int consumersHash();

    /** Whether any consumer is connected. */
    boolean hasConsumers();

    /**
     * Whether a seal may be put now: not without consumers, as a reset may be under way, nor while a reset that a crash has
     * undone is yet to be done again.
     */
    boolean maySeal();

    /**
     * Whether a consumer has the position and has not acknowledged it. Certain with the dispatcher's lock held; without, it may be
     * on its way to one.
     */
    boolean isOutstanding(long ledgerId, long entryId);

    /** A broker that does not count redeliveries. */
    int UNCOUNTED = -1;

    /** How often a consumer has given the position back, by a negative acknowledgement or a time-out; or {@link #UNCOUNTED}. */
    int redeliveryCount(long ledgerId, long entryId);

    /** How many positions the dispatcher itself has queued for redelivery. */
    long redeliveries();

    /**
     * Deletes the positions in the cursor, unless that has another seal by now: which is decided in one step with the deletion.
     * {@code done} gets true once that is done, false if it failed. It may be called within this call, and with locks of the
     * cursor held.
     */
    void delete(List<Position> positions, long seal, Consumer<Boolean> done);

    /** Reads the position by itself. {@code done} is called on any thread, within this call perhaps. */
    void read(Position position, Consumer<Readable> done);

    /** Whether the broker is configured to skip what is lost (autoSkipNonRecoverableData), at present. */
    boolean skipsLost();

    /** Acknowledges all of a lost ledger in every subscription of the topic, as the broker does when a normal read meets it. */
    void skipLedger(long ledgerId);

    /**
     * Has the dispatcher's next read begin behind what is held in one row from where it would begin, unless a read is on its way:
     * Pulsar would get there too, but slowly. Any thread may change the set meanwhile. Dispatcher's lock held.
     */
    default void pass(PositionSet held) {
        // A subscription that has no dispatcher reads nothing.
    }

    /**
     * Has the dispatcher's next read begin behind what is replayed, if it would begin there. Pulsar does that too, by one position
     * at a time and with a warning for each. Dispatcher's lock held.
     */
    default void passReplayed(PositionSet replayed) {
        // As above.
    }

    /**
     * True if a read could only fail: the topic was terminated, all of it was read, and a read at its end has failed already.
     * One is needed after the consumers were {@code replaced}: Pulsar may have put a rewind off until its end. Dispatcher's lock
     * held.
     */
    default boolean isAtTerminatedEnd(boolean replaced) {
        return false;
    }

    /** Whether the dispatcher waits for no replay, and some consumer has permits and takes messages, as far as it can be seen. */
    boolean mayDeliver();

    /** Has the dispatcher look for something to deliver soon. */
    void readMore();

    /** Calls {@link DispatcherSide#onWake} at that time, instead of at any time asked for before. */
    void wakeAt(long timeMs);

    /** No more wake-ups. */
    void cancelWake();

    /** The core has frames to send; they are fetched soon, on the link's thread, with {@link DaemonSide#takeFrames}. */
    void framesWaiting();
}
