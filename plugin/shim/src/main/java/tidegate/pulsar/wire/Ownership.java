package tidegate.pulsar.wire;

import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.random.RandomGenerator;

/**
 * A cursor's record of its trackers, in its own properties: the life of the subscription, the number of trackers, and the
 * claims of the last ones, a random number beside each epoch.
 *
 * <p>If Pulsar returns to an earlier state, it counts an epoch again; its other claim shows this to the daemon. All is one
 * property, so that a new tracker costs one write of the cursor's metadata.
 *
 * @param epoch counts the trackers; 0 before the first one has written it
 * @param sealed true if the cursor's acknowledgements are stored with a {@code Seal}: those without are a reset's
 * @param claims of the epochs up to this one without a gap, the latest last; fewer than epochs where an earlier Tidegate
 *     counted them
 */
public record Ownership(Incarnation incarnation, long epoch, boolean sealed, List<Integer> claims) {
    public static final int MAX_CLAIMS = 64;

    private static final String BORDER = ":";
    /** Before the epoch, where brokers without seals still read a number: brokers are upgraded one by one. */
    private static final String SEALED = "+";
    private static final int CLAIM_DIGITS = 8;

    public Ownership {
        if (claims.size() > Math.min(MAX_CLAIMS, epoch)) {
            throw new IllegalArgumentException(claims.size() + " claims of epoch " + epoch);
        }
        claims = List.copyOf(claims);
    }

    /** The ownership of a subscription that has never had a tracker. */
    public static Ownership first(RandomGenerator random) {
        return new Ownership(Incarnation.random(random), 0, false, List.of());
    }

    /** Reads a text of {@link #toString}, or one from before claims; null for anything else. */
    public static Ownership parse(String text) {
        String[] parts = text.split(BORDER, -1);
        if (parts.length != 2 && parts.length != 3) {
            return null;
        }
        Incarnation incarnation = Incarnation.parse(parts[0]);
        try {
            long epoch = Long.parseLong(parts[1]);
            List<Integer> claims = parts.length == 2 ? List.of() : parseClaims(parts[2], epoch);
            // Impossible claims must not be ignored: without claims the index would believe any history.
            return incarnation == null || epoch < 0 || epoch == Long.MAX_VALUE || claims == null ? null
                    : new Ownership(incarnation, epoch, parts[1].startsWith(SEALED), claims);
        } catch (IllegalArgumentException e) {
            return null;
        }
    }

    private static List<Integer> parseClaims(String hex, long epoch) {
        int count = hex.length() / CLAIM_DIGITS;
        if (count == 0 || count > Math.min(MAX_CLAIMS, epoch) || hex.length() % CLAIM_DIGITS != 0) {
            return null;
        }
        List<Integer> claims = new ArrayList<>(count);
        for (int at = 0; at < hex.length(); at += CLAIM_DIGITS) {
            claims.add(HexFormat.fromHexDigits(hex, at, at + CLAIM_DIGITS));
        }
        return claims;
    }

    /** The ownership of the next tracker, with a new claim; {@code storesSealed}: see {@code TrackerContext.storesSealed}. */
    public Ownership next(boolean storesSealed, RandomGenerator random) {
        List<Integer> kept = claims.subList(Math.max(0, claims.size() + 1 - MAX_CLAIMS), claims.size());
        List<Integer> next = new ArrayList<>(kept);
        next.add(random.nextInt());
        return new Ownership(incarnation, epoch + 1, sealed || storesSealed, next);
    }

    /** True if this is the next tracker's after the other. */
    public boolean follows(Ownership other) {
        return epoch == other.epoch + 1 && incarnation.equals(other.incarnation);
    }

    /** The same ownership, of a cursor whose acknowledgements are stored with a seal. */
    public Ownership withSeal() {
        return new Ownership(incarnation, epoch, true, claims);
    }

    @Override
    public String toString() {
        StringBuilder text = new StringBuilder(incarnation.toString()).append(BORDER).append(sealed ? SEALED : "")
                .append(epoch);
        if (!claims.isEmpty()) {
            text.append(BORDER);
            claims.forEach(claim -> text.append(HexFormat.of().toHexDigits(claim.intValue())));
        }
        return text.toString();
    }
}
