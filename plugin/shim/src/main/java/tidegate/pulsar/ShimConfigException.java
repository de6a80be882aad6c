package tidegate.pulsar;

/** A key of the broker's configuration is unusable; the message names the key and the remedy. */
final class ShimConfigException extends Exception {
    private static final long serialVersionUID = 1L;

    ShimConfigException(String message) {
        super(message);
    }
}
