package tidegate.pulsar.web;

import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import tidegate.pulsar.wire.JsonText;

/**
 * An error as in RFC 9457 ({@code application/problem+json}); the daemon's own have the same members.
 *
 * @param detail one line that says what to do
 * @param more further members: numbers and texts
 */
public record Problem(int status, String title, String detail, Map<String, Object> more) {
    public static final String CONTENT_TYPE = "application/problem+json";

    public Problem(int status, String title, String detail) {
        this(status, title, detail, Map.of());
    }

    /** The same with one more member. */
    public Problem with(String name, int number) {
        return withMember(name, number);
    }

    /** The same with one more member. */
    public Problem with(String name, String text) {
        return withMember(name, text);
    }

    private Problem withMember(String name, Object value) {
        Map<String, Object> members = new TreeMap<>(more);
        members.put(name, value);
        return new Problem(status, title, detail, members);
    }

    byte[] json() {
        StringBuilder text = new StringBuilder("{\"type\":\"about:blank\",\"title\":");
        JsonText.quote(title, text);
        text.append(",\"status\":").append(status).append(",\"detail\":");
        JsonText.quote(detail, text);
        more.forEach((name, value) -> {
            text.append(",\"").append(name).append("\":");
            if (value instanceof Integer number) {
                text.append(number.intValue());
            } else {
                JsonText.quote((String) value, text);
            }
        });
        return text.append('}').toString().getBytes(StandardCharsets.UTF_8);
    }
}
