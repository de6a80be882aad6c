package tidegate.pulsar;

import java.util.ArrayList;
import java.util.ConcurrentModificationException;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import java.util.function.Function;
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
 * former ones if the answer is late: a change counts within about two seconds.
 */
final class PolicyProperties {
    private static final Logger LOG = LoggerFactory.getLogger(PolicyProperties.class);

    private final String name;
    private final String subscription;
    private final TopicName topic;
    private final ManagedLedger ledger;
    private final NamespaceResources resources;
    private volatile Map<String, String> ofTopic = Map.of();
    private volatile Map<String, String> ofPartitioned = Map.of();
    private volatile Map<String, String> ofNamespace = Map.of();
    private volatile List<Map<String, String>> places = List.of();
    private volatile DelayPolicy policy = DelayPolicy.NONE;

    /** {@code name} is for the log. */
    PolicyProperties(String name, Topic topic, String subscription, ManagedLedger ledger) {
        this.name = name;
        this.subscription = subscription;
        this.topic = TopicName.get(topic.getName());
        this.ledger = ledger;
        resources = topic.getBrokerService().pulsar().getPulsarResources().getNamespaceResources();
    }

    /** The rules in force. Any lock may be held. */
    DelayPolicy policy() {
        take(ledger.getProperties(), found -> ofTopic = found);
        ask(resources.getPoliciesAsync(topic.getNamespaceObject()), policies -> policies.properties, found -> ofNamespace = found);
        if (topic.isPartitioned()) {
            ask(resources.getPartitionedTopicResources().getPartitionedTopicMetadataAsync(
                    TopicName.get(topic.getPartitionedTopicName())), metadata -> metadata.properties, found -> ofPartitioned = found);
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

    private <T> void ask(CompletableFuture<Optional<T>> answer, Function<T, Map<String, String>> properties,
            Consumer<Map<String, String>> taker) {
        answer.whenComplete((found, error) -> {
            if (error == null) {
                take(found.map(properties).orElse(Map.of()), taker);
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
}
