package tidegate.pulsar.gate;

import java.util.concurrent.CompletableFuture;
import tidegate.pulsar.wire.Frame;

/**
 * Serves the daemon's requests about one subscription's index log. Only the daemon knows the log's contents.
 *
 * <p>Any thread may call it. It returns at once and never throws.
 */
public interface LogHome {
    /** The home of a broker without index logs; it refuses every request. */
    LogHome NONE = new LogHome() {
        @Override
        public String home() {
            return "";
        }

        @Override
        public String pointer() {
            return "";
        }

        @Override
        public CompletableFuture<Frame.LogAnswer> answer(Frame.LogRequest request) {
            return CompletableFuture.completedFuture(
                    Frame.LogAnswer.failed(Frame.LogAnswer.REFUSED, "this broker keeps no index logs"));
        }

        @Override
        public void close() {
            // Nothing to close.
        }
    };

    /** The place for new logs, as in OPEN; empty without one. */
    String home();

    /** The pointer as this broker last read or wrote it; empty without one. */
    String pointer();

    /** Completes with the answer, never exceptionally. */
    CompletableFuture<Frame.LogAnswer> answer(Frame.LogRequest request);

    /** Closes everything open, at the stream's end. */
    void close();
}
