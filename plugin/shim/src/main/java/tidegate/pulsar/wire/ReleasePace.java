package tidegate.pulsar.wire;

/**
 * The pace at which due entries leave: as they come, not at all, some a second, or a burst spread over a time.
 *
 * <p>{@code amount} is the entries a second of a {@link Kind#RATE}, the milliseconds of a {@link Kind#SPREAD}, else 0.
 */
public record ReleasePace(Kind kind, int amount) {
    /** The kinds, in the order of their numbers on the wire. */
    public enum Kind { NONE, PAUSED, RATE, SPREAD }

    public static final int MAX_RATE = 1_000_000;
    /** A week. */
    public static final int MAX_SPREAD_MS = 7 * 24 * 3_600_000;
    public static final int MIN_SPREAD_MS = 1_000;
    public static final ReleasePace NONE = new ReleasePace(Kind.NONE, 0);
    public static final ReleasePace PAUSED = new ReleasePace(Kind.PAUSED, 0);
    private static final String SEPARATOR = ":";

    /** @throws IllegalArgumentException if the amount is out of the kind's bounds */
    public ReleasePace {
        boolean possible = switch (kind) {
            case NONE, PAUSED -> amount == 0;
            case RATE -> amount >= 1 && amount <= MAX_RATE;
            case SPREAD -> amount >= MIN_SPREAD_MS && amount <= MAX_SPREAD_MS;
        };
        if (!possible) {
            throw new IllegalArgumentException("a pace of kind " + kind + " with " + amount);
        }
    }

    public static ReleasePace rate(int entriesPerSecond) {
        return new ReleasePace(Kind.RATE, entriesPerSecond);
    }

    public static ReleasePace spread(int spreadMs) {
        return new ReleasePace(Kind.SPREAD, spreadMs);
    }

    public boolean isPaused() {
        return kind == Kind.PAUSED;
    }

    /** The pace of a {@link #text}. @throws IllegalArgumentException for any other text */
    public static ReleasePace parse(String text) {
        String[] parts = text.split(SEPARATOR, -1);
        if (parts.length != 2) {
            throw new IllegalArgumentException("no pace: " + text);
        }
        return new ReleasePace(Kind.valueOf(parts[0]), Integer.parseInt(parts[1]));
    }

    /** The form in a cursor's properties. */
    public String text() {
        return kind + SEPARATOR + amount;
    }
}
