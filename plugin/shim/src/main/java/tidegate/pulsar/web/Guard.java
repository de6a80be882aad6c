package tidegate.pulsar.web;

import java.util.concurrent.CompletionStage;
import javax.servlet.http.HttpServletRequest;

/** Decides for the broker whether a request is served here, elsewhere, or not at all. */
public interface Guard {
    /** The decision. */
    sealed interface Verdict {}

    /** The daemon beside this broker answers it; {@code role} is empty without authentication. */
    record Serve(String role) implements Verdict {}

    /** Another broker answers it; {@code decides}: that broker decides about the topic's owner. */
    record Redirect(String webServiceUrl, boolean decides) implements Verdict {}

    /** No broker answers it. */
    record Refuse(Problem problem) implements Verdict {}

    /** {@code changes}: the request changes something. Uses {@code request} only before it returns. */
    CompletionStage<Verdict> decide(ApiTarget target, boolean changes, HttpServletRequest request);
}
