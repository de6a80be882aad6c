package tidegate.pulsar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import tidegate.pulsar.Frame.Envelope;

class OutboxTest {
    private final Outbox outbox = new Outbox();

    private static Positions one(long ledgerId, long entryId) {
        Positions positions = new Positions();
        positions.add(ledgerId, entryId);
        return positions;
    }

    private List<Frame> take() {
        return outbox.takeUnsent(3).stream().map(Envelope::frame).toList();
    }

    @Test
    void numbersFromOneAndKeepsUntilDurable() {
        outbox.addFar(1, 1, 100);
        outbox.addNear(1, 2, 50);
        assertEquals(2, outbox.pendingEntries());
        assertEquals(2, outbox.lastSeq());
        List<Envelope> frames = outbox.takeUnsent(3);
        assertEquals(List.of(new Envelope(3, 1, new Frame.Add(false, Records.of(1, 1, 100))),
                new Envelope(3, 2, new Frame.Add(true, Records.of(1, 2, 50)))), frames);
        outbox.durable(1);
        assertEquals(1, outbox.pendingEntries());
        outbox.durable(2);
        assertTrue(outbox.isEmpty());
    }

    @Test
    void whatIsNotDurableIsSentAgainFromOne() {
        outbox.addFar(1, 1, 100);
        take();
        outbox.acknowledge(one(1, 1));
        outbox.markDelete(1, 1);
        take();
        outbox.durable(1);
        outbox.addFar(1, 5, 100);
        outbox.restart();
        assertEquals(List.of(new Envelope(3, 1, new Frame.Ack(one(1, 1))), new Envelope(3, 2, new Frame.MarkDelete(1, 1)),
                new Envelope(3, 3, new Frame.Add(false, Records.of(1, 5, 100)))), outbox.takeUnsent(3));
    }

    @Test
    void longOutagesCostLittle() {
        for (int i = 0; i < 1000; i++) {
            outbox.acknowledge(one(1, i));
        }
        for (int i = 0; i < 1000; i++) {
            outbox.markDelete(1, i);
        }
        List<Frame> frames = take();
        assertEquals(2, frames.size());
        assertEquals(1000, ((Frame.Ack) frames.get(0)).positions().size());
        assertEquals(new Frame.MarkDelete(1, 999), frames.get(1));
    }

    @Test
    void anAddNeverOvertakesAnUnackThatCameFirst() {
        outbox.unacknowledge(one(1, 1));
        outbox.addFar(1, 1, 100);
        assertEquals(List.of(new Frame.Unack(one(1, 1)), new Frame.Add(false, Records.of(1, 1, 100))), take());
    }

    @Test
    void clearDropsWhatWasNotSent() {
        outbox.addFar(1, 1, 100);
        take();
        outbox.addFar(1, 2, 100);
        outbox.acknowledge(one(1, 1));
        outbox.clear();
        outbox.addFar(1, 3, 100);
        assertEquals(2, outbox.pendingEntries());
        assertEquals(List.of(new Frame.Clear(), new Frame.Add(false, Records.of(1, 3, 100))), take());
    }

    @Test
    void withoutADaemonFarAddsBecomeNear() {
        outbox.addFar(1, 1, 100);
        take();
        outbox.addFar(1, 2, 200);
        outbox.addNear(1, 3, 5);
        outbox.restart();
        List<Long> gated = new ArrayList<>();
        outbox.gateHere((ledgerId, entryId, deliverAtMs) -> gated.add(deliverAtMs));
        assertEquals(List.of(100L, 200L), gated);
        assertTrue(take().stream().allMatch(frame -> frame instanceof Frame.Add add && add.near()));
    }

    @Test
    void adoptsWhatAFormerTrackerLeft() {
        Outbox former = new Outbox();
        former.addNear(1, 1, 100);
        former.takeUnsent(2);
        former.acknowledge(one(1, 9));
        former.close();
        outbox.addFar(1, 2, 200);
        outbox.adopt(former);
        assertTrue(former.isEmpty());
        assertEquals(2, outbox.pendingEntries());
        assertEquals(List.of(new Frame.Add(false, Records.of(1, 1, 100)), new Frame.Ack(one(1, 9)),
                new Frame.Add(false, Records.of(1, 2, 200))), take());
    }

    @Test
    void correctsWhatTheDaemonSaysByWhatItHasNotHeard() {
        PositionSet held = new PositionSet();
        PositionSet acknowledged = new PositionSet();
        held.add(1, 1);
        held.add(1, 2);
        acknowledged.add(1, 3);
        outbox.acknowledge(one(1, 1));
        take();
        outbox.unacknowledge(one(1, 3));
        outbox.applyPendingTo(held, acknowledged);
        assertFalse(held.contains(1, 1));
        assertTrue(held.contains(1, 2));
        assertTrue(acknowledged.contains(1, 1), "acknowledged, only not durable yet");
        assertFalse(acknowledged.contains(1, 3));
        outbox.clear();
        outbox.applyPendingTo(held, acknowledged);
        assertTrue(held.isEmpty());
    }

    @Test
    void manyAddsAreManyFrames() {
        for (int i = 0; i < 3 * Frames.MAX_RECORDS + 1; i++) {
            outbox.addFar(1, i, 100);
        }
        assertEquals(4, outbox.lastSeq());
        assertEquals(4, take().size());
    }
}
