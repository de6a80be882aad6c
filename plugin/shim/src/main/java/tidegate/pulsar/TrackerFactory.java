package tidegate.pulsar;

import io.netty.util.HashedWheelTimer;
import io.netty.util.Timer;
import java.security.SecureRandom;
import java.time.Clock;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.bookkeeper.client.api.BookKeeper;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.Position;
import org.apache.pulsar.PulsarVersion;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.delayed.BucketDelayedDeliveryTrackerFactory;
import org.apache.pulsar.broker.delayed.DelayedDeliveryTracker;
import org.apache.pulsar.broker.delayed.bucket.BucketDelayedDeliveryTracker;
import org.apache.pulsar.broker.delayed.bucket.RecoverDelayedDeliveryTrackerException;
import org.apache.pulsar.broker.service.BrokerService;
import org.apache.pulsar.broker.service.persistent.AbstractPersistentDispatcherMultipleConsumers;
import org.apache.pulsar.broker.service.persistent.PersistentSubscription;
import org.apache.pulsar.broker.service.persistent.PersistentTopic;
import org.apache.pulsar.common.naming.TopicName;
import org.apache.pulsar.common.util.Codec;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.cursor.CursorProperties;
import tidegate.pulsar.cursor.CursorRecord;
import tidegate.pulsar.cursor.IndividualAcks;
import tidegate.pulsar.cursor.LedgerThread;
import tidegate.pulsar.cursor.RefusedResets;
import tidegate.pulsar.cursor.StoredSeals;
import tidegate.pulsar.cursor.UndoneResets;
import tidegate.pulsar.cursor.WriteConflicts;
import tidegate.pulsar.gate.PendingBudget;
import tidegate.pulsar.gate.TrackerCore;
import tidegate.pulsar.gate.TrackerSettings;
import tidegate.pulsar.indexlog.LogDeletions;
import tidegate.pulsar.indexlog.LogLedgers;
import tidegate.pulsar.indexlog.OverrideLedgers;
import tidegate.pulsar.link.DaemonLink;
import tidegate.pulsar.link.SocketPeer;
import tidegate.pulsar.readahead.EntryCacheReader;
import tidegate.pulsar.readahead.EntryPrefetch;
import tidegate.pulsar.readahead.LedgerReader;
import tidegate.pulsar.readahead.ReadAhead;
import tidegate.pulsar.readahead.ReadAheadLimiter;
import tidegate.pulsar.timing.BackoffPoller;
import tidegate.pulsar.timing.Wakeups;
import tidegate.pulsar.wire.Ownership;

/**
 * The factory named by {@code delayedDeliveryTrackerFactoryClassName}: one for each broker, with its link to the daemon and
 * its threads.
 *
 * <p>It extends Pulsar's bucket factory because only for that class Pulsar cleans up after a subscription.
 */
public final class TrackerFactory extends BucketDelayedDeliveryTrackerFactory {
    private static final Logger LOG = LoggerFactory.getLogger(TrackerFactory.class);
    private static final long CLEAN_TIMEOUT_MS = 5_000;
    private static final long CLOSE_TIMEOUT_MS = 2_000;
    /** As a part of the time that the broker's cache keeps an entry. */
    private static final long PREFETCH_SHARE = 3;

    private final Clock clock = Clock.systemUTC();
    private final SecureRandom random = new SecureRandom();
    private final UnaskedIndexes unasked = new UnaskedIndexes();
    private final LogDeletions deletions = new LogDeletions(System::nanoTime);
    private ShimConfig config;
    private PendingBudget budget;
    private DaemonLink link;
    private AckWatch watch;
    private Wakeups wakeups;
    private ReadAhead readAhead;
    private BackoffPoller poller;
    private volatile BypassWatch bypassWatch;
    private BookKeeper bookKeeper;
    private int prefetchEntries;
    private long prefetchAheadNs;
    private LeftoverSnapshots leftovers;
    private TopicUnloader unloader;
    private UndoneResets undone;
    private StoredSeals seals;
    private ExecutorService background;
    private LogLedgers.Shared logs;
    /** The trackers' super class needs one. Nothing is ever scheduled on it, so it has no thread. */
    private Timer unusedTimer;

    @Override
    public void initialize(PulsarService pulsar) throws Exception {
        var properties = pulsar.getConfig().getProperties();
        String version = PulsarVersion.getVersion();
        ShimConfig.checkVersion(properties, version);
        PulsarInterfaces.check(TrackerFactory.class, Tracker.class, version);
        config = ShimConfig.read(properties);
        budget = new PendingBudget(config.maxPendingEntries());
        background = Executors.newSingleThreadExecutor(task -> {
            Thread thread = new Thread(task, "tidegate-background");
            thread.setDaemon(true);
            return thread;
        });
        background.execute(ShimClasses::load);
        logs = new LogLedgers.Shared(config.indexLog(), pulsar::getBookKeeperClient, background, new AtomicLong());
        leftovers = new LeftoverSnapshots(pulsar, background);
        IndividualAcks individual = new IndividualAcks(pulsar.getConfig().isAcknowledgmentAtBatchIndexLevelEnabled());
        seals = new StoredSeals(random, individual, LedgerThread::of, System::nanoTime);
        undone = new UndoneResets(individual, seals, background);
        unloader = new TopicUnloader(background, System::nanoTime);
        unusedTimer = new HashedWheelTimer();
        wakeups = new Wakeups(clock);
        watch = new AckWatch(config.ackPollMs(), seals, this::lookEachSecond);
        link = new DaemonLink(config.socket(), new SocketPeer(SocketPeer::ownUserAndRoot), () -> brokerName(pulsar),
                "pulsar " + version);
        watch.start();
        link.start();
        bookKeeper = config.readAhead() ? readableLedgers(pulsar) : null;
        if (bookKeeper != null) {
            ReadAheadLimiter limiter = new ReadAheadLimiter(config.readAheadPerSecond(), System.nanoTime());
            readAhead = new ReadAhead(clock, System::nanoTime, ReadAhead.STRIDE, limiter, new BrokerLatency(pulsar),
                    config.readAheadEntries());
            readAhead.start();
        }
        // 4.2's cache is not tested enough, and 5.0 replays runs of positions at once.
        prefetchEntries = bookKeeper != null && version.startsWith("4.0.") ? config.prefetchEntries() : 0;
        prefetchAheadNs = TimeUnit.MILLISECONDS.toNanos(pulsar.getConfig().getManagedLedgerCacheEvictionTimeThresholdMillis())
                / PREFETCH_SHARE;
        poller = new BackoffPoller(System::nanoTime);
        poller.start();
        // The broker's service does not exist yet.
        pulsar.runWhenReadyForIncomingRequests(() -> {
            BrokerService broker = pulsar.getBrokerService();
            broker.addTopicEventListener(new EarlyTrackers(broker, poller, undone, this::watchLoaded));
            bypassWatch = new BypassWatch(new BrokerDispatchers(broker, TrackerFactory.class), link::bypassed);
            bypassWatch.start();
        });
        LOG.info("Tidegate is attached to this Pulsar {}: daemon socket {}, horizon {} ms, index log {}", version,
                config.socket(), config.horizonMs(), config.indexLog());
    }

    private void lookEachSecond() {
        unasked.look();
        deletions.look();
    }

    /** The broker's name; empty until the broker listens, which may be later, unless one is configured. */
    private Optional<String> brokerName(PulsarService pulsar) {
        Optional<BrokerService> service = Optional.ofNullable(pulsar.getBrokerService());
        return config.brokerName(pulsar.getAdvertisedAddress(), service.flatMap(BrokerService::getListenPort),
                service.flatMap(BrokerService::getListenPortTls));
    }

    /** Reads the topics' ledgers; null if the dispatcher sees other entries than those stored. */
    private static BookKeeper readableLedgers(PulsarService pulsar) {
        if (!pulsar.getConfig().getBrokerEntryPayloadProcessors().isEmpty()) {
            LOG.info("Nothing is read ahead of the dispatchers: brokerEntryPayloadProcessors change the stored entries");
            return null;
        }
        try {
            return pulsar.getBookKeeperClient();
        } catch (UnsupportedOperationException e) {
            LOG.info("Nothing is read ahead of the dispatchers: this broker's storage is not BookKeeper");
            return null;
        }
    }

    @Override
    public DelayedDeliveryTracker newTracker(AbstractPersistentDispatcherMultipleConsumers dispatcher) {
        if (dispatcher.getSubscription() instanceof PersistentSubscription subscription) {
            undone.beforeTracker(subscription);
            if (!undone.isPending(subscription.getCursor())) {
                seals.keep(subscription.getCursor());
            }
        }
        DispatcherContext context = new DispatcherContext(dispatcher, link, wakeups, background, logs, undone, unloader);
        Ownership ownership = context.ownership();
        TrackerCore core = newCore(context, dispatcher.getTopic().getName(), dispatcher.getSubscription().getName(),
                ownership == null ? Ownership.first(random) : ownership);
        Tracker tracker;
        try {
            tracker = new Tracker(dispatcher, core, link, context, deletions, unusedTimer, leftovers, seals, prefetch(dispatcher, core));
        } catch (RecoverDelayedDeliveryTrackerException e) {
            // Left-over snapshots look empty, so no recovery can fail.
            throw new IllegalStateException("cannot make a tracker for " + dispatcher.getName(), e);
        }
        if (readAhead != null && dispatcher.getTopic() instanceof PersistentTopic topic) {
            readAhead.add(core, new LedgerReader(dispatcher, topic, bookKeeper));
        }
        if (dispatcher.getSubscription() instanceof PersistentSubscription subscription) {
            unasked.watch(subscription, new UnaskedIndexes.OfPulsar(subscription, core), new OfTheDaemon(subscription));
        }
        core.monitor().claim();
        watch.add(core);
        link.register(core);
        return tracker;
    }

    private EntryPrefetch prefetch(AbstractPersistentDispatcherMultipleConsumers dispatcher, TrackerCore core) {
        EntryCacheReader reader = prefetchEntries == 0 ? null
                : EntryCacheReader.of(dispatcher.getCursor().getManagedLedger(), bookKeeper);
        return reader == null ? null
                : new EntryPrefetch(core.queue()::isNear, reader, System::nanoTime, prefetchEntries, prefetchAheadNs);
    }

    /** Pulsar 5.0 asks for a tracker with this method, without the dispatcher's lock; earlier versions do not. */
    public CompletableFuture<DelayedDeliveryTracker> newTrackerAsync(AbstractPersistentDispatcherMultipleConsumers dispatcher) {
        synchronized (dispatcher) {
            return CompletableFuture.completedFuture(newTracker(dispatcher));
        }
    }

    /** Watches a subscription of a loaded topic, perhaps after its tracker was made. */
    private void watchLoaded(PersistentSubscription subscription) {
        unasked.watchNew(subscription, new UnaskedIndexes.OfPulsar(subscription, null), new OfTheDaemon(subscription));
    }

    /** Tells the daemon to forget a living subscription. The index log records this, and stays. */
    private final class OfTheDaemon implements UnaskedIndexes.Forgetter, RefusedResets.Subscription {
        private final PersistentSubscription subscription;

        private OfTheDaemon(PersistentSubscription subscription) {
            this.subscription = subscription;
        }

        @Override
        public boolean isConnected() {
            return link.isConnected();
        }

        @Override
        public CompletableFuture<Boolean> forget() {
            ManagedCursor cursor = subscription.getCursor();
            Ownership ownership = CursorRecord.ownership(cursor);
            return ownership == null ? CompletableFuture.completedFuture(true)
                    : clear(cursor, new CursorProperties(cursor, this, background), ownership);
        }

        @Override
        public CompletableFuture<Void> reset(Position position) {
            return subscription.resetCursor(position);
        }
    }

    private TrackerCore newCore(CursorContext context, String topic, String subscription, Ownership ownership) {
        TrackerCore core = new TrackerCore(context, clock, new TrackerSettings(topic, subscription, ownership,
                config.horizonMs(), config.credit(), config.nearMaxEntries(), config.daemonWaitMs()), random, budget);
        context.serve(core);
        return core;
    }

    /** Clears a subscription without a tracker: it is being deleted, or its backlog cleared. */
    @Override
    public CompletableFuture<Void> cleanResidualSnapshots(ManagedCursor cursor) {
        Map<String, String> properties = cursor.getCursorProperties();
        if (properties == null || properties.isEmpty()) {
            return CompletableFuture.completedFuture(null);
        }
        CompletableFuture<Void> cleaned = CompletableFuture.completedFuture(null);
        for (Map.Entry<String, String> property : properties.entrySet()) {
            if (property.getKey().startsWith(BucketDelayedDeliveryTracker.DELAYED_BUCKET_KEY_PREFIX)) {
                cleaned = cleaned
                        .thenCompose(done -> leftovers.deleteBucketSnapshot(Long.parseLong(property.getValue())))
                        .thenCompose(done -> cursor.removeCursorProperty(property.getKey()));
            }
        }
        Ownership ownership = CursorRecord.ownership(cursor);
        return ownership == null ? cleaned : cleaned.thenCompose(done -> clearOnce(cursor, ownership));
    }

    /** As {@link #clear}, with a bounded wait: deletion of a subscription must not hang on a daemon. */
    private CompletableFuture<Void> clearOnce(ManagedCursor cursor, Ownership ownership) {
        CursorProperties properties = CursorProperties.withoutReset(cursor);
        CompletableFuture<Boolean> cleared = clear(cursor, properties, ownership);
        deletions.expect(cursor, new LogLedgers(cursor.getName(), properties, new WriteConflicts(() -> { }), logs),
                new OverrideLedgers(cursor.getName(), properties, logs), cleared);
        return link.isConnected()
                ? cleared.<Void>thenApply(done -> null).completeOnTimeout(null, CLEAN_TIMEOUT_MS, TimeUnit.MILLISECONDS)
                : CompletableFuture.completedFuture(null);
    }

    /** Tells the daemon, through its own stream, to forget the subscription; true once it has. */
    private CompletableFuture<Boolean> clear(ManagedCursor cursor, CursorProperties properties, Ownership ownership) {
        String topic = TopicName.fromPersistenceNamingEncoding(cursor.getManagedLedger().getName());
        String subscription = Codec.decode(cursor.getName());
        CursorContext context = new CursorContext(topic + " / " + subscription, properties, link, background, logs, undone);
        TrackerCore core = newCore(context, topic, subscription, ownership);
        core.speakForLast();
        core.queue().clear();
        core.finish();
        link.register(core);
        return core.whenClosed().thenApply(done -> core.isClosed());
    }

    @Override
    public void close() {
        if (link == null) {
            return;
        }
        poller.close();
        if (bypassWatch != null) {
            bypassWatch.close();
        }
        wakeups.close();
        link.close(CLOSE_TIMEOUT_MS);
        watch.close();
        if (readAhead != null) {
            readAhead.close();
        }
        leftovers.close();
        background.shutdownNow();
        unusedTimer.stop();
        LOG.info("Tidegate is detached: its link to the daemon is closed");
    }
}
