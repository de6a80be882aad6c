package tidegate.pulsar.link;

import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import tidegate.pulsar.gate.TrackerCore;
import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.Frame.Envelope;
import tidegate.pulsar.wire.FrameCodec;
import tidegate.pulsar.wire.FrameReader;
import tidegate.pulsar.wire.ProtocolException;

/**
 * One connection to the daemon, without its socket: bytes and the (monotonic) time go in, bytes and calls of
 * {@link TrackerCore} come out. Greeting, heartbeats and stream numbers live here; the core knows a stream's meaning. A
 * failing core loses its stream and is noted; the others go on. Not thread-safe: only the link's thread drives it.
 */
public final class LinkSession {
    /** Above so many unsent bytes the session fetches no frames from the cores. */
    private static final long MAX_OUTPUT_BYTES = 8 * 1024 * 1024;

    private static final long GREETING_TIMEOUT_MS = 5000;
    /** How often to ask cores with unopened streams again: one refused by the daemon is not ready at once. */
    private static final long ASK_AGAIN_MS = 100;

    private interface Work<E extends Exception> {
        void run() throws E;
    }

    private final FrameReader reader = new FrameReader();
    private final Queue<ByteBuffer> output = new ArrayDeque<>();
    private final Map<Integer, TrackerCore> streams = new HashMap<>();
    private final Map<TrackerCore, Integer> ids = new LinkedHashMap<>();
    private final Set<TrackerCore> unopened = new LinkedHashSet<>();
    /** Unopened cores that may have become ready: asking takes their lock, so the session asks no others. */
    private final Set<TrackerCore> toAsk = new LinkedHashSet<>();
    private long askedAllMs;
    private final Set<TrackerCore> undrained = new HashSet<>();
    /** The failed cores, and the reasons. The session calls them no more. */
    private final Map<TrackerCore, Throwable> failed = new LinkedHashMap<>();
    /** The cores with streams given up by the daemon. They are opened again unless taken out. */
    private final Set<TrackerCore> refused = new LinkedHashSet<>();
    /** Answers from other threads: about index logs, cancellations and the pace. */
    private final Queue<Envelope> answers = new ConcurrentLinkedQueue<>();
    private final Runnable wake;
    private long outputBytes;
    private int lastStream;
    private Frame.Welcome welcome;
    private long lastReceivedMs;
    private long lastTickMs;
    private long silentMs;
    private long lastSentMs;

    /** {@code wake} makes {@link #tick} run soon; any thread may run it. */
    public LinkSession(String brokerName, String product, long nowMs, Runnable wake) {
        this.wake = wake;
        lastReceivedMs = nowMs;
        lastTickMs = nowMs;
        lastSentMs = nowMs;
        askedAllMs = nowMs;
        send(0, 0, new Frame.Hello(FrameCodec.VERSION_MIN, FrameCodec.VERSION, Frame.Hello.ROLE_BROKER, brokerName, product));
    }

    /** Null before the greeting. */
    Frame.Welcome welcome() {
        return welcome;
    }

    /** Takes in a tracker: its stream opens once the daemon has greeted. */
    void attach(TrackerCore core) {
        int stream = ++lastStream;
        streams.put(stream, core);
        ids.put(core, stream);
        expectOpen(core);
    }

    private void expectOpen(TrackerCore core) {
        unopened.add(core);
        toAsk.add(core);
    }

    void detach(TrackerCore core) {
        Integer stream = ids.remove(core);
        if (stream != null) {
            streams.remove(stream);
            unopened.remove(core);
            toAsk.remove(core);
            undrained.remove(core);
            refused.remove(core);
        }
    }

    /** Ends a core's stream at once, for the daemon too; frames still under way on it belong to nobody. */
    void abandon(TrackerCore core, String why) {
        Integer stream = ids.get(core);
        if (stream != null && !unopened.contains(core)) {
            send(stream, 0, new Frame.Error(ProtocolException.FAILED, why));
        }
        detach(core);
    }

    /** The cores that failed since the last call, and the reasons. The caller must abandon their streams. */
    Map<TrackerCore, Throwable> takeFailed() {
        Map<TrackerCore, Throwable> taken = new LinkedHashMap<>(failed);
        failed.clear();
        return taken;
    }

    /** The cores with streams given up by the daemon since the last call. */
    Set<TrackerCore> takeRefused() {
        Set<TrackerCore> taken = new LinkedHashSet<>(refused);
        refused.clear();
        return taken;
    }

    void framesWaiting(TrackerCore core) {
        if (ids.containsKey(core)) {
            undrained.add(core);
            if (unopened.contains(core)) {
                toAsk.add(core);
            }
        }
    }

    /** Reports the dispatchers that bypass the shim to a daemon that has greeted and is new enough. */
    void tell(Frame.Bypassed bypassed) {
        if (welcome != null && welcome.version() >= FrameCodec.VERSION_WITH_BYPASSED) {
            send(0, 0, bypassed);
        }
    }

    public void received(ByteBuffer bytes, long nowMs) throws ProtocolException {
        lastReceivedMs = nowMs;
        lastTickMs = nowMs;
        silentMs = 0;
        reader.feed(bytes);
        for (Envelope envelope; (envelope = reader.next()) != null; ) {
            handle(envelope);
        }
    }

    /** Opens streams and fetches frames where possible, and keeps the heartbeat. */
    public void tick(long nowMs) throws ProtocolException {
        if (welcome == null) {
            if (nowMs - lastReceivedMs > GREETING_TIMEOUT_MS) {
                throw new ProtocolException(0, "the daemon did not answer the greeting");
            }
            return;
        }
        // A standstill of this process, or a long frame, counts as one beat at most.
        silentMs += Math.min(nowMs - lastTickMs, welcome.heartbeatMs());
        lastTickMs = nowMs;
        if (silentMs > 3L * welcome.heartbeatMs()) {
            throw new ProtocolException(0, "the daemon has been silent for " + (nowMs - lastReceivedMs) + " ms");
        }
        for (Envelope answer; (answer = answers.poll()) != null; ) {
            send(answer.stream(), answer.seq(), answer.frame());
            TrackerCore core = streams.get(answer.stream());
            if (core != null && answer.frame() instanceof Frame.Paced paced) {
                contained(core, () -> core.paces().sent(paced));
            }
        }
        if (nowMs - askedAllMs >= ASK_AGAIN_MS) {
            askedAllMs = nowMs;
            toAsk.addAll(unopened);
        }
        for (TrackerCore core : List.copyOf(toAsk)) {
            toAsk.remove(core);
            contained(core, () -> {
                Frame.Open open = core.handler().open(welcome.version());
                if (open != null) {
                    unopened.remove(core);
                    send(ids.get(core), 0, open);
                    tellPace(core);
                }
            });
        }
        for (var i = undrained.iterator(); i.hasNext() && outputBytes < MAX_OUTPUT_BYTES; ) {
            TrackerCore core = i.next();
            i.remove();
            drain(core);
        }
        if (output.isEmpty() && nowMs - lastSentMs >= welcome.heartbeatMs() / 2) {
            send(0, 0, new Frame.Ping());
        }
    }

    /** Reports the pace: the daemon shows it from the start, and excuses late messages. */
    private void tellPace(TrackerCore core) {
        Frame.Paced paced = core.paces().tell();
        if (paced != null) {
            send(ids.get(core), 0, paced);
        }
    }

    void drain(TrackerCore core) {
        contained(core, () -> {
            for (Envelope envelope : core.handler().takeFrames(ids.get(core))) {
                send(envelope.stream(), envelope.seq(), envelope.frame());
            }
        });
    }

    /** The longest wait before {@link #tick}, in ms, if nothing else happens. */
    long idleMs(long nowMs) {
        if (welcome == null) {
            return GREETING_TIMEOUT_MS;
        }
        long untilPing = lastSentMs + welcome.heartbeatMs() / 2 - nowMs;
        return Math.max(1, unopened.isEmpty() ? untilPing : Math.min(untilPing, ASK_AGAIN_MS));
    }

    boolean hasUndrained() {
        return !undrained.isEmpty() && outputBytes < MAX_OUTPUT_BYTES;
    }

    /** The next bytes to write, or null; unwritten bytes of the buffer come next. */
    public ByteBuffer output() {
        return output.peek();
    }

    /** Call after each write, with the bytes written. */
    public void written(int bytes, long nowMs) {
        lastSentMs = nowMs;
        outputBytes -= bytes;
        while (!output.isEmpty() && !output.peek().hasRemaining()) {
            output.poll();
        }
    }

    /** True if the connection may end here without tearing a frame. */
    boolean isWhole() {
        return !reader.hasPartialFrame();
    }

    /** Queues an ERROR for the daemon; the caller writes it and closes. */
    void refuse(ProtocolException broken) {
        send(0, 0, new Frame.Error(broken.code(), broken.getMessage()));
    }

    private void handle(Envelope envelope) throws ProtocolException {
        Frame frame = envelope.frame();
        if (frame instanceof Frame.Error error && envelope.stream() == 0) {
            throw new ProtocolException(0, "the daemon says: " + error.message() + " (code " + error.code() + ")");
        }
        if (welcome == null) {
            if (!(frame instanceof Frame.Welcome greeting)) {
                throw new ProtocolException(ProtocolException.OUT_OF_ORDER, frame.name() + " came before WELCOME");
            }
            if (greeting.version() < FrameCodec.VERSION_MIN || greeting.version() > FrameCodec.VERSION) {
                throw new ProtocolException(ProtocolException.VERSION, "the daemon chose protocol version "
                        + greeting.version() + ", the shim speaks " + FrameCodec.VERSION_MIN + " to " + FrameCodec.VERSION
                        + ": upgrade both to the same Tidegate");
            }
            if (greeting.heartbeatMs() < 1) {
                throw ProtocolException.malformed("a heartbeat of " + greeting.heartbeatMs() + " ms");
            }
            welcome = greeting;
        } else if (frame instanceof Frame.Ping) {
            send(0, envelope.seq(), new Frame.Pong());
        } else if (!(frame instanceof Frame.Pong)) {
            TrackerCore core = streams.get(envelope.stream());
            // A stream closed here may still have frames under way.
            if (core != null) {
                contained(core, () -> handle(core, envelope));
            }
        }
    }

    /** Works for one core. If it fails, only its stream becomes unreliable. */
    private <E extends Exception> void contained(TrackerCore core, Work<E> work) throws E {
        if (failed.containsKey(core)) {
            return;
        }
        try {
            work.run();
        } catch (RuntimeException | Error e) {
            failed.put(core, e);
        }
    }

    private void handle(TrackerCore core, Envelope envelope) throws ProtocolException {
        Frame frame = envelope.frame();
        if (frame instanceof Frame.Held held) {
            core.handler().onHeld(held);
        } else if (frame instanceof Frame.Due due) {
            core.handler().onDue(due);
        } else if (frame instanceof Frame.Durable) {
            core.handler().onDurable(envelope.seq());
        } else if (frame instanceof Frame.Unheld unheld) {
            core.handler().onUnheld(unheld);
        } else if (frame instanceof Frame.Cancel cancel) {
            answer(envelope, core.handler().onCancel(cancel));
        } else if (frame instanceof Frame.Reschedule reschedule) {
            answer(envelope, core.handler().onReschedule(reschedule));
        } else if (frame instanceof Frame.Pace pace) {
            answer(envelope, core.paces().ask(pace));
        } else if (frame instanceof Frame.Peek peek) {
            answer(envelope, core.handler().onPeek(peek));
        } else if (frame instanceof Frame.Behind behind) {
            core.paces().behind(behind);
        } else if (frame instanceof Frame.LogRequest request) {
            answer(envelope, core.handler().onLogRequest(request));
        } else if (frame instanceof Frame.Error error) {
            core.handler().onStreamError(error.code(), error.message());
            expectOpen(core);
            refused.add(core);
        } else if (frame instanceof Frame.Close) {
            core.handler().onClosed();
            expectOpen(core);
        } else {
            throw ProtocolException.malformed("the daemon does not send " + frame.name());
        }
    }

    private void answer(Envelope request, CompletableFuture<? extends Frame> coming) {
        coming.thenAccept(answer -> {
            answers.add(new Envelope(request.stream(), request.seq(), answer));
            wake.run();
        });
    }

    private void send(int stream, long seq, Frame frame) {
        ByteBuffer bytes = FrameCodec.encode(stream, seq, frame);
        outputBytes += bytes.remaining();
        output.add(bytes);
    }
}
