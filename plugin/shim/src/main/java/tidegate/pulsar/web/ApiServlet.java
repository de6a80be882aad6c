package tidegate.pulsar.web;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Locale;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Supplier;
import javax.servlet.AsyncContext;
import javax.servlet.AsyncEvent;
import javax.servlet.AsyncListener;
import javax.servlet.http.HttpServlet;
import javax.servlet.http.HttpServletRequest;
import javax.servlet.http.HttpServletResponse;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.wire.Frame;

/**
 * {@code /tidegate/v1/…} on the broker's web port, and the page at {@code /tidegate/}: the guard decides, and the daemon
 * beside the broker answers. The servlet knows the methods of each path, and that POST changes something.
 *
 * <p>Invariants: no thread of the web service waits here; bodies are bounded, and so are the requests under way, in all and
 * of each authenticated role; each request gets one answer, and nothing is begun or read after it.
 */
public final class ApiServlet extends HttpServlet {
    private static final Logger LOG = LoggerFactory.getLogger(ApiServlet.class);
    private static final long serialVersionUID = 1L;
    private static final int MAX_REQUESTS = DaemonCalls.MAX_CALLS;
    private static final String JSON = "application/json";

    private final transient Guard guard;
    private final transient DaemonCalls daemon;
    private final long deadlineMs;
    private final transient Semaphore room = new Semaphore(MAX_REQUESTS);
    private final transient RolePermits permits = new RolePermits();

    /** {@code deadlineMs} of a whole request; longer than the daemon's. */
    public ApiServlet(Guard guard, DaemonCalls daemon, long deadlineMs) {
        this.guard = guard;
        this.daemon = daemon;
        this.deadlineMs = deadlineMs;
    }

    @Override
    protected void service(HttpServletRequest request, HttpServletResponse response) throws IOException {
        if (!room.tryAcquire()) {
            answerNow(response, new Problem(503, "Service Unavailable", "too many requests are under way: ask again"), true);
            return;
        }
        Exchange exchange;
        try {
            AsyncContext context = request.startAsync();
            exchange = new Exchange(context, room::release);
            context.addListener(exchange);
            context.setTimeout(deadlineMs);
        } catch (RuntimeException e) {
            room.release();
            throw e;
        }
        exchange.answerWith(answer(request, exchange));
    }

    /** An answer to send. */
    private record Answer(int status, String contentType, byte[] body, String location) {
        static Answer of(Problem problem) {
            return new Answer(problem.status(), Problem.CONTENT_TYPE, problem.json(), null);
        }
    }

    private CompletionStage<Answer> answer(HttpServletRequest request, Exchange exchange) {
        try {
            ApiTarget target = ApiTarget.parse(request.getRequestURI(), request.getQueryString());
            exchange.isFor(target);
            boolean changes = changes(request, target);
            exchange.isOf(changes ? "POST" : "GET", target.target());
            return guard.decide(target, changes, request)
                    .thenCompose(verdict -> exchange.unlessAnswered(() -> carryOut(verdict, target, changes, request, exchange)));
        } catch (ProblemException | RuntimeException e) {
            return CompletableFuture.failedFuture(e);
        }
    }

    private static boolean changes(HttpServletRequest request, ApiTarget target) throws ProblemException {
        if (!target.methods().contains(request.getMethod())) {
            throw new ProblemException(405, "Method Not Allowed", String.join(" or ", target.methods()) + " is allowed here");
        }
        if (!request.getMethod().equals("POST")) {
            return false;
        }
        // A page of another origin can send other types without a preflight.
        String type = request.getContentType();
        if (type == null || !type.split(";", 2)[0].trim().toLowerCase(Locale.ROOT).equals(JSON)) {
            throw new ProblemException(415, "Unsupported Media Type", "send Content-Type: " + JSON);
        }
        if (request.getContentLengthLong() > RequestBody.MAX_BYTES) {
            throw RequestBody.tooLong();
        }
        return true;
    }

    private CompletionStage<Answer> carryOut(Guard.Verdict verdict, ApiTarget target, boolean changes, HttpServletRequest request,
                                             Exchange exchange) {
        if (verdict instanceof Guard.Refuse refused) {
            return CompletableFuture.completedFuture(Answer.of(refused.problem()));
        }
        if (verdict instanceof Guard.Redirect elsewhere) {
            String location = target.location(elsewhere.webServiceUrl(), elsewhere.decides());
            return CompletableFuture.completedFuture(new Answer(307, null, new byte[0], location));
        }
        String role = ((Guard.Serve) verdict).role();
        if (!permits.tryTake(role)) {
            exchange.isNotBegun();
            return CompletableFuture.failedFuture(new ProblemException(503, "Service Unavailable", "your role has "
                    + RolePermits.MAX_PER_ROLE + " requests under way at this broker: ask again, nothing was done"));
        }
        exchange.holds(() -> permits.giveBack(role));
        CompletionStage<ByteBuffer> body;
        try {
            body = changes ? RequestBody.of(request.getInputStream()) : CompletableFuture.completedFuture(ByteBuffer.allocate(0));
        } catch (IOException | IllegalStateException e) {
            return CompletableFuture.failedFuture(new ProblemException(400, "Bad Request", "the body cannot be read"));
        }
        return body.thenCompose(bytes -> exchange.unlessAnswered(() ->
                        exchange.until(daemon.call(new Frame.HttpRequest(changes ? "POST" : "GET", target.target(), role, bytes)))))
                .thenApply(told -> new Answer(told.status(), told.contentType(), array(told.body()), null));
    }

    private static byte[] array(ByteBuffer bytes) {
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        return copy;
    }

    private static Problem problem(Throwable failure) {
        Throwable cause = failure instanceof CompletionException && failure.getCause() != null ? failure.getCause() : failure;
        if (cause instanceof ProblemException known) {
            return known.problem();
        }
        LOG.warn("A request to Tidegate failed", cause);
        return new Problem(500, "Internal Server Error", "the broker's log has the reason: " + cause.getClass().getSimpleName());
    }

    private static void answerNow(HttpServletResponse response, Problem problem, boolean mayRepeat) throws IOException {
        setHead(response, Answer.of(problem), mayRepeat);
        response.getOutputStream().write(problem.json());
    }

    private static void setHead(HttpServletResponse response, Answer answer, boolean mayRepeat) {
        response.setStatus(answer.status());
        response.setContentLength(answer.body().length);
        response.setHeader("Cache-Control", "no-store");
        response.setHeader("X-Content-Type-Options", "nosniff");
        if (answer.contentType() != null) {
            response.setContentType(answer.contentType());
        }
        if (answer.contentType() != null && answer.contentType().startsWith(PagePolicy.TYPE)) {
            response.setHeader("Content-Security-Policy", PagePolicy.of(answer.body()));
            response.setHeader("Referrer-Policy", "no-referrer");
        }
        if (answer.location() != null) {
            response.setHeader("Location", answer.location());
        }
        if (answer.status() == 503 && mayRepeat) {
            response.setHeader("Retry-After", "1");
        }
    }

    /** One request under way. The first answer counts: the container's time-out may come together with the daemon's. */
    private static final class Exchange implements AsyncListener {
        private final AsyncContext context;
        private final Runnable over;
        private final AtomicBoolean ended = new AtomicBoolean();
        @GuardedBy("this")
        private boolean answered;
        private volatile String methods = "";
        private volatile boolean mayRepeat = true;
        private volatile String again = "ask again";
        @GuardedBy("this")
        private Runnable giveBack = () -> { };
        @GuardedBy("this")
        private CompletableFuture<?> call = CompletableFuture.completedFuture(null);

        Exchange(AsyncContext context, Runnable over) {
            this.context = context;
            this.over = over;
        }

        void isFor(ApiTarget target) {
            methods = String.join(", ", target.methods());
        }

        void isOf(String method, String target) {
            mayRepeat = !DaemonCalls.isOnce(method, target);
            again = DaemonCalls.again(method, target);
        }

        /** Notes that nothing was or will be done. */
        void isNotBegun() {
            mayRepeat = true;
        }

        /** Takes the role's place. Within {@link #unlessAnswered}, so before the end. */
        synchronized void holds(Runnable place) {
            giveBack = place;
        }

        /** Keeps the role's place until the daemon has answered: a gone client leaves a call under way. */
        synchronized <T> CompletableFuture<T> until(CompletableFuture<T> begun) {
            call = begun;
            return begun;
        }

        /** Does a part of the work, unless the answer is sent: the container then reuses the request. */
        synchronized <T> CompletionStage<T> unlessAnswered(Supplier<CompletionStage<T>> part) {
            return answered ? CompletableFuture.failedFuture(new ProblemException(504, "Gateway Timeout", "it was not begun"))
                    : part.get();
        }

        /** True at the first call only. */
        private synchronized boolean answers() {
            boolean first = !answered;
            answered = true;
            return first;
        }

        void answerWith(CompletionStage<Answer> answer) {
            answer.whenComplete((known, failure) -> send(failure == null ? known : Answer.of(problem(failure))));
        }

        private void send(Answer answer) {
            if (!answers()) {
                return;
            }
            try {
                HttpServletResponse response = (HttpServletResponse) context.getResponse();
                setHead(response, answer, mayRepeat);
                if (answer.status() == 405) {
                    response.setHeader("Allow", methods);
                }
                ResponseBody.send(context, answer.body());
            } catch (IOException | RuntimeException e) {
                LOG.debug("An answer could not be sent", e);
                context.complete();
            }
        }

        @Override
        public void onTimeout(AsyncEvent event) throws IOException {
            // Written at once: after this the container takes an incomplete request for a failed one.
            if (answers()) {
                answerNow((HttpServletResponse) context.getResponse(),
                        new Problem(504, "Gateway Timeout", "no answer in time: " + again), mayRepeat);
            }
            context.complete();
        }

        @Override
        public void onComplete(AsyncEvent event) {
            answers();
            end();
        }

        @Override
        public void onError(AsyncEvent event) {
            if (answers()) {
                context.complete();
            }
        }

        @Override
        public void onStartAsync(AsyncEvent event) {
            // Nobody starts it again.
        }

        private void end() {
            if (ended.compareAndSet(false, true)) {
                over.run();
                Runnable place;
                CompletableFuture<?> last;
                synchronized (this) {
                    place = giveBack;
                    last = call;
                }
                last.whenComplete((done, error) -> place.run());
            }
        }
    }
}
