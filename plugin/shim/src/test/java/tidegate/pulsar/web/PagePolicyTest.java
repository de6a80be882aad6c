package tidegate.pulsar.web;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.charset.StandardCharsets;
import org.junit.jupiter.api.Test;

/** The policy of a page. */
class PagePolicyTest {
    @Test
    void onlyThePagesOwnStyleAndScriptRun() {
        byte[] page = "<style>a</style><p onclick='no()'>é</p><script>é</script><script src='x'></script>".getBytes(StandardCharsets.UTF_8);
        assertEquals("default-src 'none'; style-src 'sha256-ypeBEsobvcr6wjGzmiPcTaeG7/gUfE5yuYB3ha/uSLs='; "
                + "script-src 'sha256-SplVfkAzw1Od4utlRyAXytX5VX96BiWgnxw/biumnEw='; connect-src 'self'; base-uri 'none'; "
                + "form-action 'none'; frame-ancestors 'none'", PagePolicy.of(page));
    }
}
