package tidegate.pulsar.link;

import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import java.util.Optional;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.gate.TrackerCore;
import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.ProtocolException;

/**
 * The broker's one connection to the daemon: a thread that connects, reconnects with backoff and jitter, and moves bytes
 * between the socket and a {@link LinkSession}. Dispatcher threads never touch the socket: they leave a note in a queue, and
 * the link fetches the frames at most every {@link #DRAIN_INTERVAL_NS}, so that one frame carries many entries.
 */
public final class DaemonLink implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(DaemonLink.class);
    private static final long DRAIN_INTERVAL_NS = TimeUnit.MILLISECONDS.toNanos(1);
    private static final long FIRST_BACKOFF_MS = 20;
    private static final long MAX_BACKOFF_MS = 500;
    private static final long IDLE_MS = 1000;
    private static final long UNNAMED_MS = 20;
    private static final int READ_BYTES = 256 * 1024;

    /** A snapshot of the connection for metrics. */
    public record Stats(boolean connected, long reconnects, long bytesIn, long bytesOut) {}

    private final Path socket;
    private final SocketPeer peer;
    private final Supplier<Optional<String>> brokerName;
    private final String product;
    private final Thread thread;
    private final Selector selector;
    private final Queue<Runnable> commands = new ConcurrentLinkedQueue<>();
    private final Queue<TrackerCore> waiting = new ConcurrentLinkedQueue<>();
    private final CountDownLatch drained = new CountDownLatch(1);

    // For the link's thread only.
    private final TrackerTable trackers = new TrackerTable();
    private final ByteBuffer readBuffer = ByteBuffer.allocateDirect(READ_BYTES);
    private SocketChannel channel;
    private long nextDrainNs;
    private long nextConnectNs = System.nanoTime();
    private int failures;
    private boolean lossLogged;
    private boolean strangerLogged;
    private Frame.Bypassed bypassed = Frame.Bypassed.NOTHING;

    private volatile boolean running = true;
    private volatile boolean draining;
    private volatile boolean connected;
    private volatile boolean asleep;
    private volatile long connections;
    private volatile long bytesIn;
    private volatile long bytesOut;

    /**
     * {@code peer} decides whether a process may be the daemon. Before each connection the link's thread asks for
     * {@code brokerName}, and waits for a name.
     */
    public DaemonLink(Path socket, SocketPeer peer, Supplier<Optional<String>> brokerName, String product) throws IOException {
        this.socket = socket;
        this.peer = peer;
        this.brokerName = brokerName;
        this.product = product;
        selector = Selector.open();
        thread = new Thread(this::run, "tidegate-link");
        thread.setDaemon(true);
    }

    public void start() {
        thread.start();
    }

    public boolean isConnected() {
        return connected;
    }

    public Stats stats() {
        return new Stats(connected, Math.max(0, connections - 1), bytesIn, bytesOut);
    }

    /** As {@link TrackerTable#register}. */
    public void register(TrackerCore core) {
        submit(() -> trackers.register(core));
    }

    /** Notes that the core has frames to send. Any thread; cheap while the link is awake. */
    public void framesWaiting(TrackerCore core) {
        waiting.add(core);
        wake();
    }

    /** Reports the dispatchers that bypass the shim, now and after each connection. Any thread. */
    public void bypassed(Frame.Bypassed now) {
        submit(() -> {
            bypassed = now;
            if (trackers.session() != null) {
                trackers.session().tell(now);
            }
        });
    }

    int unreadNotes() {
        return waiting.size();
    }

    private void submit(Runnable command) {
        commands.add(command);
        wake();
    }

    private void wake() {
        if (asleep) {
            selector.wakeup();
        }
    }

    /** Ends every tracker, waits so long until the daemon has everything on disk, and stops the thread. */
    public void close(long timeoutMs) {
        submit(() -> {
            draining = true;
            trackers.finishAll();
        });
        try {
            if (!drained.await(timeoutMs, TimeUnit.MILLISECONDS)) {
                LOG.warn("The daemon did not confirm everything within {} ms: some acknowledged messages may be delivered"
                        + " again", timeoutMs);
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        close();
    }

    /** Stops the thread at once. */
    @Override
    public void close() {
        running = false;
        selector.wakeup();
        try {
            thread.join(TimeUnit.SECONDS.toMillis(2));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void run() {
        try {
            while (running) {
                try {
                    step();
                } catch (IOException | ProtocolException e) {
                    lose(e);
                } catch (Throwable e) {
                    LOG.error("The link to the Tidegate daemon failed unexpectedly; connecting again", e);
                    lose(e);
                    // A fault of every step, even without a connection, must not take a whole core.
                    LockSupport.parkNanos(nextConnectNs - System.nanoTime());
                }
            }
        } finally {
            closeChannel();
            closeQuietly(selector);
        }
    }

    /** One round: does everything possible now, then waits for the socket, a command or the time. */
    private void step() throws IOException, ProtocolException {
        for (Runnable command; (command = commands.poll()) != null; ) {
            command.run();
        }
        for (TrackerCore core; (core = waiting.poll()) != null; ) {
            // Without a connection the core's frames wait: after HELD each tracker notes them again.
            trackers.framesWaiting(core);
        }
        trackers.restartFailed(monotonicMs());
        trackers.forgetClosed(monotonicMs());
        if (draining && trackers.isEmpty()) {
            drained.countDown();
        }
        LinkSession session = trackers.session();
        if (session == null) {
            long waitMs = TimeUnit.NANOSECONDS.toMillis(nextConnectNs - System.nanoTime());
            if (waitMs > 0) {
                sleep(waitMs);
            } else {
                connect();
            }
            return;
        }
        long waitMs = tick(session);
        write(session);
        SelectionKey key = channel.keyFor(selector);
        key.interestOps(session.output() == null ? SelectionKey.OP_READ : SelectionKey.OP_READ | SelectionKey.OP_WRITE);
        sleep(waitMs);
        // An unselected key keeps its former ready set.
        boolean readable = selector.selectedKeys().contains(key) && key.isReadable();
        selector.selectedKeys().clear();
        if (readable) {
            read(session);
        }
    }

    /** For durations alone: the wall clock may be set. */
    private static long monotonicMs() {
        return TimeUnit.NANOSECONDS.toMillis(System.nanoTime());
    }

    /** Lets the session send its frames; returns the longest wait in ms. */
    private long tick(LinkSession session) throws ProtocolException {
        long nowMs = monotonicMs();
        long nowNs = System.nanoTime();
        if (session.hasUndrained() && nowNs < nextDrainNs) {
            return 1;
        }
        if (session.hasUndrained()) {
            nextDrainNs = nowNs + DRAIN_INTERVAL_NS;
        }
        if (session.welcome() != null && !connected) {
            onConnected(session.welcome());
            if (bypassed.dispatchers() > 0) {
                session.tell(bypassed);
            }
        }
        session.tick(nowMs);
        return session.idleMs(nowMs);
    }

    private void onConnected(Frame.Welcome welcome) {
        connected = true;
        connections++;
        failures = 0;
        lossLogged = false;
        strangerLogged = false;
        LOG.info("Connected to the Tidegate daemon ({}) at {}, protocol version {}", welcome.product(), socket,
                welcome.version());
    }

    private void connect() throws IOException {
        Optional<String> name = brokerName.get();
        if (name.isEmpty()) {
            nextConnectNs = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(UNNAMED_MS);
            return;
        }
        channel = SocketChannel.open(StandardProtocolFamily.UNIX);
        channel.configureBlocking(false);
        // A blocking connect would wait for a frozen process, and delay the commands.
        if (!channel.connect(UnixDomainSocketAddress.of(socket))) {
            throw new IOException("the daemon accepts no connection");
        }
        peer.check(channel);
        channel.register(selector, SelectionKey.OP_READ);
        trackers.connected(new LinkSession(name.get(), product, monotonicMs(), () -> submit(() -> {})));
    }

    private void write(LinkSession session) throws IOException {
        for (ByteBuffer bytes; (bytes = session.output()) != null; ) {
            int written = channel.write(bytes);
            bytesOut += written;
            session.written(written, monotonicMs());
            if (bytes.hasRemaining()) {
                return;
            }
        }
    }

    private void read(LinkSession session) throws IOException, ProtocolException {
        readBuffer.clear();
        int count = channel.read(readBuffer);
        if (count < 0) {
            throw new IOException(session.isWhole() ? "the daemon closed the connection"
                    : "the connection ended inside a frame");
        }
        bytesIn += count;
        session.received(readBuffer.flip(), monotonicMs());
    }

    private void sleep(long timeoutMs) throws IOException {
        asleep = true;
        try {
            // A command queued before `asleep` was set has not woken the selector.
            if (!commands.isEmpty()) {
                selector.selectNow();
            } else if (!waiting.isEmpty() && trackers.session() != null) {
                selector.select(1);
            } else {
                selector.select(Math.max(1, Math.min(timeoutMs, IDLE_MS)));
            }
        } finally {
            asleep = false;
        }
    }

    private long backoffMs() {
        long limit = Math.min(MAX_BACKOFF_MS, FIRST_BACKOFF_MS << Math.min(failures, 10));
        return ThreadLocalRandom.current().nextLong(limit / 2, limit + 1);
    }

    /** Drops the connection in any state; throws nothing that would end the thread. */
    private void lose(Throwable cause) {
        LinkSession session = trackers.session();
        if (cause instanceof ProtocolException broken && broken.code() != 0 && session != null) {
            try {
                session.refuse(broken);
                write(session);
            } catch (IOException | RuntimeException e) {
                LOG.debug("The daemon was gone before it got the ERROR", e);
            }
        }
        closeChannel();
        connected = false;
        nextConnectNs = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(backoffMs());
        failures++;
        if (cause instanceof SocketPeer.UntrustedException && !strangerLogged) {
            // It may come long after the loss of the connection, which has its own log line.
            strangerLogged = true;
            LOG.error("The listener at {} is not the Tidegate daemon: {}", socket, cause.getMessage());
        } else if (!lossLogged) {
            lossLogged = true;
            LOG.warn("No connection to the Tidegate daemon at {}: {}. Delayed messages stay gated in memory; connecting"
                    + " again", socket, cause.getMessage() == null ? cause.toString() : cause.getMessage());
        }
        trackers.lost();
    }

    private void closeChannel() {
        if (channel != null) {
            closeQuietly(channel);
            channel = null;
        }
    }

    private static void closeQuietly(java.io.Closeable resource) {
        try {
            resource.close();
        } catch (IOException e) {
            LOG.debug("Closing failed", e);
        }
    }
}
