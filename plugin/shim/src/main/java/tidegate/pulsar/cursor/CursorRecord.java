package tidegate.pulsar.cursor;

import java.util.Map;
import java.util.function.Consumer;
import org.apache.bookkeeper.mledger.ManagedCursor;
import tidegate.pulsar.gate.Seal;
import tidegate.pulsar.wire.Ownership;
import tidegate.pulsar.wire.ReleasePace;

/** Our properties in a cursor's stored record, and their names. */
public final class CursorRecord {
    public static final String PREFIX = ManagedCursor.CURSOR_INTERNAL_PROPERTY_PREFIX + "tidegate.";
    /** A property of the mark-delete position, which a reset replaces. */
    public static final String SEAL = PREFIX + "generation";
    /** A property of the cursor, which lives as long as the subscription. */
    public static final String OWNERSHIP = PREFIX + "owner";
    /** Beside the ownership. */
    public static final String PACE = PREFIX + "pace";
    /** The place of the incarnation in the first versions of Tidegate. */
    static final String INCARNATION = PREFIX + "incarnation";

    private CursorRecord() {
    }

    /** The ownership in a cursor's properties; null without one. */
    public static Ownership ownership(ManagedCursor cursor) {
        Map<String, String> properties = cursor.getCursorProperties();
        if (properties == null) {
            return null;
        }
        String text = properties.get(OWNERSHIP);
        if (text != null) {
            return Ownership.parse(text);
        }
        String incarnation = properties.get(INCARNATION);
        return incarnation == null ? null : Ownership.parse(incarnation + ":0");
    }

    /**
     * The pace of release in a cursor's properties. An unreadable one pauses: an operator can undo a pause, but not a
     * delivery. {@code unreadable} gets its text.
     */
    public static ReleasePace pace(ManagedCursor cursor, Consumer<String> unreadable) {
        Map<String, String> properties = cursor.getCursorProperties();
        String text = properties == null ? null : properties.get(PACE);
        if (text == null) {
            return ReleasePace.NONE;
        }
        try {
            return ReleasePace.parse(text);
        } catch (IllegalArgumentException e) {
            unreadable.accept(text);
            return ReleasePace.PAUSED;
        }
    }

    public static long seal(ManagedCursor cursor) {
        Map<String, Long> properties = cursor.getProperties();
        Long seal = properties == null ? null : properties.get(SEAL);
        return seal == null ? Seal.NONE : seal;
    }

    /** Puts a seal among properties that go with a mark-delete position. */
    static void putSeal(Map<String, Long> properties, long seal) {
        properties.put(SEAL, seal);
    }
}
