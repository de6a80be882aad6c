package tidegate.pulsar;

import java.util.random.RandomGenerator;

/**
 * What a cursor's own properties say of its trackers: which life of the subscription this is, and how many trackers it has had.
 *
 * <p>Both are one property, so that a new tracker costs one write of the cursor's metadata.
 *
 * @param epoch counts the trackers; 0 before the first one has written it
 */
record Ownership(Incarnation incarnation, long epoch) {
    private static final char BORDER = ':';

    /** Of a subscription that has never had a tracker. */
    static Ownership first(RandomGenerator random) {
        return new Ownership(Incarnation.random(random), 0);
    }

    /** Reads what {@link #toString} wrote; null if the text is something else. */
    static Ownership parse(String text) {
        int border = text.indexOf(BORDER);
        if (border < 0) {
            return null;
        }
        Incarnation incarnation = Incarnation.parse(text.substring(0, border));
        try {
            long epoch = Long.parseLong(text.substring(border + 1));
            return incarnation == null || epoch < 0 ? null : new Ownership(incarnation, epoch);
        } catch (NumberFormatException e) {
            return null;
        }
    }

    /** That of the next tracker. */
    Ownership next() {
        return new Ownership(incarnation, epoch + 1);
    }

    @Override
    public String toString() {
        return incarnation.toString() + BORDER + epoch;
    }
}
