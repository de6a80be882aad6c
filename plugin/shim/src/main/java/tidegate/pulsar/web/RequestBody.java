package tidegate.pulsar.web;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.concurrent.CompletableFuture;
import javax.servlet.ReadListener;
import javax.servlet.ServletInputStream;

/** A request's body up to a bound, read without a waiting thread. */
final class RequestBody implements ReadListener {
    static final int MAX_BYTES = 1024 * 1024;
    private static final int READ_BYTES = 16 * 1024;

    private final ServletInputStream input;
    private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    private final CompletableFuture<ByteBuffer> whole = new CompletableFuture<>();

    private RequestBody(ServletInputStream input) {
        this.input = input;
    }

    /** The body, or a {@link ProblemException} if it is too long or ends early. */
    static CompletableFuture<ByteBuffer> of(ServletInputStream input) {
        RequestBody body = new RequestBody(input);
        input.setReadListener(body);
        return body.whole;
    }

    static ProblemException tooLong() {
        return new ProblemException(413, "Content Too Large",
                "a body has at most " + MAX_BYTES + " bytes, some 50,000 ids: send the others in requests of their own");
    }

    @Override
    public void onDataAvailable() throws IOException {
        byte[] piece = new byte[READ_BYTES];
        while (!whole.isDone() && input.isReady() && !input.isFinished()) {
            int count = input.read(piece);
            if (count < 0) {
                return;
            }
            if (bytes.size() + count > MAX_BYTES) {
                whole.completeExceptionally(tooLong());
                return;
            }
            bytes.write(piece, 0, count);
        }
    }

    @Override
    public void onAllDataRead() {
        whole.complete(ByteBuffer.wrap(bytes.toByteArray()));
    }

    @Override
    public void onError(Throwable error) {
        whole.completeExceptionally(new ProblemException(400, "Bad Request", "the body ended early: nothing was done"));
    }
}
