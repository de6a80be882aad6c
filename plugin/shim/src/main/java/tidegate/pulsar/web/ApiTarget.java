package tidegate.pulsar.web;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;

/**
 * The names and the action in a request's path and query.
 *
 * <p>Invariant: splitting {@link #target} at {@code /} and decoding each part gives the same subscription again, so the
 * daemon serves the one that the broker has authorized.
 *
 * @param domain of the topic or namespace; empty, like the names below it, if the action does not concern it
 * @param topic of a segment of a scalable topic, both names with a slash between
 * @param subscription empty for an action on a topic, which is one segment below it
 * @param action the segments below the names, decoded; none for the page
 * @param query raw, without {@code authoritative}; empty for none
 * @param authoritative true if a broker has redirected the request, so that the next one decides about the topic's owner
 */
public record ApiTarget(Scope scope, String domain, String tenant, String namespace, String topic, Optional<String> subscription,
                        List<String> action, String query, boolean authoritative) {
    /** The subject of a request: nobody (page, description), this broker, or the names in the path. */
    public enum Scope { NOBODY, BROKER, NAMESPACE, TOPIC, SUBSCRIPTION }

    /** The path of the servlet's context. */
    public static final String BASE = "/tidegate";
    static final String PREFIX = BASE + "/v1/";
    static final int MAX_LENGTH = 32 * 1024;
    /** As in the protocol, for topics and subscriptions. */
    static final int MAX_NAME_BYTES = 8_192;

    /** The path of the page. */
    static final String PAGE = BASE + "/";
    private static final String DOMAIN = "persistent";
    /** Of the segments of Pulsar 5's scalable topics. */
    private static final String SEGMENT_DOMAIN = "segment";
    private static final String SCALABLE_DOMAIN = "topic";
    private static final String DESCRIPTION = "openapi.json";
    private static final Set<String> OF_BROKER = Set.of("tide", "status");
    private static final String OF_NAMESPACE = "tide";
    private static final String MESSAGES = "messages";
    private static final List<String> LOOK = List.of("GET", "HEAD");
    private static final List<String> CHANGE = List.of("POST");
    private static final List<String> LOOK_AND_CHANGE = List.of("GET", "HEAD", "POST");
    private static final Map<String, List<String>> OF_SUBSCRIPTION = Map.of("tide", LOOK, "waiting", LOOK, MESSAGES, LOOK,
            "cancel", CHANGE, "release", CHANGE, "reschedule", CHANGE, "pause", CHANGE, "resume", CHANGE);
    private static final String AUTHORITATIVE = "authoritative";
    private static final int TOPIC_END = 4;
    private static final int SEGMENT_END = 5;
    private static final int MAX_BELOW = 3;
    private static final String SHAPE = "ask for " + PREFIX + DOMAIN + "/TENANT/NAMESPACE/TOPIC/SUBSCRIPTION/tide, waiting, cancel, …";

    /**
     * Reads the path and the query in their percent-encoded form; {@code query} may be null.
     *
     * @throws ProblemException if they are not of this API
     */
    static ApiTarget parse(String path, String query) throws ProblemException {
        if (path.length() + (query == null ? 0 : query.length()) > MAX_LENGTH) {
            throw new ProblemException(414, "URI Too Long", "a path and its query have at most " + MAX_LENGTH + " characters");
        }
        if (path.equals(PAGE)) {
            return new ApiTarget(Scope.NOBODY, "", "", "", "", Optional.empty(), List.of(), "", false);
        }
        if (!path.startsWith(PREFIX)) {
            throw new ProblemException(404, "Not Found", SHAPE);
        }
        List<String> segments = new ArrayList<>();
        for (String segment : path.substring(PREFIX.length()).split("/", -1)) {
            segments.add(decoded(segment));
        }
        List<String> parameters = query == null || query.isEmpty() ? List.of() : Arrays.asList(query.split("&"));
        String rest = parameters.stream().filter(one -> !isAuthoritative(one)).collect(Collectors.joining("&"));
        if (segments.size() == 1 && (segments.get(0).equals(DESCRIPTION) || OF_BROKER.contains(segments.get(0)))) {
            Scope scope = segments.get(0).equals(DESCRIPTION) ? Scope.NOBODY : Scope.BROKER;
            return new ApiTarget(scope, "", "", "", "", Optional.empty(), List.copyOf(segments), rest, false);
        }
        String domain = segments.get(0);
        if (domain.equals(DOMAIN) && segments.size() == TOPIC_END && segments.get(TOPIC_END - 1).equals(OF_NAMESPACE)) {
            requireNames(segments, TOPIC_END - 1);
            return new ApiTarget(Scope.NAMESPACE, DOMAIN, segments.get(1), segments.get(2), "", Optional.empty(),
                    List.of(OF_NAMESPACE), rest, false);
        }
        if (domain.equals(SCALABLE_DOMAIN)) {
            throw new ProblemException(404, "Not Found", "a scalable topic's segments may be on many brokers: ask for each, "
                    + PREFIX + SEGMENT_DOMAIN + "/TENANT/NAMESPACE/TOPIC/SEGMENT/…");
        }
        int end = domain.equals(SEGMENT_DOMAIN) ? SEGMENT_END : TOPIC_END;
        int below = segments.size() - end;
        if (below < 1 || below > MAX_BELOW || !domain.equals(DOMAIN) && !domain.equals(SEGMENT_DOMAIN)) {
            throw new ProblemException(404, "Not Found", SHAPE);
        }
        requireNames(segments, end);
        boolean ofTopic = below == 1;
        return new ApiTarget(ofTopic ? Scope.TOPIC : Scope.SUBSCRIPTION, domain, segments.get(1), segments.get(2),
                String.join("/", segments.subList(TOPIC_END - 1, end)),
                ofTopic ? Optional.empty() : Optional.of(segments.get(end)),
                List.copyOf(segments.subList(ofTopic ? end : end + 1, segments.size())), rest,
                parameters.contains(AUTHORITATIVE + "=true"));
    }

    /** The methods at this path; all if it may be none, as the daemon knows. */
    List<String> methods() {
        String name = action.isEmpty() ? "" : action.get(0);
        return switch (scope) {
            case NOBODY, BROKER, NAMESPACE -> LOOK;
            case TOPIC -> name.equals(OF_NAMESPACE) ? LOOK : LOOK_AND_CHANGE;
            case SUBSCRIPTION -> action.size() != (name.equals(MESSAGES) ? 2 : 1) ? LOOK_AND_CHANGE
                    : OF_SUBSCRIPTION.getOrDefault(name, LOOK_AND_CHANGE);
        };
    }

    /** The topic's name in Pulsar. */
    public String topicName() {
        return domain + "://" + tenant + "/" + namespace + "/" + topic;
    }

    /** True if the topic is a segment of a scalable one. */
    public boolean isSegment() {
        return domain.equals(SEGMENT_DOMAIN);
    }

    /** {@code end}: behind the names that cannot have a slash. */
    private static void requireNames(List<String> segments, int end) throws ProblemException {
        for (String segment : segments) {
            if (segment.isEmpty()) {
                throw new ProblemException(400, "Bad Request", "the path has an empty name: " + SHAPE);
            }
            if (segment.getBytes(StandardCharsets.UTF_8).length > MAX_NAME_BYTES) {
                throw new ProblemException(400, "Bad Request", "a name has at most " + MAX_NAME_BYTES + " bytes");
            }
        }
        if (segments.subList(1, end).stream().anyMatch(name -> name.indexOf('/') >= 0)) {
            throw new ProblemException(400, "Bad Request", "no name of a tenant, namespace or topic has a /");
        }
    }

    private static boolean isAuthoritative(String parameter) {
        return parameter.equals(AUTHORITATIVE) || parameter.startsWith(AUTHORITATIVE + "=");
    }

    /** Path and query, encoded anew. */
    String target() {
        return path() + (query.isEmpty() ? "" : "?" + query);
    }

    /** The same request at another broker. */
    String location(String webServiceUrl, boolean decides) {
        String base = webServiceUrl.endsWith("/") ? webServiceUrl.substring(0, webServiceUrl.length() - 1) : webServiceUrl;
        return base + path() + "?" + (query.isEmpty() ? "" : query + "&") + AUTHORITATIVE + "=" + decides;
    }

    private String path() {
        if (action.isEmpty()) {
            return PAGE;
        }
        List<String> segments = new ArrayList<>();
        if (!tenant.isEmpty()) {
            segments.addAll(List.of(domain, tenant, namespace));
        }
        if (!topic.isEmpty()) {
            segments.addAll(List.of(topic.split("/", -1)));
        }
        subscription.ifPresent(segments::add);
        segments.addAll(action);
        return segments.stream().map(ApiTarget::encoded).collect(Collectors.joining("/", PREFIX, ""));
    }

    private static String encoded(String name) {
        if (name.equals(".") || name.equals("..")) {
            // A client would take them for steps in the path.
            return name.replace(".", "%2E");
        }
        StringBuilder out = new StringBuilder();
        for (byte one : name.getBytes(StandardCharsets.UTF_8)) {
            if (one >= '0' && one <= '9' || one >= 'A' && one <= 'Z' || one >= 'a' && one <= 'z' || "-_.~:".indexOf(one) >= 0) {
                out.append((char) one);
            } else {
                out.append(String.format("%%%02X", Byte.toUnsignedInt(one)));
            }
        }
        return out.toString();
    }

    /** Decodes; unlike {@link java.net.URLDecoder} it keeps a plus sign, and refuses bytes that are not UTF-8. */
    private static String decoded(String segment) throws ProblemException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream(segment.length());
        for (int i = 0; i < segment.length(); i++) {
            char one = segment.charAt(i);
            if (one > 0x7e || one < 0x21) {
                throw undecodable();
            }
            if (one != '%') {
                bytes.write(one);
                continue;
            }
            int high = i + 2 < segment.length() ? Character.digit(segment.charAt(i + 1), 16) : -1;
            int low = i + 2 < segment.length() ? Character.digit(segment.charAt(i + 2), 16) : -1;
            if (high < 0 || low < 0) {
                throw undecodable();
            }
            bytes.write(high << 4 | low);
            i += 2;
        }
        try {
            return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes.toByteArray())).toString();
        } catch (CharacterCodingException e) {
            throw undecodable();
        }
    }

    private static ProblemException undecodable() {
        return new ProblemException(400, "Bad Request", "the path is not percent-encoded UTF-8");
    }
}
