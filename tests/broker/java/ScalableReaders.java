import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.api.v5.Checkpoint;
import org.apache.pulsar.client.api.v5.CheckpointConsumer;
import org.apache.pulsar.client.api.v5.Message;
import org.apache.pulsar.client.api.v5.MessageId;
import org.apache.pulsar.client.api.v5.Producer;
import org.apache.pulsar.client.api.v5.PulsarClient;
import org.apache.pulsar.client.api.v5.QueueConsumer;
import org.apache.pulsar.client.api.v5.StreamConsumer;
import org.apache.pulsar.client.api.v5.config.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.v5.schema.Schema;

/**
 * What each kind of consumer of the v5 API gets of delayed messages on a scalable topic.
 *
 * <p>Arguments: service URL, admin URL, tenant/namespace/name, the number of messages. Half of them are due after 8 s, the others
 * in an hour. One line of the output: a JSON object with, for {@code queue} (subscription {@code sub}), {@code stream}
 * (subscription {@code stream}), {@code crowd} (four stream consumers of a subscription of that name, on two segments) and
 * {@code checkpoint} (no subscription), the number of messages that came before they were due,
 * and of those that came then or later; one that came twice counts once.
 */
public final class ScalableReaders {
    private static final long NEAR_MS = 8_000;
    private static final long HOUR_MS = 3_600_000;
    private static final long DEADLINE_MS = 60_000;
    private static final long SETTLE_MS = 5_000;
    /** More than segments, so that some share one. */
    private static final int CROWD = 4;
    private static final Duration WAIT = Duration.ofMillis(200);
    private static volatile boolean ended;

    /** Receives one message, and acknowledges it if that kind of consumer does; null after a while without any. */
    private interface Source {
        Message<byte[]> take() throws Exception;
    }

    /** The messages that one consumer got, by their number. */
    private static final class Got {
        final Map<String, Boolean> early = new ConcurrentHashMap<>();

        Thread from(Source source) {
            Thread thread = new Thread(() -> {
                while (!ended) {
                    try {
                        Message<byte[]> message = source.take();
                        if (message != null) {
                            long dueMs = Long.parseLong(message.properties().get("deliver_at_ms"));
                            early.putIfAbsent(message.properties().get("uid"), System.currentTimeMillis() < dueMs);
                        }
                    } catch (Exception e) {
                        if (!ended) {
                            e.printStackTrace();
                        }
                    }
                }
            });
            thread.start();
            return thread;
        }

        String told(String name) {
            long before = early.values().stream().filter(one -> one).count();
            return "\"" + name + "\": {\"early\": " + before + ", \"due\": " + (early.size() - before) + "}";
        }
    }

    private ScalableReaders() {
    }

    private static Message<byte[]> take(StreamConsumer<byte[]> consumer) throws Exception {
        Message<byte[]> message = consumer.receive(WAIT);
        if (message != null) {
            consumer.acknowledgeCumulative(message.id());
        }
        return message;
    }

    public static void main(String[] arguments) throws Exception {
        String topic = "topic://" + arguments[2];
        int messages = Integer.parseInt(arguments[3]);
        Got ofQueue = new Got();
        Got ofStream = new Got();
        Got ofCrowd = new Got();
        Got ofCheckpoint = new Got();
        try (PulsarAdmin admin = PulsarAdmin.builder().serviceHttpUrl(arguments[1]).build();
                PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).build()) {
            admin.scalableTopics().createScalableTopic(topic, 2);
            QueueConsumer<byte[]> queue = client.newQueueConsumer(Schema.bytes()).topic(topic).subscriptionName("sub")
                    .subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST).subscribe();
            StreamConsumer<byte[]> stream = client.newStreamConsumer(Schema.bytes()).topic(topic).subscriptionName("stream")
                    .subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST).subscribe();
            CheckpointConsumer<byte[]> checkpoint = client.newCheckpointConsumer(Schema.bytes()).topic(topic)
                    .startPosition(Checkpoint.earliest()).create();
            List<Thread> receivers = new ArrayList<>();
            for (int number = 0; number < CROWD; number++) {
                StreamConsumer<byte[]> one = client.newStreamConsumer(Schema.bytes()).topic(topic).subscriptionName("crowd")
                        .consumerName("crowd-" + number).subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST)
                        .subscribe();
                receivers.add(ofCrowd.from(() -> take(one)));
            }
            receivers.addAll(List.of(
                    ofQueue.from(() -> {
                        Message<byte[]> message = queue.receive(WAIT);
                        if (message != null) {
                            queue.acknowledge(message.id());
                        }
                        return message;
                    }),
                    ofStream.from(() -> take(stream)),
                    ofCheckpoint.from(() -> checkpoint.receive(WAIT))));
            // Until then each of the crowd connects as the only one of a segment, and then again, as one of several.
            Thread.sleep(SETTLE_MS);
            Producer<byte[]> producer = client.newProducer(Schema.bytes()).topic(topic).create();
            long startMs = System.currentTimeMillis();
            List<CompletableFuture<MessageId>> sent = new ArrayList<>();
            for (int number = 0; number < messages; number++) {
                long dueMs = startMs + (number < messages / 2 ? NEAR_MS : HOUR_MS);
                sent.add(producer.async().newMessage()
                        .key("key-" + number)
                        .property("uid", Integer.toString(number))
                        .property("deliver_at_ms", Long.toString(dueMs))
                        .value(new byte[] {'x'})
                        .deliverAt(Instant.ofEpochMilli(dueMs))
                        .send());
            }
            for (CompletableFuture<MessageId> one : sent) {
                one.get();
            }
            while (System.currentTimeMillis() < startMs + DEADLINE_MS && (ofQueue.early.size() < messages / 2
                    || ofCrowd.early.size() < messages / 2 || ofStream.early.size() < messages
                    || ofCheckpoint.early.size() < messages)) {
                Thread.sleep(100);
            }
            // Some seconds for messages an hour early.
            Thread.sleep(3_000);
            ended = true;
            for (Thread receiver : receivers) {
                receiver.join(10_000);
            }
            System.out.printf("%n{%s, %s, %s, %s}%n", ofQueue.told("queue"), ofStream.told("stream"),
                    ofCrowd.told("crowd"), ofCheckpoint.told("checkpoint"));
            System.out.flush();
        }
        System.exit(0);
    }
}
