package tidegate.pulsar;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

/**
 * Tests which indexes are forgotten, and when; the test plays Pulsar and the daemon. On a real broker:
 * tests/broker/test_42_unasked.py.
 */
class UnaskedIndexesTest {
    private final UnaskedIndexes unasked = new UnaskedIndexes();
    private final List<CompletableFuture<Boolean>> forgotten = new ArrayList<>();
    private boolean gone;
    private boolean gated = true;
    private boolean connected = true;

    private final UnaskedIndexes.Subject subject = new UnaskedIndexes.Subject() {
        @Override
        public String name() {
            return "test";
        }

        @Override
        public boolean isGone() {
            return gone;
        }

        @Override
        public boolean isGated() {
            return gated;
        }
    };

    private final UnaskedIndexes.Forgetter daemon = new UnaskedIndexes.Forgetter() {
        @Override
        public boolean isConnected() {
            return connected;
        }

        @Override
        public CompletableFuture<Boolean> forget() {
            forgotten.add(new CompletableFuture<>());
            return forgotten.get(forgotten.size() - 1);
        }
    };

    private void look(int times) {
        for (int i = 0; i < times; i++) {
            unasked.look();
        }
    }

    @Test
    void whatIsGatedIsKept() {
        unasked.watch("key", subject, daemon);
        look(5);
        assertEquals(0, forgotten.size());
    }

    @Test
    void whatIsGatedNoMoreIsForgottenOnce() {
        unasked.watch("key", subject, daemon);
        gated = false;
        look(1);
        assertEquals(0, forgotten.size(), "at the first look, which may be amid a change");
        look(3);
        assertEquals(1, forgotten.size());
        forgotten.get(0).complete(true);
        look(3);
        assertEquals(1, forgotten.size());
    }

    @Test
    void whatIsUngatedForAMomentIsKept() {
        unasked.watch("key", subject, daemon);
        for (int i = 0; i < 5; i++) {
            gated = !gated;
            look(1);
        }
        assertEquals(0, forgotten.size());
    }

    @Test
    void whatIsGatedAgainAndThenNoMoreIsForgottenAgain() {
        unasked.watch("key", subject, daemon);
        gated = false;
        look(2);
        forgotten.get(0).complete(true);
        gated = true;
        look(2);
        gated = false;
        look(2);
        assertEquals(2, forgotten.size());
    }

    @Test
    void itIsTriedAgainUntilTheDaemonHasForgotten() {
        unasked.watch("key", subject, daemon);
        gated = false;
        connected = false;
        look(5);
        assertEquals(0, forgotten.size());
        connected = true;
        look(1);
        forgotten.get(0).complete(false);
        look(1);
        forgotten.get(1).completeExceptionally(new IllegalStateException("broken"));
        look(1);
        assertEquals(3, forgotten.size());
        forgotten.get(2).complete(true);
        look(3);
        assertEquals(3, forgotten.size());
    }

    @Test
    void whatTheBrokerDoesNotHaveAnyMoreIsNotLookedAt() {
        unasked.watch("key", subject, daemon);
        gone = true;
        gated = false;
        look(3);
        assertEquals(0, forgotten.size());
        assertEquals(0, unasked.size());
    }

    /** Pulsar may make the tracker before it tells that the topic is loaded. */
    @Test
    void whatIsKnownOfATrackerStays() {
        unasked.watch("key", subject, daemon);
        unasked.watchNew("key", new UnaskedIndexes.Subject() {
            @Override
            public String name() {
                return "another";
            }

            @Override
            public boolean isGone() {
                return false;
            }

            @Override
            public boolean isGated() {
                return false;
            }
        }, daemon);
        look(3);
        assertEquals(0, forgotten.size());
    }
}
