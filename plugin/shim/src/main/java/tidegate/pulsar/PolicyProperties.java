package tidegate.pulsar;

import java.util.ArrayList;
import java.util.ConcurrentModificationException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import org.apache.bookkeeper.mledger.ManagedLedger;
import org.apache.pulsar.broker.resources.NamespaceResources;
import org.apache.pulsar.broker.service.Topic;
import org.apache.pulsar.common.naming.TopicName;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tidegate.pulsar.gate.DelayPolicy;

/**
 * The {@link DelayPolicy} of a subscription, from the properties of its topic, of the partitioned topic, and of the
 * namespace.
 *
 * <p>The topic's are in memory, the others in the metadata store's cache. A look requests them and returns at once, with the
 * former ones if the answer is late: a change counts within about two seconds. An entry of the cache is unanswered, too, while
 * Pulsar reads it again after a change; so a tracker takes its first messages once {@link #isKnown}.
 */
final class PolicyProperties {
    private static final Logger LOG = LoggerFactory.getLogger(PolicyProperties.class);

    /** The places of rules, among properties that are not ours. */
    interface Places {
        /** Null or a map that may change. */
        Map<String, String> ofTopic();

        boolean isPartitioned();

        CompletableFuture<Map<String, String>> ofPartitioned();

        CompletableFuture<Map<String, String>> ofNamespace();
    }

    private final String name;
    private final String subscription;
    private final Places asked;
    private final Runnable onKnown;
    private volatile boolean knowsPartitioned;
    private volatile boolean knowsNamespace;
    private volatile Map<String, String> ofTopic = Map.of();
    private volatile Map<String, String> ofPartitioned = Map.of();
    private volatile Map<String, String> ofNamespace = Map.of();
    private volatile List<Map<String, String>> places = List.of();
    private volatile DelayPolicy policy = DelayPolicy.NONE;

    /** {@code name} is for the log. {@code onKnown} runs once {@link #isKnown}, on any thread and under any lock. */
    PolicyProperties(String name, String subscription, Places asked, Runnable onKnown) {
        this.name = name;
        this.subscription = subscription;
        this.asked = asked;
        this.onKnown = onKnown;
        knowsPartitioned = !asked.isPartitioned();
    }

    /** True once namespace and partitioned topic have answered. */
    boolean isKnown() {
        return knowsNamespace && knowsPartitioned;
    }

    /** The rules in force. Any lock may be held. */
    DelayPolicy policy() {
        take(asked.ofTopic(), found -> ofTopic = found);
        ask(asked.ofNamespace(), found -> {
            ofNamespace = found;
            knowsNamespace = true;
        });
        if (asked.isPartitioned()) {
            ask(asked.ofPartitioned(), found -> {
                ofPartitioned = found;
                knowsPartitioned = true;
            });
        }
        List<Map<String, String>> now = List.of(ofTopic, ofPartitioned, ofNamespace);
        if (!now.equals(places)) {
            List<String> unreadable = new ArrayList<>();
            DelayPolicy former = policy;
            policy = DelayPolicy.of(now, subscription, unreadable::add);
            places = now;
            unreadable.forEach(rule -> LOG.warn("[{}] The property {} is no rule and does not count: set it with tidegate policy",
                    name, rule));
            if (!policy.equals(former)) {
                LOG.info("[{}] Delays are rounded up to {}, the quota is {}, and from the next opening on there is {}", name,
                        policy.hasLevels() ? policy.levelsMs() + " ms" : "no level",
                        policy.quota() == DelayPolicy.NO_QUOTA ? "none" : policy.quota() + " waiting messages",
                        policy.indexLog() ? "an index log, if the broker keeps them" : "no index log");
            }
        }
        return policy;
    }

    private void ask(CompletableFuture<Map<String, String>> answer, Consumer<Map<String, String>> taker) {
        answer.whenComplete((found, error) -> {
            if (error == null) {
                boolean wasKnown = isKnown();
                take(found, taker);
                if (!wasKnown && isKnown()) {
                    onKnown.run();
                }
            } else {
                LOG.debug("[{}] The properties of its namespace or partitioned topic cannot be read: the former ones count", name,
                        error);
            }
        });
    }

    /** Picks our properties. If Pulsar changes the map meanwhile, the former ones count until the next look. */
    private static void take(Map<String, String> properties, Consumer<Map<String, String>> taker) {
        try {
            taker.accept(properties == null ? Map.of() : properties.entrySet().stream()
                    .filter(property -> property.getKey().startsWith(DelayPolicy.PREFIX) && property.getValue() != null)
                    .collect(Collectors.toUnmodifiableMap(Map.Entry::getKey, Map.Entry::getValue)));
        } catch (ConcurrentModificationException e) {
            LOG.debug("The properties are being changed", e);
        }
    }

    /** The places of a topic. */
    record OfPulsar(TopicName topic, ManagedLedger ledger, NamespaceResources resources) implements Places {
        static OfPulsar of(Topic topic, ManagedLedger ledger) {
            return new OfPulsar(TopicName.get(topic.getName()), ledger,
                    topic.getBrokerService().pulsar().getPulsarResources().getNamespaceResources());
        }

        @Override
        public Map<String, String> ofTopic() {
            return ledger.getProperties();
        }

        @Override
        public boolean isPartitioned() {
            return topic.isPartitioned();
        }

        @Override
        public CompletableFuture<Map<String, String>> ofPartitioned() {
            return resources.getPartitionedTopicResources()
                    .getPartitionedTopicMetadataAsync(TopicName.get(topic.getPartitionedTopicName()))
                    .thenApply(found -> found.map(metadata -> metadata.properties).orElse(Map.of()));
        }

        @Override
        public CompletableFuture<Map<String, String>> ofNamespace() {
            return resources.getPoliciesAsync(topic.getNamespaceObject())
                    .thenApply(found -> found.map(policies -> policies.properties).orElse(Map.of()));
        }
    }
}
