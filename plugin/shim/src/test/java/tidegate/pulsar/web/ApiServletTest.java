package tidegate.pulsar.web;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.lang.reflect.Proxy;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.ServerSocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import javax.servlet.AsyncContext;
import javax.servlet.AsyncEvent;
import javax.servlet.AsyncListener;
import javax.servlet.ReadListener;
import javax.servlet.ServletInputStream;
import javax.servlet.ServletOutputStream;
import javax.servlet.WriteListener;
import javax.servlet.http.HttpServletRequest;
import javax.servlet.http.HttpServletResponse;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import tidegate.pulsar.link.SocketPeer;

/** The servlet in a container that the test plays, with no daemon beside the broker. */
@Timeout(30)
class ApiServletTest {
    private static final String SUBSCRIPTION = "/tidegate/v1/persistent/a/b/c/d/";

    @TempDir
    Path directory;

    private CompletableFuture<Guard.Verdict> verdict = new CompletableFuture<>();
    private DaemonCalls calls;
    private ApiServlet servlet;

    @BeforeEach
    void serve() {
        calls = new DaemonCalls(directory.resolve("d.sock"), new SocketPeer(SocketPeer::ownUserAndRoot), "pulsar", 10_000);
        servlet = new ApiServlet((target, changes, request) -> verdict, calls, 60_000);
    }

    /** A request of the role, the body of which is still to come. */
    private Exchange waiting(String role) throws IOException {
        verdict = CompletableFuture.completedFuture(new Guard.Serve(role));
        Exchange exchange = new Exchange("cancel");
        exchange.bodyWaits = true;
        servlet.service(exchange.request(), exchange.response());
        return exchange;
    }

    private static void end(Exchange exchange) throws IOException {
        exchange.listener.onTimeout(new AsyncEvent(exchange.context()));
    }

    @Test
    void oneRoleCannotTakeThePlacesOfAnother() throws Exception {
        List<Exchange> greedy = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
            greedy.add(waiting("greedy"));
        }
        for (int i = 0; i < 32; i++) {
            Exchange refused = waiting("greedy");
            assertEquals(503, refused.status);
            assertEquals("1", refused.headers.get("Retry-After"));
            assertTrue(refused.text().contains("your role has 8 requests under way"), refused.text());
            assertFalse(refused.bodyTaken);
        }
        assertTrue(greedy.stream().allMatch(one -> one.status == 0 && one.bodyTaken));
        List<Exchange> others = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
            others.add(waiting("other"));
        }
        assertTrue(others.stream().allMatch(one -> one.status == 0 && one.bodyTaken));
        end(greedy.get(0));
        assertEquals(0, waiting("greedy").status, "a place is free again");
        assertEquals(503, waiting("greedy").status, "only one");
    }

    @Test
    void aRefusedMoveMayBeRepeatedAsNothingWasDone() throws Exception {
        for (int i = 0; i < 8; i++) {
            waiting("greedy");
        }
        Exchange move = new Exchange("reschedule");
        servlet.service(move.request(), move.response());
        assertEquals(503, move.status);
        assertEquals("1", move.headers.get("Retry-After"));
    }

    @Test
    void withoutAuthenticationAllPlacesAreForAll() throws Exception {
        List<Exchange> all = new ArrayList<>();
        for (int i = 0; i < 32; i++) {
            all.add(waiting(""));
        }
        assertTrue(all.stream().allMatch(one -> one.status == 0 && one.bodyTaken));
        Exchange refused = waiting("");
        assertEquals(503, refused.status);
        assertTrue(refused.text().contains("too many requests are under way"), refused.text());
        end(all.get(0));
        assertEquals(0, waiting("").status);
    }

    /** The client has gone, and the daemon still works: a role that goes and comes back would hold all connections to it. */
    @Test
    void aRoleHoldsItsPlacesUntilTheDaemonHasAnswered() throws Exception {
        try (ServerSocketChannel daemon = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
            daemon.bind(UnixDomainSocketAddress.of(directory.resolve("d.sock")));
            List<Exchange> gone = new ArrayList<>();
            for (int i = 0; i < 8; i++) {
                Exchange exchange = waiting("greedy");
                exchange.input.listener.onDataAvailable();
                exchange.input.listener.onAllDataRead();
                gone.add(exchange);
            }
            for (Exchange exchange : gone) {
                end(exchange);
            }
            assertEquals(503, waiting("greedy").status);
            assertEquals(0, waiting("other").status);
        }
        // The daemon ends, and its connections with it.
        while (waiting("greedy").status == 503) {
            Thread.sleep(10);
        }
    }

    @AfterEach
    void close() {
        calls.close();
    }

    @Test
    void aChangeThatWasAnsweredBeforeItBeganIsNotBegun() throws Exception {
        Exchange exchange = new Exchange("cancel");
        servlet.service(exchange.request(), exchange.response());
        exchange.listener.onTimeout(new AsyncEvent(exchange.context()));
        assertEquals(504, exchange.status);
        verdict.complete(new Guard.Serve("role"));
        assertFalse(exchange.bodyTaken, "the container may have given the request to another one");
    }

    @Test
    void aBodyThatEndsBehindTheTimeOutIsNotCarriedOut() throws Exception {
        verdict.complete(new Guard.Serve("role"));
        Exchange exchange = new Exchange("cancel");
        exchange.bodyWaits = true;
        servlet.service(exchange.request(), exchange.response());
        exchange.listener.onTimeout(new AsyncEvent(exchange.context()));
        exchange.input.listener.onDataAvailable();
        Set<Thread> before = callers();
        exchange.input.listener.onAllDataRead();
        Set<Thread> begun = callers();
        begun.removeAll(before);
        assertEquals(Set.of(), begun);
        assertEquals(504, exchange.status);
    }

    /** Threads that have asked a daemon, or are about to. */
    private static Set<Thread> callers() {
        return Thread.getAllStackTraces().keySet().stream().filter(one -> one.getName().equals("tidegate-web"))
                .collect(Collectors.toCollection(HashSet::new));
    }

    @Test
    void onlyWhatIsSafeToRepeatIsAskedForAgain() throws Exception {
        verdict.complete(new Guard.Serve("role"));
        Exchange cancel = answered("cancel");
        assertEquals(503, cancel.status);
        assertEquals("1", cancel.headers.get("Retry-After"));
        assertTrue(cancel.text().contains("\"reason\":\"no-daemon\""), cancel.text());
        Exchange move = answered("reschedul%65");
        assertEquals(503, move.status);
        assertNull(move.headers.get("Retry-After"));
    }

    @Test
    void anotherMethodHearsThoseOfItsPath() throws Exception {
        for (Map.Entry<String, String> one : Map.of("cancel", "POST", "tide", "GET, HEAD", "messages/1:2", "GET, HEAD",
                "pace", "GET, HEAD, POST", "cancel/it", "GET, HEAD, POST").entrySet()) {
            Exchange exchange = answered("DELETE", one.getKey());
            assertEquals(405, exchange.status);
            assertEquals(one.getValue(), exchange.headers.get("Allow"));
            assertTrue(exchange.text().contains(one.getValue().replace(", ", " or ") + " is allowed here"), exchange.text());
        }
        assertEquals("POST", answered("GET", "release").headers.get("Allow"));
        assertEquals("GET, HEAD", answered("POST", "waiting").headers.get("Allow"));
    }

    private Exchange answered(String action) throws Exception {
        return answered("POST", action);
    }

    private Exchange answered(String method, String action) throws Exception {
        Exchange exchange = new Exchange(action);
        exchange.method = method;
        servlet.service(exchange.request(), exchange.response());
        assertTrue(exchange.complete.await(20, TimeUnit.SECONDS));
        return exchange;
    }

    @Test
    void theTimeOutOfAMoveDoesNotSayAskAgain() throws Exception {
        Exchange move = new Exchange("reschedule");
        servlet.service(move.request(), move.response());
        move.listener.onTimeout(new AsyncEvent(move.context()));
        assertEquals(504, move.status);
        assertTrue(move.text().contains("do not ask again with by_ms"), move.text());
        Exchange cancel = new Exchange("cancel");
        servlet.service(cancel.request(), cancel.response());
        cancel.listener.onTimeout(new AsyncEvent(cancel.context()));
        assertTrue(cancel.text().contains("ask again, which is safe"), cancel.text());
    }

    /** A request to change something, and what the servlet does with it. */
    private static final class Exchange {
        private final String action;
        private String method = "POST";
        private final Map<String, String> headers = new HashMap<>();
        private final ByteArrayOutputStream sent = new ByteArrayOutputStream();
        private final CountDownLatch complete = new CountDownLatch(1);
        private AsyncListener listener;
        private Body input;
        private volatile int status;
        private boolean bodyTaken;
        private boolean bodyWaits;

        Exchange(String action) {
            this.action = action;
        }

        String text() {
            return sent.toString(StandardCharsets.UTF_8);
        }

        HttpServletRequest request() {
            return played(HttpServletRequest.class, (name, arguments) -> switch (name) {
                case "getMethod" -> method;
                case "getRequestURI" -> SUBSCRIPTION + action;
                case "getContentType" -> "application/json";
                case "getContentLengthLong" -> 2L;
                case "startAsync" -> context();
                case "getInputStream" -> {
                    bodyTaken = true;
                    input = new Body(bodyWaits);
                    yield input;
                }
                default -> null;
            });
        }

        AsyncContext context() {
            return played(AsyncContext.class, (name, arguments) -> {
                if (name.equals("addListener")) {
                    listener = (AsyncListener) arguments[0];
                } else if (name.equals("complete")) {
                    listener.onComplete(new AsyncEvent(context()));
                    complete.countDown();
                }
                return name.equals("getResponse") ? response() : null;
            });
        }

        HttpServletResponse response() {
            return played(HttpServletResponse.class, (name, arguments) -> {
                if (name.equals("setStatus")) {
                    status = (int) arguments[0];
                } else if (name.equals("setHeader")) {
                    headers.put((String) arguments[0], (String) arguments[1]);
                }
                return name.equals("getOutputStream") ? new Output(sent) : null;
            });
        }
    }

    private interface Answers {
        Object of(String method, Object[] arguments) throws IOException;
    }

    private static <T> T played(Class<T> type, Answers answers) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type},
                (proxy, method, arguments) -> answers.of(method.getName(), arguments)));
    }

    private static final class Body extends ServletInputStream {
        private final ByteArrayInputStream bytes = new ByteArrayInputStream("{}".getBytes(StandardCharsets.UTF_8));
        private final boolean waits;
        private ReadListener listener;

        Body(boolean waits) {
            this.waits = waits;
        }

        @Override
        public boolean isFinished() {
            return bytes.available() == 0;
        }

        @Override
        public boolean isReady() {
            return true;
        }

        @Override
        public void setReadListener(ReadListener reader) {
            listener = reader;
            if (waits) {
                return;
            }
            try {
                reader.onDataAvailable();
                reader.onAllDataRead();
            } catch (IOException e) {
                throw new AssertionError(e);
            }
        }

        @Override
        public int read() {
            return bytes.read();
        }
    }

    private static final class Output extends ServletOutputStream {
        private final ByteArrayOutputStream sent;

        Output(ByteArrayOutputStream sent) {
            this.sent = sent;
        }

        @Override
        public boolean isReady() {
            return true;
        }

        @Override
        public void setWriteListener(WriteListener writer) {
            try {
                writer.onWritePossible();
            } catch (IOException e) {
                throw new AssertionError(e);
            }
        }

        @Override
        public void write(int one) {
            sent.write(one);
        }
    }
}
