import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.api.v5.Message;
import org.apache.pulsar.client.api.v5.MessageId;
import org.apache.pulsar.client.api.v5.Producer;
import org.apache.pulsar.client.api.v5.PulsarClient;
import org.apache.pulsar.client.api.v5.QueueConsumer;
import org.apache.pulsar.client.api.v5.config.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.v5.schema.Schema;
import org.apache.pulsar.common.policies.data.ScalableTopicMetadata.SegmentInfo;

/**
 * Delayed messages on a scalable topic of Pulsar 5 while its segments are split and merged, which only a client of the v5 API
 * can do.
 *
 * <p>Arguments: service URL, admin URL, tenant/namespace/name, the number of messages, and the number of those that a plain
 * topic of that name has for subscription {@code sub}, with uids from {@code old-0} on: with any, that topic is migrated. A third of the messages is sent
 * before the split, one before the merge, one after it; they are due 4 to 24 s after the start, and a tenth of them in an hour.
 * One line of the output: a JSON object with expected, received, early, repeated (ids that came again), twice (messages that
 * came with several ids, as the producer had sent them again), missing and segments; before it, a line for each message that
 * came again: segment, id, and when it came and was acknowledged, in ms since the start.
 */
public final class ScalableTopic {
    private static final long HOUR_MS = 3_600_000;
    private static final Map<String, List<Arrival>> CAME = new ConcurrentHashMap<>();
    private static final AtomicInteger EARLY = new AtomicInteger();
    private static final List<String> EXPECTED = new ArrayList<>();
    private static volatile boolean ended;

    /** One delivery; times in ms since the epoch. */
    private record Arrival(String segment, MessageId id, int redelivered, long cameMs, long acknowledgedMs) {
        String told(long startMs) {
            return segment + " " + id + " redelivery " + redelivered + " came " + (cameMs - startMs) + " acknowledged "
                    + (acknowledgedMs - startMs);
        }
    }

    private ScalableTopic() {
    }

    public static void main(String[] arguments) throws Exception {
        String name = arguments[2];
        String topic = "topic://" + name;
        int messages = Integer.parseInt(arguments[3]);
        int old = Integer.parseInt(arguments[4]);
        long startMs = System.currentTimeMillis();
        try (PulsarAdmin admin = PulsarAdmin.builder().serviceHttpUrl(arguments[1]).build();
                PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).build()) {
            if (old > 0) {
                admin.scalableTopics().migrateToScalable(topic, true);
                for (int number = 0; number < old; number++) {
                    EXPECTED.add("old-" + number);
                }
            } else {
                admin.scalableTopics().createScalableTopic(topic, 2);
            }
            QueueConsumer<byte[]> consumer = client.newQueueConsumer(Schema.bytes())
                    .topic(topic)
                    .subscriptionName("sub")
                    .subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST)
                    .subscribe();
            Thread receiver = new Thread(() -> receive(consumer));
            receiver.start();
            Producer<byte[]> producer = client.newProducer(Schema.bytes()).topic(topic).create();
            send(producer, startMs, 0, messages / 3);
            Thread.sleep(Math.max(0, startMs + 7_000 - System.currentTimeMillis()));
            long split = active(admin, topic).get(0);
            tell("split", startMs);
            admin.scalableTopics().splitSegment(topic, split);
            tell("split done", startMs);
            send(producer, startMs, messages / 3, 2 * messages / 3);
            Thread.sleep(Math.max(0, startMs + 13_000 - System.currentTimeMillis()));
            List<Long> children = admin.scalableTopics().getMetadata(topic).getSegments().get(split).getChildIds();
            tell("merge", startMs);
            admin.scalableTopics().mergeSegments(topic, children.get(0), children.get(1));
            tell("merge done", startMs);
            send(producer, startMs, 2 * messages / 3, messages);
            long deadlineMs = startMs + 120_000;
            while (!CAME.keySet().containsAll(EXPECTED) && System.currentTimeMillis() < deadlineMs) {
                Thread.sleep(200);
            }
            // Some seconds for repeats, and for messages an hour early.
            Thread.sleep(3_000);
            Map<Long, SegmentInfo> segments = new TreeMap<>(admin.scalableTopics().getMetadata(topic).getSegments());
            List<String> told = new ArrayList<>();
            segments.forEach((id, one) -> told.add(
                    "\"" + id + " " + one.getState() + " " + one.getParentIds() + " " + one.getLegacyTopicName() + "\""));
            long missing = EXPECTED.stream().filter(one -> !CAME.containsKey(one)).count();
            long repeated = CAME.values().stream().mapToLong(came -> came.size() - ids(came)).sum();
            long twice = CAME.values().stream().filter(came -> ids(came) > 1).count();
            ended = true;
            receiver.join(10_000);
            CAME.forEach((uid, came) -> {
                if (came.size() > 1) {
                    System.out.println("again: " + uid + " " + came.stream().map(one -> one.told(startMs)).toList());
                }
            });
            System.out.printf("%n{\"expected\": %d, \"received\": %d, \"early\": %d, \"repeated\": %d,"
                    + " \"twice\": %d, \"missing\": %d, \"segments\": [%s]}%n", EXPECTED.size(), CAME.size(), EARLY.get(),
                    repeated, twice, missing, String.join(", ", told));
            System.out.flush();
        }
        System.exit(0);
    }

    private static long ids(List<Arrival> came) {
        return came.stream().map(Arrival::id).distinct().count();
    }

    private static void tell(String what, long startMs) {
        System.out.println(what + " at " + (System.currentTimeMillis() - startMs) + " ms, " + CAME.size() + " have come");
    }

    private static List<Long> active(PulsarAdmin admin, String topic) throws Exception {
        List<Long> found = new ArrayList<>();
        new TreeMap<>(admin.scalableTopics().getMetadata(topic).getSegments()).forEach((id, one) -> {
            if ("ACTIVE".equalsIgnoreCase(one.getState())) {
                found.add(id);
            }
        });
        return found;
    }

    private static void send(Producer<byte[]> producer, long startMs, int first, int end) throws Exception {
        List<CompletableFuture<MessageId>> sent = new ArrayList<>();
        for (int number = first; number < end; number++) {
            boolean far = number % 10 == 9;
            long dueMs = far ? startMs + HOUR_MS : startMs + 4_000 + (number * 7919L % 20_000);
            if (!far) {
                EXPECTED.add("new-" + number);
            }
            sent.add(producer.async().newMessage()
                    .key("key-" + number)
                    .property("uid", "new-" + number)
                    .property("deliver_at_ms", Long.toString(dueMs))
                    .value(new byte[] {'x'})
                    .deliverAt(Instant.ofEpochMilli(dueMs))
                    .send());
        }
        for (CompletableFuture<MessageId> one : sent) {
            one.get();
        }
    }

    private static void receive(QueueConsumer<byte[]> consumer) {
        while (!ended) {
            try {
                Message<byte[]> message = consumer.receive(Duration.ofMillis(500));
                if (message == null) {
                    continue;
                }
                long now = System.currentTimeMillis();
                if (now < Long.parseLong(message.properties().get("deliver_at_ms"))) {
                    EARLY.incrementAndGet();
                    System.out.println("early: " + message.properties() + " of " + message.topic() + " at " + now);
                }
                consumer.acknowledge(message.id());
                CAME.computeIfAbsent(message.properties().get("uid"), uid -> new ArrayList<>())
                        .add(new Arrival(message.topic(), message.id(), message.redeliveryCount(), now,
                                System.currentTimeMillis()));
            } catch (Exception e) {
                if (!ended) {
                    e.printStackTrace();
                }
            }
        }
    }
}
