package tidegate.pulsar.wire;

import java.util.Arrays;
import java.util.HexFormat;
import java.util.random.RandomGenerator;

/**
 * The life of a subscription: 16 random bytes in the cursor's properties. One that was deleted and made again has another,
 * and the daemon forgets the former.
 */
public record Incarnation(byte[] bytes) {
    static final int SIZE = 16;

    public Incarnation {
        if (bytes.length != SIZE) {
            throw new IllegalArgumentException("an incarnation has " + SIZE + " bytes, not " + bytes.length);
        }
        bytes = bytes.clone();
    }

    static Incarnation random(RandomGenerator random) {
        byte[] bytes = new byte[SIZE];
        random.nextBytes(bytes);
        return new Incarnation(bytes);
    }

    /** Reads the output of {@link #toString}; null for any other text. */
    static Incarnation parse(String hex) {
        try {
            byte[] bytes = HexFormat.of().parseHex(hex);
            return bytes.length == SIZE ? new Incarnation(bytes) : null;
        } catch (IllegalArgumentException e) {
            return null;
        }
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Incarnation that && Arrays.equals(bytes, that.bytes);
    }

    @Override
    public int hashCode() {
        return Arrays.hashCode(bytes);
    }

    @Override
    public String toString() {
        return HexFormat.of().formatHex(bytes);
    }
}
