package tidegate.pulsar.web;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Base64;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The Content-Security-Policy of a page: it loads and runs only its own style and script, named by their hashes, so markup in
 * a client's name has no effect. The daemon's own HTTP side sends the same.
 */
final class PagePolicy {
    static final String TYPE = "text/html";
    private static final Pattern INLINE = Pattern.compile("<(style|script)>(.*?)</\\1>", Pattern.DOTALL);

    private PagePolicy() {}

    static String of(byte[] page) {
        StringBuilder policy = new StringBuilder("default-src 'none'");
        Matcher inline = INLINE.matcher(new String(page, StandardCharsets.UTF_8));
        while (inline.find()) {
            policy.append("; ").append(inline.group(1)).append("-src 'sha256-").append(hash(inline.group(2))).append('\'');
        }
        return policy.append("; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'").toString();
    }

    private static String hash(String text) {
        try {
            byte[] digest = MessageDigest.getInstance("SHA-256").digest(text.getBytes(StandardCharsets.UTF_8));
            return Base64.getEncoder().encodeToString(digest);
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException("every JVM has SHA-256", e);
        }
    }
}
