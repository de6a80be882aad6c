package tidegate.pulsar.gate;

/** One subscription of one topic: at most one stream is open for it. Not one text: names may contain any character. */
public record SubscriptionKey(String topic, String subscription) {
}
