package tidegate.pulsar.web;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.charset.StandardCharsets;
import org.junit.jupiter.api.Test;

class ProblemTest {
    @Test
    void isOneObjectInAsciiWhateverItsText() {
        String detail = "no \"topic\" \\ has é\n\u2028\ud800";
        assertEquals("{\"type\":\"about:blank\",\"title\":\"Conflict\",\"status\":409,\"detail\":\"no \\\"topic\\\" \\\\ has \\u00e9"
                        + "\\u000a\\u2028\\ud800\",\"partitions\":4,\"reason\":\"\\u00e9\"}",
                new String(new Problem(409, "Conflict", detail).with("partitions", 4).with("reason", "é").json(),
                        StandardCharsets.US_ASCII));
    }
}
