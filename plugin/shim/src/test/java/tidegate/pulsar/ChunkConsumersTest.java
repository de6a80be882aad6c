package tidegate.pulsar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;

import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.junit.jupiter.api.Test;

class ChunkConsumersTest {
    /** Equal as Pulsar's are: by connection and number. */
    private record ToyConsumer(int number) {}

    @Test
    void theChunksOfAConsumerThatHasGoneAreFreeAlsoIfItsSuccessorEqualsIt() {
        ToyConsumer stays = new ToyConsumer(1);
        ToyConsumer former = new ToyConsumer(2);
        ToyConsumer successor = new ToyConsumer(2);
        Map<String, ToyConsumer> byMessage = new ConcurrentHashMap<>(
                Map.of("kept", stays, "reconnected", former, "gone", new ToyConsumer(3), "new", successor));
        ChunkConsumers.keepOnly(List.of(successor, stays), byMessage);
        assertEquals(Map.of("kept", stays, "new", successor), byMessage);
        assertSame(successor, byMessage.get("new"));
    }

    @Test
    void aMessageKeepsAConnectedConsumerAndNoneThatGoesMeanwhile() {
        ToyConsumer stays = new ToyConsumer(1);
        ToyConsumer gone = new ToyConsumer(2);
        ToyConsumer successor = new ToyConsumer(2);
        Map<String, ToyConsumer> byMessage = new ConcurrentHashMap<>(Map.of("kept", stays, "taken", gone));
        ChunkConsumers.put("kept", successor, () -> List.of(stays, successor), byMessage);
        ChunkConsumers.put("taken", successor, () -> List.of(stays, successor), byMessage);
        ChunkConsumers.put("new", gone, () -> List.of(stays, successor), byMessage);
        assertEquals(Map.of("kept", stays, "taken", successor), byMessage);
        assertSame(successor, byMessage.get("taken"));
    }
}
