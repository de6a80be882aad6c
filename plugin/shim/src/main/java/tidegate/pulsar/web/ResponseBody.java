package tidegate.pulsar.web;

import java.io.IOException;
import javax.servlet.AsyncContext;
import javax.servlet.ServletOutputStream;
import javax.servlet.WriteListener;

/** A response's body, written without a waiting thread; then the request is complete. */
final class ResponseBody implements WriteListener {
    private final AsyncContext context;
    private final ServletOutputStream output;
    private final byte[] bytes;
    private boolean written;

    private ResponseBody(AsyncContext context, ServletOutputStream output, byte[] bytes) {
        this.context = context;
        this.output = output;
        this.bytes = bytes;
    }

    static void send(AsyncContext context, byte[] bytes) throws IOException {
        ServletOutputStream output = context.getResponse().getOutputStream();
        output.setWriteListener(new ResponseBody(context, output, bytes));
    }

    @Override
    public void onWritePossible() throws IOException {
        while (output.isReady()) {
            if (written) {
                context.complete();
                return;
            }
            written = true;
            output.write(bytes);
        }
    }

    @Override
    public void onError(Throwable error) {
        context.complete();
    }
}
