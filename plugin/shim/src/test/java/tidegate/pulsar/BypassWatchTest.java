package tidegate.pulsar;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import tidegate.pulsar.wire.Frame;

/** Finds and reports dispatchers whose tracker is not ours. */
class BypassWatchTest {
    private static final class Toy implements BypassWatch.Watched {
        final String topic;
        long delayed;
        String reason;
        int asked;

        Toy(String topic, long delayed, String reason) {
            this.topic = topic;
            this.delayed = delayed;
            this.reason = reason;
        }

        @Override
        public Object identity() {
            return this;
        }

        @Override
        public String topic() {
            return topic;
        }

        @Override
        public String subscription() {
            return "sub";
        }

        @Override
        public long delayed() {
            asked++;
            return delayed;
        }

        @Override
        public Optional<String> bypass() {
            return Optional.ofNullable(reason);
        }
    }

    private final List<Toy> dispatchers = new ArrayList<>();
    private final List<Frame.Bypassed> told = new ArrayList<>();
    private final BypassWatch watch = new BypassWatch(this::all, told::add);

    private Iterator<Toy> all() {
        return List.copyOf(dispatchers).iterator();
    }

    private Toy add(String topic, long delayed, String reason) {
        Toy toy = new Toy(topic, delayed, reason);
        dispatchers.add(toy);
        return toy;
    }

    private static Frame.Bypassed.Dispatcher named(String topic, long delayed) {
        return new Frame.Bypassed.Dispatcher(topic, "sub", delayed, "another tracker has them");
    }

    @Test
    void aBypassedDispatcherIsToldAfterTwoRounds() {
        add("ours", 5, null);
        add("empty", 0, "another tracker has them");
        add("theirs", 7, "another tracker has them");
        watch.look();
        assertEquals(List.of(), told);
        watch.look();
        assertEquals(List.of(new Frame.Bypassed(1, List.of(named("theirs", 7)))), told);
        watch.look();
        assertEquals(1, told.size(), "nothing is new");
    }

    @Test
    void whatOnlySeemsSoForAMomentIsNotTold() {
        Toy toy = add("closing", 7, "another tracker has them");
        watch.look();
        toy.reason = null;
        watch.look();
        toy.reason = "another tracker has them";
        watch.look();
        assertEquals(List.of(), told);
        dispatchers.clear();
        add("closing", 7, "another tracker has them");
        watch.look();
        assertEquals(List.of(), told, "that is another dispatcher");
    }

    @Test
    void itIsTakenBackWhenItIsOver() {
        Toy toy = add("theirs", 7, "another tracker has them");
        watch.look();
        watch.look();
        toy.delayed = 9;
        watch.look();
        dispatchers.clear();
        watch.look();
        assertEquals(List.of(new Frame.Bypassed(1, List.of(named("theirs", 7))),
                new Frame.Bypassed(1, List.of(named("theirs", 9))), Frame.Bypassed.NOTHING), told);
    }

    @Test
    void allAreCountedAndTheFirstAreNamed() {
        for (int i = 99; i >= 0; i--) {
            add(String.format("t%02d", i), 1, "another tracker has them");
        }
        watch.look();
        watch.look();
        Frame.Bypassed last = told.get(0);
        assertEquals(100, last.dispatchers());
        assertEquals(Frame.Bypassed.MOST_NAMED, last.named().size());
        assertEquals(named("t00", 1), last.named().get(0));
    }

    @Test
    void aLookIsBoundedAndTheNextGoesOn() {
        int all = BypassWatch.MOST_A_LOOK + 10;
        for (int i = 0; i < all; i++) {
            add("t" + i, 1, i == all - 1 ? "another tracker has them" : null);
        }
        for (int look = 0; look < 4; look++) {
            assertEquals(List.of(), told);
            watch.look();
        }
        assertEquals(1, told.get(0).dispatchers());
        assertEquals(2, dispatchers.get(0).asked);
        assertEquals(2, dispatchers.get(all - 1).asked);
    }
}
