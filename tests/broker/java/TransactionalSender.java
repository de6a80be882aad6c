import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.TypedMessageBuilder;
import org.apache.pulsar.client.api.transaction.Transaction;

/**
 * Publishes messages in transactions, which the Python client cannot.
 *
 * <p>Arguments: service URL, topic, then one group for each transaction: {@code commit|abort|open}, the uid of its
 * first message, the number of messages, and deliver_at in ms since the epoch (0: not delayed). Each
 * transaction ends before the next one begins.
 */
public final class TransactionalSender {

    private TransactionalSender() {
    }

    public static void main(String[] arguments) throws Exception {
        try (PulsarClient client = PulsarClient.builder()
                .serviceUrl(arguments[0])
                .enableTransaction(true)
                .build();
                Producer<byte[]> producer = client.newProducer()
                        .topic(arguments[1])
                        .enableBatching(false)
                        .sendTimeout(0, TimeUnit.SECONDS)
                        .create()) {
            for (int at = 2; at < arguments.length; at += 4) {
                Transaction transaction = client.newTransaction()
                        .withTransactionTimeout(10, TimeUnit.MINUTES)
                        .build()
                        .get(30, TimeUnit.SECONDS);
                int first = Integer.parseInt(arguments[at + 1]);
                int number = Integer.parseInt(arguments[at + 2]);
                long deliverAtMillis = Long.parseLong(arguments[at + 3]);
                for (int index = first; index < first + number; index++) {
                    TypedMessageBuilder<byte[]> message = producer.newMessage(transaction)
                            .property("uid", String.format("%06d", index))
                            .value(new byte[] {'x'});
                    if (deliverAtMillis > 0) {
                        message.property("deliver_at_ms", Long.toString(deliverAtMillis)).deliverAt(deliverAtMillis);
                    }
                    message.send();
                }
                switch (arguments[at]) {
                    case "commit" -> transaction.commit().get(30, TimeUnit.SECONDS);
                    case "abort" -> transaction.abort().get(30, TimeUnit.SECONDS);
                    case "open" -> { }
                    default -> throw new IllegalArgumentException(arguments[at] + ": commit, abort or open");
                }
            }
        }
    }
}
