import java.lang.reflect.Field;
import java.lang.reflect.Proxy;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedger;
import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.PositionFactory;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.delayed.DelayedDeliveryTracker;
import org.apache.pulsar.broker.delayed.bucket.BucketDelayedDeliveryTracker;
import org.apache.pulsar.broker.resources.NamespaceResources;
import org.apache.pulsar.broker.resources.PulsarResources;
import org.apache.pulsar.broker.service.BrokerService;
import org.apache.pulsar.broker.service.Consumer;
import org.apache.pulsar.broker.service.persistent.PersistentDispatcherMultipleConsumers;
import org.apache.pulsar.broker.service.persistent.PersistentSubscription;
import org.apache.pulsar.broker.service.persistent.PersistentTopic;
import org.apache.pulsar.common.naming.NamespaceName;
import org.apache.pulsar.common.policies.data.Policies;
import org.apache.pulsar.common.policies.data.stats.TopicMetricBean;

/**
 * The broker around a tracker, with nothing behind it: a dispatcher, its topic, subscription and cursor.
 *
 * <p>The classes are Pulsar's own, made without their constructors; a few methods that a tracker calls are overridden. The
 * cursor says that nothing is acknowledged.
 */
final class Stubs {
    private Stubs() {
    }

    /** A dispatcher without wake-ups; its cursor has no properties. */
    static PersistentDispatcherMultipleConsumers dispatcher(String subscription) throws ReflectiveOperationException {
        return dispatcher(subscription, null, null);
    }

    /** A dispatcher that runs {@code wake} when it should read; its cursor keeps its properties, unless null. */
    static PersistentDispatcherMultipleConsumers dispatcher(String subscription, CursorFile properties, Runnable wake)
            throws ReflectiveOperationException {
        Dispatcher dispatcher = allocate(Dispatcher.class);
        dispatcher.stubTopic = allocate(Topic.class);
        dispatcher.stubTopic.stubBroker = allocate(Broker.class);
        dispatcher.stubTopic.stubBroker.stubPulsar = allocate(Pulsar.class);
        dispatcher.stubTopic.stubBroker.stubPulsar.stubResources = allocate(Resources.class);
        dispatcher.stubTopic.stubBroker.stubPulsar.stubResources.stubNamespaces = allocate(Namespaces.class);
        dispatcher.stubSubscription = allocate(Subscription.class);
        dispatcher.stubSubscription.stubName = subscription;
        dispatcher.stubSubscription.stubTopic = dispatcher.stubTopic;
        dispatcher.stubTopic.stubSubscription = dispatcher.stubSubscription;
        dispatcher.stubCursor = cursor(subscription, properties);
        dispatcher.stubSubscription.stubCursor = dispatcher.stubCursor;
        dispatcher.stubWake = wake;
        return dispatcher;
    }

    /** A broker by that name, which keeps index logs at a URL; "none" for none. */
    static PulsarService pulsar(String socket, String name, String indexLog) throws ReflectiveOperationException {
        Pulsar pulsar = allocate(Pulsar.class);
        pulsar.stubConfiguration = new ServiceConfiguration();
        Properties properties = new Properties();
        properties.setProperty("tidegateSocket", socket);
        properties.setProperty("tidegateBrokerName", name);
        properties.setProperty("tidegateIndexLog", indexLog);
        // The stub has no storage to read from.
        properties.setProperty("tidegateReadAhead", "false");
        pulsar.stubConfiguration.setProperties(properties);
        return pulsar;
    }

    /** True once the daemon has answered our tracker's OPEN, by the tracker's own metric. */
    static boolean open(DelayedDeliveryTracker tracker) {
        TopicMetricBean connected =
                ((BucketDelayedDeliveryTracker) tracker).genTopicMetricMap().get("pulsar_delayed_tidegate_connected");
        return connected != null && connected.value == 1;
    }

    private static ManagedCursor cursor(String name, CursorFile properties) {
        Position start = PositionFactory.create(0, -1);
        ManagedLedger ledger = (ManagedLedger) Proxy.newProxyInstance(Stubs.class.getClassLoader(),
                new Class<?>[] {ManagedLedger.class}, (self, method, arguments) -> switch (method.getName()) {
                    case "getName" -> "public/default/persistent/bench";
                    case "toString" -> "stub ledger";
                    case "hashCode" -> System.identityHashCode(self);
                    case "equals" -> self == arguments[0];
                    default -> nothing(method.getReturnType());
                });
        return (ManagedCursor) Proxy.newProxyInstance(Stubs.class.getClassLoader(),
                new Class<?>[] {ManagedCursor.class}, (self, method, arguments) -> switch (method.getName()) {
                    case "getName" -> name;
                    case "getManagedLedger" -> ledger;
                    // A cursor that does not outlive its consumers has no place for the pointer to an index log.
                    case "isDurable" -> properties != null;
                    case "getCursorProperties" -> properties == null ? Map.of() : properties.all();
                    case "getReadPosition", "getMarkDeletedPosition", "getPersistentMarkDeletedPosition" -> start;
                    case "putCursorProperty" -> {
                        if (properties != null) {
                            properties.put((String) arguments[0], (String) arguments[1]);
                        }
                        yield CompletableFuture.completedFuture(null);
                    }
                    case "removeCursorProperty" -> {
                        if (properties != null) {
                            properties.remove((String) arguments[0]);
                        }
                        yield CompletableFuture.completedFuture(null);
                    }
                    case "setCursorProperties" -> CompletableFuture.completedFuture(null);
                    case "toString" -> "stub cursor";
                    case "hashCode" -> System.identityHashCode(self);
                    case "equals" -> self == arguments[0];
                    default -> nothing(method.getReturnType());
                });
    }

    private static Object nothing(Class<?> type) {
        if (type == boolean.class) {
            return false;
        }
        if (type == int.class) {
            return 0;
        }
        return type == long.class ? (Object) 0L : null;
    }

    @SuppressWarnings("unchecked")
    private static <T> T allocate(Class<T> type) throws ReflectiveOperationException {
        Field field = sun.misc.Unsafe.class.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        return (T) ((sun.misc.Unsafe) field.get(null)).allocateInstance(type);
    }

    private static final class Dispatcher extends PersistentDispatcherMultipleConsumers {
        private Topic stubTopic;
        private Subscription stubSubscription;
        private ManagedCursor stubCursor;
        private Runnable stubWake;

        private Dispatcher() {
            super(null, null, null);
        }

        @Override
        public String getName() {
            return "persistent://public/default/bench / " + stubSubscription.stubName;
        }

        @Override
        public ManagedCursor getCursor() {
            return stubCursor;
        }

        @Override
        public PersistentTopic getTopic() {
            return stubTopic;
        }

        @Override
        public PersistentSubscription getSubscription() {
            return stubSubscription;
        }

        @Override
        public void readMoreEntriesAsync() {
            if (stubWake != null) {
                stubWake.run();
            }
        }

        @Override
        public CopyOnWriteArrayList<Consumer> getConsumers() {
            return new CopyOnWriteArrayList<>();
        }

        @Override
        public boolean isConsumerConnected() {
            return true;
        }

        @Override
        public long getNumberOfMessagesInReplay() {
            return 0;
        }
    }

    private static final class Topic extends PersistentTopic {
        private Broker stubBroker;
        private Subscription stubSubscription;

        private Topic() {
            super(null, null, null);
        }

        @Override
        public PersistentSubscription getSubscription(String name) {
            return stubSubscription;
        }

        @Override
        public String getName() {
            return "persistent://public/default/bench";
        }

        @Override
        public BrokerService getBrokerService() {
            return stubBroker;
        }
    }

    private static final class Subscription extends PersistentSubscription {
        private String stubName;
        private Topic stubTopic;
        private ManagedCursor stubCursor;

        private Subscription() {
            super(null, null, null, null);
        }

        @Override
        public PersistentTopic getTopic() {
            return stubTopic;
        }

        @Override
        public Dispatcher getDispatcher() {
            return null;
        }

        @Override
        public String getName() {
            return stubName;
        }

        @Override
        public ManagedCursor getCursor() {
            return stubCursor;
        }
    }

    private static final class Broker extends BrokerService {
        private Pulsar stubPulsar;

        private Broker() throws Exception {
            super(null, null);
        }

        @Override
        public PulsarService pulsar() {
            return stubPulsar;
        }
    }

    private static final class Resources extends PulsarResources {
        private Namespaces stubNamespaces;

        private Resources() {
            super(null, null);
        }

        @Override
        public NamespaceResources getNamespaceResources() {
            return stubNamespaces;
        }
    }

    /** No namespace has policies. */
    private static final class Namespaces extends NamespaceResources {
        private Namespaces() {
            super(null, 0);
        }

        @Override
        public CompletableFuture<Optional<Policies>> getPoliciesAsync(NamespaceName namespace) {
            return CompletableFuture.completedFuture(Optional.empty());
        }
    }

    private static final class Pulsar extends PulsarService {
        private ServiceConfiguration stubConfiguration;
        private Resources stubResources;

        private Pulsar() {
            super(null);
        }

        /** Never: nothing comes in. */
        @Override
        public void runWhenReadyForIncomingRequests(Runnable runnable) {
        }

        @Override
        public PulsarResources getPulsarResources() {
            return stubResources;
        }

        @Override
        public ServiceConfiguration getConfiguration() {
            return stubConfiguration;
        }

        @Override
        public ServiceConfiguration getConfig() {
            return stubConfiguration;
        }

        @Override
        public String getBrokerVersion() {
            return System.getProperty("bench.pulsarVersion");
        }

        @Override
        public String getAdvertisedAddress() {
            return "127.0.0.1";
        }
    }
}
