package tidegate.pulsar;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.timing.Worker;
import tidegate.pulsar.wire.Frame;

/**
 * Looks for dispatchers with delayed messages and no tracker of ours: those bypass Tidegate.
 *
 * <p>One thread looks at a bounded number of them every few seconds. A dispatcher counts as bypassed only after two rounds:
 * between two of Pulsar's steps a sound one may look so.
 */
final class BypassWatch implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(BypassWatch.class);
    static final long INTERVAL_MS = 3_000;
    static final int MOST_A_LOOK = 10_000;
    /** Most dispatchers reported by name; the others are only counted. */
    static final int MOST_NAMED = Frame.Bypassed.MOST_NAMED;

    /** A dispatcher of the broker. */
    interface Watched {
        /** The same object while the dispatcher is the same. */
        Object identity();

        String topic();

        String subscription();

        /** The number of delayed messages in the dispatcher's tracker, ours or not. */
        long delayed();

        /** The reason why no tracker of ours has them; empty if one does, or if the dispatcher is closed. */
        Optional<String> bypass();
    }

    private record Name(String topic, String subscription) {}

    private final Supplier<Iterator<? extends Watched>> dispatchers;
    private final Consumer<Frame.Bypassed> tell;
    private final Worker worker;

    private Iterator<? extends Watched> rest = Collections.emptyIterator();
    private Map<Object, Frame.Bypassed.Dispatcher> found = new IdentityHashMap<>();
    private Map<Object, Frame.Bypassed.Dispatcher> foundBefore = new IdentityHashMap<>();
    private Map<Name, Frame.Bypassed.Dispatcher> bypassed = new HashMap<>();
    private Frame.Bypassed told = Frame.Bypassed.NOTHING;

    /** {@code dispatchers} lists the broker's dispatchers anew each time. {@code tell} gets each new report. */
    BypassWatch(Supplier<Iterator<? extends Watched>> dispatchers, Consumer<Frame.Bypassed> tell) {
        this.dispatchers = dispatchers;
        this.tell = tell;
        worker = new Worker("tidegate-bypass-watch", this::run);
    }

    void start() {
        worker.start();
    }

    private void run() {
        while (worker.isRunning()) {
            try {
                TimeUnit.MILLISECONDS.sleep(INTERVAL_MS);
                look();
            } catch (InterruptedException e) {
                return;
            } catch (Throwable e) {
                // Survives any error: nothing else looks.
                LOG.error("Looking for bypassed dispatchers failed; trying again", e);
                rest = Collections.emptyIterator();
            }
        }
    }

    /** Looks at up to {@link #MOST_A_LOOK} dispatchers; a round's last look reports the findings. */
    void look() {
        if (!rest.hasNext()) {
            found = new IdentityHashMap<>();
            rest = dispatchers.get();
        }
        for (int seen = 0; seen < MOST_A_LOOK && rest.hasNext(); seen++) {
            Watched one = rest.next();
            long delayed = one.delayed();
            if (delayed > 0) {
                one.bypass().ifPresent(reason -> found.put(one.identity(),
                        new Frame.Bypassed.Dispatcher(one.topic(), one.subscription(), delayed, reason)));
            }
        }
        if (!rest.hasNext()) {
            endRound();
        }
    }

    private void endRound() {
        Map<Name, Frame.Bypassed.Dispatcher> confirmed = new HashMap<>();
        found.forEach((identity, one) -> {
            if (foundBefore.containsKey(identity)) {
                confirmed.put(new Name(one.topic(), one.subscription()), one);
            }
        });
        foundBefore = found;
        List<Frame.Bypassed.Dispatcher> fresh = confirmed.entrySet().stream()
                .filter(one -> !bypassed.containsKey(one.getKey())).map(Map.Entry::getValue).sorted().toList();
        fresh.stream().limit(MOST_NAMED).forEach(one -> LOG.error("[{} / {}] BYPASSED: Tidegate does not have its {} delayed messages:"
                + " {}", one.topic(), one.subscription(), one.delayed(), one.reason()));
        if (fresh.size() > MOST_NAMED) {
            LOG.error("BYPASSED: and {} dispatchers more", fresh.size() - MOST_NAMED);
        }
        if (!bypassed.isEmpty() && confirmed.isEmpty()) {
            LOG.info("No dispatcher bypasses Tidegate any more");
        }
        bypassed = confirmed;
        List<Frame.Bypassed.Dispatcher> named = new ArrayList<>(confirmed.values());
        Collections.sort(named);
        Frame.Bypassed now = new Frame.Bypassed(named.size(), List.copyOf(named.subList(0, Math.min(named.size(), MOST_NAMED))));
        if (!now.equals(told)) {
            told = now;
            tell.accept(now);
        }
    }

    @Override
    public void close() {
        worker.close();
    }
}
