package tidegate.pulsar;

import java.util.concurrent.CompletableFuture;

/**
 * Does what the daemon asks about the index log of one subscription. What is in the log is the daemon's business alone.
 *
 * <p>Any thread may call it. It returns at once and never throws.
 */
interface LogHome {
    /** Where a broker that keeps no index logs sends everybody. */
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
            // There is nothing.
        }
    };

    /** Where logs are to be, as the OPEN frame tells it; empty for nowhere. */
    String home();

    /** The pointer as this broker last read or wrote it; empty if there is none. */
    String pointer();

    /** Completes with the answer, and never exceptionally. */
    CompletableFuture<Frame.LogAnswer> answer(Frame.LogRequest request);

    /** The stream is over: gives up what is open. */
    void close();
}
