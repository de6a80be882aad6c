package tidegate.pulsar.web;

import java.io.EOFException;
import java.io.IOException;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.link.SocketPeer;
import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.FrameCodec;
import tidegate.pulsar.wire.FrameReader;
import tidegate.pulsar.wire.ProtocolException;

/**
 * Passes requests to the daemon as a control client, each over its own connection.
 *
 * <p>Invariants: at most {@link #MAX_CALLS} are under way; each ends by its deadline; this class owns the threads, which wait
 * only for the daemon.
 */
public final class DaemonCalls implements AutoCloseable {
    static final int MAX_CALLS = 32;
    private static final Logger LOG = LoggerFactory.getLogger(DaemonCalls.class);
    private static final int READ_BYTES = 64 * 1024;
    private static final long IDLE_THREAD_S = 10;
    private static final long SEQ = 1;
    private static final String RESCHEDULE = "/reschedule";

    private final Path socket;
    private final SocketPeer peer;
    private final String product;
    private final long deadlineMs;
    private final ThreadPoolExecutor callers;
    private final ScheduledExecutorService timer;

    /** {@code peer} decides whether a process may be the daemon. */
    public DaemonCalls(Path socket, SocketPeer peer, String product, long deadlineMs) {
        this.socket = socket;
        this.peer = peer;
        this.product = product;
        this.deadlineMs = deadlineMs;
        callers = new ThreadPoolExecutor(0, MAX_CALLS, IDLE_THREAD_S, TimeUnit.SECONDS, new SynchronousQueue<>(), named("tidegate-web"));
        timer = Executors.newSingleThreadScheduledExecutor(named("tidegate-web-timer"));
    }

    private static ThreadFactory named(String name) {
        return task -> {
            Thread thread = new Thread(task, name);
            thread.setDaemon(true);
            return thread;
        };
    }

    /** The daemon's answer, or a {@link ProblemException}. */
    CompletableFuture<Frame.HttpResponse> call(Frame.HttpRequest request) {
        CompletableFuture<Frame.HttpResponse> answer = new CompletableFuture<>();
        try {
            callers.execute(() -> {
                try {
                    answer.complete(converse(request));
                } catch (ProblemException | RuntimeException | Error e) {
                    // Without an answer its role would never get its place back.
                    answer.completeExceptionally(e);
                }
            });
        } catch (RejectedExecutionException e) {
            answer.completeExceptionally(unavailable("too many requests are under way: ask again"));
        }
        return answer;
    }

    private Frame.HttpResponse converse(Frame.HttpRequest request) throws ProblemException {
        boolean asked = false;
        Future<?> deadline = null;
        try (SocketChannel channel = SocketChannel.open(java.net.StandardProtocolFamily.UNIX)) {
            deadline = timer.schedule(() -> close(channel), deadlineMs, TimeUnit.MILLISECONDS);
            channel.connect(UnixDomainSocketAddress.of(socket));
            peer.check(channel);
            String name = "web-" + ProcessHandle.current().pid();
            write(channel, FrameCodec.encode(0, 0,
                    new Frame.Hello(FrameCodec.VERSION_MIN, FrameCodec.VERSION, Frame.Hello.ROLE_CONTROL, name, product)));
            asked = true;
            write(channel, FrameCodec.encode(0, SEQ, request));
            return answer(channel, request);
        } catch (ClosedChannelException e) {
            throw new ProblemException(504, "Gateway Timeout", "the daemon beside this broker did not answer in "
                    + deadlineMs / 1000 + " s: " + again(request.method(), request.target()));
        } catch (IOException e) {
            LOG.debug("The daemon at {} does not answer", socket, e);
            if (asked) {
                throw unanswered(request, "the daemon beside this broker went away");
            }
            throw new ProblemException(new Problem(503, "Service Unavailable",
                    "no daemon answers beside this broker: see that `tidegate serve` runs there").with("reason", "no-daemon"));
        } catch (ProtocolException e) {
            LOG.warn("The process at {} does not speak this protocol: {}", socket, e.getMessage());
            throw unavailable("the daemon beside this broker speaks another protocol: upgrade it");
        } finally {
            if (deadline != null) {
                deadline.cancel(false);
            }
        }
    }

    private static Frame.HttpResponse answer(SocketChannel channel, Frame.HttpRequest request)
            throws IOException, ProtocolException, ProblemException {
        FrameReader reader = new FrameReader();
        ByteBuffer buffer = ByteBuffer.allocate(READ_BYTES);
        while (true) {
            for (Frame.Envelope envelope = reader.next(); envelope != null; envelope = reader.next()) {
                if (envelope.frame() instanceof Frame.HttpResponse response && envelope.seq() == SEQ) {
                    return response;
                } else if (envelope.frame() instanceof Frame.Ping) {
                    write(channel, FrameCodec.encode(0, envelope.seq(), new Frame.Pong()));
                } else if (envelope.frame() instanceof Frame.Error error) {
                    LOG.warn("The daemon refuses a request of the web service: {}", error.message());
                    if (error.code() == ProtocolException.MALFORMED) {
                        throw unavailable("the daemon beside this broker is older than its shim: upgrade it");
                    }
                    throw unanswered(request, "the daemon beside this broker is busy or stops");
                }
            }
            if (channel.read(buffer.clear()) < 0) {
                throw new EOFException();
            }
            reader.feed(buffer.flip());
        }
    }

    private static void write(SocketChannel channel, ByteBuffer bytes) throws IOException {
        while (bytes.hasRemaining()) {
            channel.write(bytes);
        }
    }

    /**
     * True for a change that may move messages by a span, and by twice the span if repeated; {@code target} as
     * {@link ApiTarget} encodes it.
     */
    static boolean isOnce(String method, String target) {
        return method.equals("POST") && target.split("\\?", 2)[0].endsWith(RESCHEDULE);
    }

    /** The advice for a client without an answer. */
    static String again(String method, String target) {
        if (isOnce(method, target)) {
            return "it may be done or not, and messages/ID tells: do not ask again with by_ms, which may move twice; at_ms is safe";
        }
        return method.equals("POST") ? "it may be done or not; ask again, which is safe" : "ask again";
    }

    /** The error for a request that was sent: 503 would deny a change that may be done. */
    private static ProblemException unanswered(Frame.HttpRequest request, String why) {
        String detail = why + ": " + again(request.method(), request.target());
        return request.method().equals("POST") ? new ProblemException(504, "Gateway Timeout", detail) : unavailable(detail);
    }

    private static ProblemException unavailable(String detail) {
        return new ProblemException(503, "Service Unavailable", detail);
    }

    private static void close(SocketChannel channel) {
        try {
            channel.close();
        } catch (IOException e) {
            LOG.debug("A connection to the daemon could not be closed", e);
        }
    }

    /** Ends the threads once nothing is under way. */
    @Override
    public void close() {
        callers.shutdown();
        timer.shutdown();
    }
}
