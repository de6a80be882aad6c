package tidegate.pulsar.link;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Consumer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.gate.SubscriptionKey;
import tidegate.pulsar.gate.TrackerCore;

/**
 * A broker's trackers and their shared connection, without the socket: the present trackers, their successors, and their
 * reactions to a new and to a lost connection. Not thread-safe.
 *
 * <p>At most one tracker of a subscription is current. A former one ends before it: over the open connection, or by leaving
 * its unfinished changes to its successor.
 */
public final class TrackerTable {
    private static final Logger LOG = LoggerFactory.getLogger(TrackerTable.class);
    /** How long a closed tracker keeps its unfinished changes for the daemon's return. */
    private static final long KEEP_FINISHED_MS = 60_000;
    /** A tracker that fails at each opening must not take a whole core. */
    private static final long RESTART_MS = 1000;

    private final Map<SubscriptionKey, TrackerCore> byKey = new HashMap<>();
    /** Checking for an end takes the tracker's lock, so each step checks these only. */
    private final Set<TrackerCore> finished = new LinkedHashSet<>();
    private final Map<TrackerCore, Long> finishedMs = new HashMap<>();
    private final Set<TrackerCore> cores = new LinkedHashSet<>();
    /** When to open each failed tracker again. */
    private final Map<TrackerCore, Long> restartMs = new LinkedHashMap<>();
    private LinkSession session;

    /** The open connection, or null. */
    LinkSession session() {
        return session;
    }

    boolean isEmpty() {
        return cores.isEmpty();
    }

    /**
     * Takes in a new tracker, unless the present tracker speaks for the subscription and the new one has only a last word,
     * or belongs to a closed dispatcher or cursor: then a former dispatcher's late read made it.
     */
    public void register(TrackerCore core) {
        TrackerCore current = byKey.get(core.key());
        if (!core.isLive() && current != null && current != core && current.isLive()) {
            core.finish();
            core.release();
            return;
        }
        TrackerCore former = byKey.put(core.key(), core);
        if (former != null && former != core) {
            each(List.of(former), one -> succeed(one, core));
        }
        cores.add(core);
        if (session != null) {
            session.attach(core);
        }
        // Its note may have been read before it was known here.
        framesWaiting(core);
    }

    /** Notes that the core has frames to send, or has finished. */
    public void framesWaiting(TrackerCore core) {
        if (core.isFinished() && cores.contains(core)) {
            finished.add(core);
        }
        if (session != null) {
            session.framesWaiting(core);
        }
    }

    private void succeed(TrackerCore former, TrackerCore core) {
        former.finish();
        framesWaiting(former);
        if (session != null && former.handler().isOpen()) {
            // Its CLOSE goes out before the new one's OPEN.
            session.drain(former);
        }
        if (session == null || !former.handler().isOpen()) {
            // Also if it closed only to open again under another seal: the new one sends the rest.
            core.adopt(former);
            forget(former);
        }
    }

    public void connected(LinkSession connection) {
        session = connection;
        cores.forEach(connection::attach);
    }

    /**
     * Handles a lost connection. First every tracker takes back its changes under way: a former tracker's must precede even
     * those sent by its successor.
     */
    public void lost() {
        if (session == null) {
            return;
        }
        session = null;
        restartMs.clear();
        each(cores, core -> core.handler().onDisconnected());
        each(cores, this::leaveToSuccessor);
    }

    /** Leaves the rest to a successor; without one the core stays until its last word is durable or its time over. */
    private void leaveToSuccessor(TrackerCore core) {
        TrackerCore current = byKey.get(core.key());
        if (current != null && current != core) {
            current.adopt(core);
            forget(core);
        }
    }

    /**
     * Treats failed trackers, and no others, as if the connection had been lost: their streams end, and open again after a
     * while. A former tracker and its successor restart together, in the order of their changes; also when the daemon has
     * dropped only the former's stream.
     */
    public void restartFailed(long nowMs) {
        if (session == null) {
            return;
        }
        session.takeFailed().forEach((failed, cause) -> {
            LOG.error("[{}] The tracker failed; its stream is opened again, the others go on", failed.name(), cause);
            restart(failed.key(), "the tracker failed: " + cause, nowMs);
        });
        session.takeRefused().stream().filter(core -> byKey.get(core.key()) != core)
                .forEach(former -> restart(former.key(), "another tracker tells the rest of the former's changes", nowMs));
        for (TrackerCore core : List.copyOf(restartMs.keySet())) {
            if (restartMs.get(core) <= nowMs) {
                restartMs.remove(core);
                session.attach(core);
            }
        }
    }

    private void restart(SubscriptionKey key, String why, long nowMs) {
        List<TrackerCore> same = cores.stream().filter(core -> core.key().equals(key)).toList();
        same.forEach(core -> session.abandon(core, why));
        each(same, core -> core.handler().onDisconnected());
        each(same, this::leaveToSuccessor);
        same.stream().filter(cores::contains).forEach(core -> restartMs.put(core, nowMs + RESTART_MS));
    }

    void finishAll() {
        each(cores, TrackerCore::finish);
        cores.forEach(this::framesWaiting);
    }

    /** Applies the action to each: one failing tracker must not keep the news from the others. */
    private static void each(Collection<TrackerCore> those, Consumer<TrackerCore> action) {
        for (TrackerCore core : List.copyOf(those)) {
            try {
                action.accept(core);
            } catch (Throwable e) {
                LOG.error("[{}] The tracker failed; the others go on", core.name(), e);
            }
        }
    }

    /** Forgets the closed trackers with nothing left to send. */
    public void forgetClosed(long nowMs) {
        List<TrackerCore> gone = new ArrayList<>();
        for (TrackerCore core : finished) {
            long sinceMs = finishedMs.computeIfAbsent(core, unseen -> nowMs);
            if (core.isClosed()) {
                gone.add(core);
            } else if (nowMs - sinceMs > KEEP_FINISHED_MS) {
                LOG.warn("[{}] The daemon was away for too long after the subscription's close: unconfirmed changes"
                        + " are dropped and will be read again", core.name());
                gone.add(core);
            }
        }
        each(gone, this::forget);
    }

    private void forget(TrackerCore core) {
        core.release();
        cores.remove(core);
        restartMs.remove(core);
        finished.remove(core);
        finishedMs.remove(core);
        byKey.remove(core.key(), core);
        if (session != null) {
            session.detach(core);
        }
    }
}
