import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.transaction.Transaction;

/**
 * Acknowledges messages in transactions, which the Python client cannot.
 *
 * <p>Arguments: service URL, topic, the highest uid to acknowledge, an even one, then one group for each transaction: {@code commit|abort},
 * {@code individual|cumulative}, and the subscription, which has the odd uids acknowledged. Individually it acknowledges the
 * even ones up to that uid as a Shared consumer, cumulatively all up to it as a Failover one. Each transaction ends before the
 * next one begins.
 */
public final class TransactionalAcker {

    private TransactionalAcker() {
    }

    public static void main(String[] arguments) throws Exception {
        int highest = Integer.parseInt(arguments[2]);
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).enableTransaction(true).build()) {
            for (int at = 3; at < arguments.length; at += 3) {
                boolean cumulative = arguments[at + 1].equals("cumulative");
                try (Consumer<byte[]> consumer = client.newConsumer()
                        .topic(arguments[1])
                        .subscriptionName(arguments[at + 2])
                        .subscriptionType(cumulative ? SubscriptionType.Failover : SubscriptionType.Shared)
                        .subscribe()) {
                    Transaction transaction = client.newTransaction()
                            .withTransactionTimeout(10, TimeUnit.MINUTES)
                            .build()
                            .get(30, TimeUnit.SECONDS);
                    List<Message<byte[]>> received = receive(consumer, highest);
                    if (cumulative) {
                        consumer.acknowledgeCumulativeAsync(received.get(received.size() - 1).getMessageId(), transaction)
                                .get(30, TimeUnit.SECONDS);
                    } else {
                        for (Message<byte[]> message : received) {
                            consumer.acknowledgeAsync(message.getMessageId(), transaction).get(30, TimeUnit.SECONDS);
                        }
                    }
                    switch (arguments[at]) {
                        case "commit" -> transaction.commit().get(30, TimeUnit.SECONDS);
                        case "abort" -> transaction.abort().get(30, TimeUnit.SECONDS);
                        default -> throw new IllegalArgumentException(arguments[at] + ": commit or abort");
                    }
                }
            }
        }
    }

    /** The messages up to that uid, in order: it and every other one before it. */
    private static List<Message<byte[]>> receive(Consumer<byte[]> consumer, int highest) throws Exception {
        List<Message<byte[]>> received = new ArrayList<>();
        while (received.size() < highest / 2 + 1) {
            Message<byte[]> message = consumer.receive(30, TimeUnit.SECONDS);
            if (message == null) {
                throw new IllegalStateException("only " + received.size() + " came");
            }
            if (Integer.parseInt(message.getProperty("uid")) <= highest) {
                received.add(message);
            }
        }
        return received;
    }
}
