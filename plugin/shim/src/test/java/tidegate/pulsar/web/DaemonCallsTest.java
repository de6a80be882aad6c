package tidegate.pulsar.web;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import tidegate.pulsar.link.SocketPeer;
import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.FrameCodec;
import tidegate.pulsar.wire.FrameReader;
import tidegate.pulsar.wire.ProtocolException;

/** Calls to a daemon that the test plays itself, over a real Unix domain socket. */
@Timeout(30)
class DaemonCallsTest {
    private static final Frame.HttpRequest GET = request("GET");
    private static final Frame.Welcome WELCOME = new Frame.Welcome(FrameCodec.VERSION, 2000, 1, "tidegate");

    @TempDir
    Path directory;

    private Path socket;
    private ServerSocketChannel server;
    private final List<DaemonCalls> opened = new ArrayList<>();

    @BeforeEach
    void listen() throws IOException {
        socket = directory.resolve("d.sock");
        server = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
        server.bind(UnixDomainSocketAddress.of(socket));
    }

    @AfterEach
    void close() throws IOException {
        opened.forEach(DaemonCalls::close);
        server.close();
    }

    private static Frame.HttpRequest request(String method) {
        return new Frame.HttpRequest(method, "/tidegate/v1/persistent/a/b/c/d/tide", "role", ByteBuffer.allocate(0));
    }

    private DaemonCalls calls(long deadlineMs) {
        return calls(deadlineMs, new SocketPeer(SocketPeer::ownUserAndRoot));
    }

    private DaemonCalls calls(long deadlineMs, SocketPeer peer) {
        opened.add(new DaemonCalls(socket, peer, "pulsar", deadlineMs));
        return opened.get(opened.size() - 1);
    }

    private static Problem refusal(CompletableFuture<Frame.HttpResponse> call) {
        ExecutionException failure = assertThrows(ExecutionException.class, () -> call.get(20, TimeUnit.SECONDS));
        return assertInstanceOf(ProblemException.class, failure.getCause()).problem();
    }

    /** One accepted connection. */
    private static final class Client implements AutoCloseable {
        private final SocketChannel channel;
        private final FrameReader reader = new FrameReader();

        Client(SocketChannel channel) {
            this.channel = channel;
        }

        Frame.Envelope next() throws Exception {
            ByteBuffer buffer = ByteBuffer.allocate(4096);
            while (true) {
                Frame.Envelope envelope = reader.next();
                if (envelope != null) {
                    return envelope;
                }
                assertTrue(channel.read(buffer.clear()) >= 0, "the caller has closed");
                reader.feed(buffer.flip());
            }
        }

        void send(long seq, Frame frame) throws IOException {
            channel.write(FrameCodec.encode(0, seq, frame));
        }

        @Override
        public void close() throws IOException {
            channel.close();
        }
    }

    private Client accept() throws IOException {
        return new Client(server.accept());
    }

    @Test
    void aCallThatEndsByAnErrorHasAnAnswer() {
        DaemonCalls calls = calls(1_000, new SocketPeer(() -> {
            throw new OutOfMemoryError("played");
        }));
        ExecutionException failure = assertThrows(ExecutionException.class, () -> calls.call(GET).get(20, TimeUnit.SECONDS));
        assertInstanceOf(OutOfMemoryError.class, failure.getCause());
    }

    @Test
    void aRequestIsGreetedAskedAndAnswered() throws Exception {
        var call = calls(10_000).call(GET);
        try (Client client = accept()) {
            Frame.Hello hello = assertInstanceOf(Frame.Hello.class, client.next().frame());
            assertEquals(Frame.Hello.ROLE_CONTROL, hello.role());
            Frame.Envelope asked = client.next();
            assertEquals(GET, asked.frame());
            client.send(0, WELCOME);
            client.send(7, new Frame.Ping());
            assertEquals(new Frame.Envelope(0, 7, new Frame.Pong()), client.next());
            var answer = new Frame.HttpResponse(200, "application/json", ByteBuffer.wrap("{}".getBytes(StandardCharsets.UTF_8)));
            client.send(asked.seq() + 1, new Frame.HttpResponse(500, "", ByteBuffer.allocate(0)));
            client.send(asked.seq(), answer);
            assertEquals(answer, call.get());
        }
    }

    @Test
    void withoutADaemonItIsUnavailable() throws Exception {
        server.close();
        Problem problem = refusal(calls(10_000).call(GET));
        assertEquals(503, problem.status());
        assertTrue(problem.detail().contains("tidegate serve"), problem.detail());
        assertEquals("no-daemon", problem.more().get("reason"));
    }

    @Test
    void aDaemonThatDoesNotAnswerCostsItsTimeAndNoMore() throws Exception {
        var call = calls(300).call(request("POST"));
        try (Client client = accept()) {
            Problem problem = refusal(call);
            assertEquals(504, problem.status());
            assertTrue(problem.detail().contains("may be done or not"), problem.detail());
            assertInstanceOf(Frame.Hello.class, client.next().frame());
        }
    }

    @Test
    void aDaemonThatGoesAwayLeavesAChangeUndecided() throws Exception {
        var call = calls(10_000).call(request("POST"));
        try (Client client = accept()) {
            client.next();
            client.next();
        }
        Problem problem = refusal(call);
        assertEquals(504, problem.status());
        assertTrue(problem.detail().contains("may be done or not"), problem.detail());
    }

    /** The answer to a request that the daemon refuses with an ERROR frame. */
    private Problem refused(Frame.HttpRequest request, int code) throws Exception {
        var call = calls(10_000).call(request);
        try (Client client = accept()) {
            client.next();
            client.next();
            client.send(0, WELCOME);
            client.send(0, new Frame.Error(code, "the daemon is shutting down"));
            return refusal(call);
        }
    }

    @Test
    void aDaemonThatStopsLeavesAChangeUndecided() throws Exception {
        Problem stopped = refused(request("POST"), 9);
        assertEquals(504, stopped.status());
        assertTrue(stopped.detail().contains("may be done or not"), stopped.detail());
        assertEquals(503, refused(request("POST"), ProtocolException.MALFORMED).status());
        assertEquals(503, refused(GET, 9).status());
    }

    @Test
    void nobodyIsToldToRepeatAMoveByASpan() throws Exception {
        var move = new Frame.HttpRequest("POST", "/tidegate/v1/persistent/a/b/c/d/reschedule?x=1", "role", ByteBuffer.allocate(0));
        var slow = calls(300).call(move);
        try (Client client = accept()) {
            requireNotRepeated(refusal(slow));
            client.next();
        }
        var gone = calls(10_000).call(move);
        try (Client client = accept()) {
            client.next();
            client.next();
        }
        requireNotRepeated(refusal(gone));
        var stops = calls(10_000).call(move);
        try (Client client = accept()) {
            client.next();
            client.next();
            client.send(0, WELCOME);
            client.send(0, new Frame.Error(9, "the daemon is shutting down"));
            requireNotRepeated(refusal(stops));
        }
    }

    private static void requireNotRepeated(Problem problem) {
        assertTrue(problem.detail().contains("it may be done or not"), problem.detail());
        assertTrue(problem.detail().contains("do not ask again with by_ms"), problem.detail());
        assertTrue(problem.more().isEmpty());
    }

    @Test
    void onlyRescheduleIsAskedOnce() {
        String subscription = "/tidegate/v1/persistent/a/b/c/reschedule";
        assertTrue(DaemonCalls.isOnce("POST", subscription + "/reschedule"));
        for (String action : List.of("/cancel", "/release", "/pause")) {
            assertFalse(DaemonCalls.isOnce("POST", subscription + action));
            assertTrue(DaemonCalls.again("POST", subscription + action).contains("which is safe"));
        }
        assertEquals("ask again", DaemonCalls.again("GET", subscription + "/tide"));
    }

    @Test
    void anOlderDaemonIsNamedAsTheReason() throws Exception {
        var call = calls(10_000).call(GET);
        try (Client client = accept()) {
            client.next();
            client.next();
            client.send(0, WELCOME);
            client.send(0, new Frame.Error(2, "unknown frame type 0x23"));
            assertTrue(refusal(call).detail().contains("older"));
        }
    }

    @Test
    void bytesThatAreNoFrameAreRefused() throws Exception {
        var call = calls(10_000).call(GET);
        try (Client client = accept()) {
            client.channel.write(ByteBuffer.wrap("HTTP/1.1 200 OK\r\n\r\n".getBytes(StandardCharsets.US_ASCII)));
            assertEquals(503, refusal(call).status());
        }
    }

    @Test
    void aListenerOfAnotherUserIsToldNothing() throws Exception {
        var call = calls(10_000, new SocketPeer(Set::of)).call(GET);
        try (Client client = accept()) {
            assertEquals(503, refusal(call).status());
            assertEquals(-1, client.channel.read(ByteBuffer.allocate(1)));
        }
    }

    @Test
    void callsUnderWayAreBounded() throws Exception {
        DaemonCalls calls = calls(10_000);
        List<CompletableFuture<Frame.HttpResponse>> under = new ArrayList<>();
        for (int i = 0; i < DaemonCalls.MAX_CALLS; i++) {
            under.add(calls.call(GET));
        }
        Problem problem = refusal(calls.call(GET));
        assertEquals(503, problem.status());
        assertTrue(problem.detail().contains("too many"), problem.detail());
        for (int i = 0; i < DaemonCalls.MAX_CALLS; i++) {
            accept().close();
        }
        for (var one : under) {
            assertEquals(503, refusal(one).status());
        }
        var again = calls.call(GET);
        accept().close();
        assertEquals(503, refusal(again).status());
    }
}
