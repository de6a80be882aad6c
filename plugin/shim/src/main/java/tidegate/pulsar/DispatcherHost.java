package tidegate.pulsar;

import java.util.List;
import java.util.concurrent.ScheduledFuture;
import org.apache.pulsar.broker.service.Consumer;
import org.apache.pulsar.broker.service.PendingAcksMap;
import org.apache.pulsar.broker.service.persistent.AbstractPersistentDispatcherMultipleConsumers;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A {@link TrackerHost} on a live Shared or Key_Shared dispatcher. */
final class DispatcherHost extends CursorHost {
    private static final Logger LOG = LoggerFactory.getLogger(DispatcherHost.class);
    private static final Consumer[] NONE = new Consumer[0];

    private final AbstractPersistentDispatcherMultipleConsumers dispatcher;
    private final Wakeups wakeups;
    /** The consumers of the last look; null before the first. Guarded by the dispatcher's lock. */
    private Consumer[] seen;
    private ScheduledFuture<?> wake;

    DispatcherHost(AbstractPersistentDispatcherMultipleConsumers dispatcher, DaemonLink link, Wakeups wakeups) {
        super(dispatcher.getName(), dispatcher.getCursor(), link);
        this.dispatcher = dispatcher;
        this.wakeups = wakeups;
    }

    /**
     * Identity, not {@code equals}: a consumer that reconnects over the same connection equals its former self. And not the
     * cursor's read position: a rewind to where it stood (everything before is acknowledged) would not show.
     */
    @Override
    public boolean consumersReplaced() {
        List<Consumer> now = dispatcher.getConsumers();
        if (seen != null && seen.length > 0 && contains(now, seen[0])) {
            return false;
        }
        Consumer[] current = now.toArray(NONE);
        if (current.length == 0) {
            return false;
        }
        boolean replaced = seen != null;
        if (replaced) {
            for (Consumer former : seen) {
                replaced &= !contains(now, former);
            }
        }
        seen = current;
        return replaced;
    }

    private static boolean contains(List<Consumer> consumers, Consumer wanted) {
        for (Consumer consumer : consumers) {
            if (consumer == wanted) {
                return true;
            }
        }
        return false;
    }

    @Override
    public boolean hasConsumers() {
        return !dispatcher.getConsumers().isEmpty();
    }

    @Override
    public boolean isOutstanding(long ledgerId, long entryId) {
        for (Consumer consumer : dispatcher.getConsumers()) {
            PendingAcksMap pendingAcks = consumer.getPendingAcks();
            if (pendingAcks != null && pendingAcks.contains(ledgerId, entryId)) {
                return true;
            }
        }
        return false;
    }

    @Override
    public long redeliveries() {
        return dispatcher.getNumberOfMessagesInReplay();
    }

    @Override
    public void readMore() {
        dispatcher.readMoreEntriesAsync();
    }

    @Override
    public synchronized void wakeAt(long timeMs) {
        cancelWake();
        wake = wakeups.at(timeMs, () -> core().onWake());
    }

    @Override
    public synchronized void cancelWake() {
        if (wake != null) {
            wake.cancel(false);
            wake = null;
        }
    }

    /** Consumers connect again at once, and the dispatcher rewinds its cursor when the first one does. */
    @Override
    public void rereadAll() {
        dispatcher.disconnectAllConsumers().whenComplete((done, error) -> {
            dispatcher.resetCloseFuture();
            if (error != null) {
                LOG.warn("[{}] Disconnecting the consumers failed; the positions are read again at the next rewind", name(),
                        error);
            }
        });
    }
}
