package tidegate.pulsar.web;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Paths and queries as clients send them. */
class ApiTargetTest {
    private static final String SUBSCRIPTION = "/tidegate/v1/persistent/acme/shop/orders/sub";

    private static ApiTarget parse(String path) throws ProblemException {
        return ApiTarget.parse(path, null);
    }

    private static int refused(String path) {
        return assertThrows(ProblemException.class, () -> parse(path)).problem().status();
    }

    @Test
    void namesOfASubscriptionAndItsWish() throws ProblemException {
        ApiTarget target = parse(SUBSCRIPTION + "/messages/17:4711");
        assertEquals(new ApiTarget(ApiTarget.Scope.SUBSCRIPTION, "persistent", "acme", "shop", "orders",
                Optional.of("sub"), List.of("messages", "17:4711"), "", false), target);
        assertEquals(SUBSCRIPTION + "/messages/17:4711", target.target());
    }

    @Test
    void aWishOfOneSegmentBelowATopicIsOfTheTopic() throws ProblemException {
        ApiTarget target = parse("/tidegate/v1/persistent/acme/shop/orders/tide");
        assertEquals(Optional.empty(), target.subscription());
        assertEquals(List.of("tide"), target.action());
        assertEquals("/tidegate/v1/persistent/acme/shop/orders/tide", target.target());
    }

    @Test
    void aSegmentOfAScalableTopicHasOneNameMore() throws ProblemException {
        String path = "/tidegate/v1/segment/acme/shop/orders/0000-7fff-1/sub/tide";
        ApiTarget target = parse(path);
        assertEquals("segment://acme/shop/orders/0000-7fff-1", target.topicName());
        assertTrue(target.isSegment());
        assertEquals(Optional.of("sub"), target.subscription());
        assertEquals(path, target.target());
        assertEquals(ApiTarget.Scope.TOPIC, parse("/tidegate/v1/segment/acme/shop/orders/0000-7fff-1/tide").scope());
        assertEquals(400, refused("/tidegate/v1/segment/acme/shop/orders/a%2Fb/sub/tide"));
        assertEquals(400, refused("/tidegate/v1/segment/acme/shop/orders//sub/tide"));
        assertFalse(parse(SUBSCRIPTION + "/tide").isSegment());
    }

    @Test
    void otherWishesAreOfTheNamespaceTheBrokerOrNobody() throws ProblemException {
        ApiTarget namespace = ApiTarget.parse("/tidegate/v1/persistent/acme/shop/tide", "step_ms=1");
        assertEquals(new ApiTarget(ApiTarget.Scope.NAMESPACE, "persistent", "acme", "shop", "", Optional.empty(), List.of("tide"),
                "step_ms=1", false),
                namespace);
        assertEquals("/tidegate/v1/persistent/acme/shop/tide?step_ms=1", namespace.target());
        for (String path : List.of("tide", "status")) {
            assertEquals(ApiTarget.Scope.BROKER, parse("/tidegate/v1/" + path).scope());
            assertEquals("/tidegate/v1/" + path, parse("/tidegate/v1/" + path).target());
        }
        for (String path : List.of("/tidegate/", "/tidegate/v1/openapi.json")) {
            assertEquals(ApiTarget.Scope.NOBODY, parse(path).scope());
            assertEquals(path, parse(path).target());
        }
        assertEquals(400, refused("/tidegate/v1/persistent/a%2Fb/c/tide"));
        assertEquals(400, refused("/tidegate/v1/persistent//c/tide"));
    }

    @ParameterizedTest
    @CsvSource({"billing%2F%C3%A9,billing/é", "a+b,a+b", "%2e%2E,..", "100%25,100%", "a%3Fb%23c,a?b#c", "%F0%9F%8C%8A,🌊"})
    void encodedNamesAreDecodedAndEncodedAnew(String encoded, String name) throws ProblemException {
        ApiTarget target = parse("/tidegate/v1/persistent/acme/shop/orders/" + encoded + "/tide");
        assertEquals(Optional.of(name), target.subscription());
        String sent = target.target();
        assertFalse(sent.contains(".."), sent);
        assertEquals(target, parse(sent));
        assertEquals(9, sent.split("/", -1).length);
    }

    @ParameterizedTest
    @ValueSource(strings = {"/tidegate/v1/", "/tidegate/v2/persistent/a/b/c/d/tide", "/tidegate/v1/persistent/a/b/c",
        "/tidegate/v1/non-persistent/a/b/c/d/tide", "/tidegate/v1/persistent/a/b/c/d/e/f/g", "/tidegate/v1/tides", "/tidegate",
        "/tidegate/page", "/tidegate/v1/persistent/tide", "/tidegate/v1/segment/a/b/tide",
        "/tidegate/v1/segment/a/b/c/tide", "/tidegate/v1/topic/a/b/c/d/tide",
        "/tidegate/v1/PERSISTENT/a/b/c/d/tide", "/tidegate/v1/%70ersistent"})
    void otherPathsAreNotFound(String path) {
        assertEquals(404, refused(path));
    }

    @ParameterizedTest
    @ValueSource(strings = {"/tidegate/v1/persistent/a//c/d/tide", "/tidegate/v1/persistent/a/b/c/d/", "/tidegate/v1/persistent/a/b/c%2Fd/e/tide",
        "/tidegate/v1/persistent/a%2Fx/b/c/d/tide", "/tidegate/v1/persistent/a/b/c/%FF/tide", "/tidegate/v1/persistent/a/b/c/%C3/tide",
        "/tidegate/v1/persistent/a/b/c/%/tide", "/tidegate/v1/persistent/a/b/c/%4/tide", "/tidegate/v1/persistent/a/b/c/%zz/tide",
        "/tidegate/v1/persistent/a/b/c/é/tide", "/tidegate/v1/persistent/a/b/c/d e/tide"})
    void namesThatCannotBeAreBad(String path) {
        assertEquals(400, refused(path));
    }

    @Test
    void lengthsAreBounded() {
        assertEquals(400, refused("/tidegate/v1/persistent/a/b/c/" + "n".repeat(ApiTarget.MAX_NAME_BYTES + 1) + "/tide"));
        assertEquals(414, refused("/tidegate/v1/persistent/a/b/c/" + "n".repeat(ApiTarget.MAX_LENGTH) + "/tide"));
    }

    @Test
    void aRedirectHasTheSamePathAndQuery() throws ProblemException {
        ApiTarget target = ApiTarget.parse(SUBSCRIPTION + "/tide", "step_ms=60000&authoritative=true&span_ms=1");
        assertTrue(target.authoritative());
        assertEquals(SUBSCRIPTION + "/tide?step_ms=60000&span_ms=1", target.target());
        assertEquals("http://other:8080" + SUBSCRIPTION + "/tide?step_ms=60000&span_ms=1&authoritative=false",
                target.location("http://other:8080/", false));
        assertEquals("https://other:8443" + SUBSCRIPTION + "/tide?authoritative=true",
                parse(SUBSCRIPTION + "/tide").location("https://other:8443", true));
    }

    @Test
    void onlyTheWholeWordIsAuthoritative() throws ProblemException {
        assertFalse(ApiTarget.parse(SUBSCRIPTION + "/tide", "authoritative=false").authoritative());
        assertEquals(SUBSCRIPTION + "/tide?authoritatively=true", ApiTarget.parse(SUBSCRIPTION + "/tide", "authoritatively=true").target());
    }
}
