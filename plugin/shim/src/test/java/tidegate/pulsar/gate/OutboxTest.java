package tidegate.pulsar.gate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.TreeSet;
import org.junit.jupiter.api.Test;
import tidegate.pulsar.position.PositionSet;
import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.Frame.Envelope;
import tidegate.pulsar.wire.FrameCodec;
import tidegate.pulsar.wire.PositionBitmaps;
import tidegate.pulsar.wire.Records;

class OutboxTest {
    private final Outbox outbox = new Outbox();

    private static PositionBitmaps one(long ledgerId, long entryId) {
        PositionBitmaps positions = new PositionBitmaps();
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

    /** The other way round the daemon would take the message for the broker's, and the broker for the daemon's. */
    @Test
    void theLastMoveOfAPositionIsToldLast() {
        outbox.move(true, 1, 1, 50);
        outbox.move(false, 1, 2, 100);
        outbox.move(false, 1, 1, 900);
        outbox.move(true, 1, 1, 70);
        assertEquals(4, outbox.lastSeq());
        assertEquals(List.of(new Frame.Move(false, Records.of(1, 2, 100)), new Frame.Move(true, Records.of(1, 1, 50)),
                new Frame.Move(false, Records.of(1, 1, 900)), new Frame.Move(true, Records.of(1, 1, 70))), take());
    }

    @Test
    void aMoveIsToldBehindTheAddsBeforeIt() {
        outbox.addNear(1, 1, 50);
        outbox.move(false, 1, 1, 900);
        outbox.move(true, 1, 2, 60);
        outbox.move(false, 1, 2, 900);
        assertEquals(List.of(new Frame.Add(true, Records.of(1, 1, 50)), new Frame.Move(false, Records.of(1, 1, 900)),
                new Frame.Move(true, Records.of(1, 2, 60)), new Frame.Move(false, Records.of(1, 2, 900))), take());
    }

    @Test
    void whatIsNotDurableIsSentAgainFromOne() {
        outbox.addFar(1, 1, 100);
        take();
        outbox.acknowledge(one(1, 3));
        outbox.markDelete(1, 1);
        take();
        outbox.durable(1);
        outbox.addFar(1, 5, 100);
        outbox.restart();
        assertEquals(List.of(new Envelope(3, 1, new Frame.Ack(one(1, 3))), new Envelope(3, 2, new Frame.MarkDelete(1, 1)),
                new Envelope(3, 3, new Frame.Add(false, Records.of(1, 5, 100)))), outbox.takeUnsent(3));
    }

    @Test
    void longOutagesCostLittle() {
        for (int i = 0; i <= 1000; i++) {
            outbox.acknowledge(one(1, i));
        }
        for (int i = 0; i < 1000; i++) {
            outbox.markDelete(1, i);
        }
        List<Frame> frames = take();
        assertEquals(List.of(new Frame.Ack(one(1, 1000)), new Frame.MarkDelete(1, 999)), frames, "the others are marked deleted");
    }

    @Test
    void longOutagesCostLittleWhenMarkDeleteMovesAllTheTime() {
        for (int i = 0; i < 1000; i++) {
            outbox.acknowledge(one(1, 2 * i + 1000));
            outbox.addFar(1, 5000 + i, 100);
            outbox.markDelete(1, i);
        }
        assertTrue(outbox.lastSeq() <= 5, outbox.lastSeq() + " frames");
        List<Frame> frames = take();
        assertEquals(1000, frames.stream().filter(Frame.Ack.class::isInstance)
                .mapToLong(frame -> ((Frame.Ack) frame).positions().size()).sum());
        assertTrue(frames.contains(new Frame.MarkDelete(1, 999)));
        outbox.restart();
        outbox.acknowledge(one(1, 999));
        outbox.acknowledge(one(2, 0));
        outbox.markDelete(1, 3000);
        outbox.opened(new PositionSet(), false);
        assertEquals(List.of(new Frame.Ack(one(2, 0))), take().stream().filter(frame -> !(frame instanceof Frame.Add)).toList());
    }

    @Test
    void connectionsThatEndAtOnceLeaveNothingBehind() {
        for (int i = 0; i < 100; i++) {
            outbox.opened(new PositionSet(), false);
            outbox.acknowledge(one(1, i));
            take();
            outbox.restart();
        }
        outbox.opened(new PositionSet(), false);
        assertEquals(1, take().size());
    }

    @Test
    void whatWasAcknowledgedUnderAnotherSealIsDropped() {
        outbox.addFar(1, 1, 100);
        outbox.acknowledge(one(1, 2));
        take();
        outbox.acknowledge(one(1, 3));
        outbox.markDelete(1, 0);
        outbox.dropAcknowledgements();
        outbox.acknowledge(one(1, 4));
        PositionSet held = new PositionSet();
        PositionSet acknowledged = new PositionSet();
        outbox.applyPendingTo(held, acknowledged);
        assertEquals(one(1, 4), acknowledged.toPositions());
        assertEquals(List.of(new Frame.MarkDelete(1, 0), new Frame.Ack(one(1, 4))), take());
        outbox.restart();
        assertEquals(List.of(new Frame.Add(false, Records.of(1, 1, 100)), new Frame.MarkDelete(1, 0), new Frame.Ack(one(1, 4))),
                take());
    }

    @Test
    void aCloseGoesBeforeWhatWasNotSentWhichWaitsForTheNextStream() {
        outbox.addFar(1, 1, 100);
        take();
        outbox.addFar(1, 2, 100);
        assertEquals(List.of(new Envelope(3, 2, new Frame.Close())), outbox.takeClose(3));
        outbox.durable(1);
        assertEquals(1, outbox.pendingEntries());
        outbox.restart();
        outbox.opened(new PositionSet(), false);
        assertEquals(List.of(new Envelope(3, 1, new Frame.Add(false, Records.of(1, 2, 100)))), outbox.takeUnsent(3));
    }

    @Test
    void theCloseOfAFinishedTrackerIsItsLastWord() {
        outbox.takeClose(3);
        outbox.addFar(1, 2, 100);
        outbox.close();
        outbox.restart();
        outbox.opened(new PositionSet(), true);
        assertEquals(List.of(new Frame.Add(false, Records.of(1, 2, 100)), new Frame.Close()), take());
    }

    /** A daemon's state by the frames it gets; see docs/protocol.md. */
    private static final class Daemon {
        private TreeSet<Long> held = new TreeSet<>();
        private TreeSet<Long> acknowledged = new TreeSet<>();
        private long markDelete = -1;

        void apply(Frame frame) {
            if (frame instanceof Frame.Add add) {
                for (int i = 0; i < add.records().size(); i++) {
                    long entry = add.records().entryId(i);
                    if (entry > markDelete && !acknowledged.contains(entry)) {
                        held.add(entry);
                    }
                }
            } else if (frame instanceof Frame.Ack ack) {
                ack.positions().forEach((ledgerId, entry) -> {
                    held.remove(entry);
                    if (entry > markDelete) {
                        acknowledged.add(entry);
                    }
                });
            } else if (frame instanceof Frame.Unack unack) {
                unack.positions().forEach((ledgerId, entry) -> acknowledged.remove(entry));
            } else if (frame instanceof Frame.MarkDelete mark) {
                markDelete = mark.entryId();
                held.headSet(markDelete, true).clear();
                acknowledged.headSet(markDelete, true).clear();
            } else if (frame instanceof Frame.Clear) {
                held.clear();
                acknowledged.clear();
            }
        }

        @Override
        public String toString() {
            return "held " + held + " acknowledged " + acknowledged + " mark-delete " + markDelete;
        }
    }

    /** Random changes over connections that break anywhere; the daemon ends where each change, sent alone and once, leads. */
    @Test
    void mergedChangesMeanWhatEachOfThemMeant() {
        for (long seed = 0; seed < 2000; seed++) {
            Random random = new Random(seed);
            Outbox merged = new Outbox();
            Daemon meaning = new Daemon();
            Daemon daemon = new Daemon();
            List<String> history = new ArrayList<>();
            for (int step = 0; step < 60; step++) {
                change(random, merged, meaning, history);
                if (random.nextInt(8) == 0) {
                    send(random, merged, meaning, daemon);
                    history.add("sent");
                }
            }
            merged.takeUnsent(1).forEach(envelope -> daemon.apply(envelope.frame()));
            assertEquals(meaning.toString(), daemon.toString(), "seed " + seed + " " + history);
        }
    }

    private static void change(Random random, Outbox merged, Daemon meaning, List<String> history) {
        long entry = Math.max(0, meaning.markDelete) + random.nextInt(12);
        Frame frame;
        switch (random.nextInt(11)) {
            case 0, 1, 2, 3 -> {
                // The shim adds only positions that are neither marked deleted nor acknowledged.
                if (entry <= meaning.markDelete || meaning.acknowledged.contains(entry)) {
                    return;
                }
                if (random.nextBoolean()) {
                    merged.addFar(1, entry, 5);
                } else {
                    merged.addNear(1, entry, 5);
                }
                frame = new Frame.Add(false, Records.of(1, entry, 5));
            }
            case 4, 5, 6 -> {
                if (entry <= meaning.markDelete) {
                    return;
                }
                merged.acknowledge(one(1, entry));
                frame = new Frame.Ack(one(1, entry));
            }
            case 7, 8, 9 -> {
                entry = meaning.markDelete + random.nextInt(4);
                merged.markDelete(1, entry);
                frame = new Frame.MarkDelete(1, entry);
            }
            default -> {
                if (random.nextInt(4) == 0) {
                    merged.clear();
                    frame = new Frame.Clear();
                } else if (meaning.acknowledged.isEmpty()) {
                    return;
                } else {
                    merged.unacknowledge(one(1, meaning.acknowledged.first()));
                    frame = new Frame.Unack(one(1, meaning.acknowledged.first()));
                }
            }
        }
        meaning.apply(frame);
        history.add(frame.toString());
    }

    /** Some frames arrive, some of these are confirmed, and the connection may break. */
    private static void send(Random random, Outbox merged, Daemon meaning, Daemon daemon) {
        List<Envelope> frames = merged.takeUnsent(1);
        boolean breaks = random.nextBoolean();
        int arrived = breaks ? random.nextInt(frames.size() + 1) : frames.size();
        frames.subList(0, arrived).forEach(envelope -> daemon.apply(envelope.frame()));
        if (arrived > 0) {
            merged.durable(frames.get(random.nextInt(arrived)).seq());
        }
        if (breaks) {
            merged.restart();
            // OPEN carries the newest mark-delete position.
            merged.opened(new PositionSet(), false);
            daemon.apply(new Frame.MarkDelete(1, meaning.markDelete));
        }
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

    /** Another owner may have come between, and told acknowledgements; a deletion that was done makes another life. */
    @Test
    void doesNotAdoptThatAFormerTrackerForgotEverything() {
        Outbox former = new Outbox();
        former.clear();
        former.takeUnsent(2);
        former.addFar(1, 1, 100);
        former.clear();
        former.acknowledge(one(1, 9));
        outbox.adopt(former);
        assertTrue(former.isEmpty());
        assertEquals(List.of(new Frame.Ack(one(1, 9))), take());
    }

    /** HELD tells the successor that it is acknowledged, perhaps told by another owner since: the deletion is tried again. */
    @Test
    void doesNotAdoptThatAnAcknowledgementWasTakenBack() {
        Outbox former = new Outbox();
        former.unacknowledge(one(1, 1));
        former.takeUnsent(2);
        former.acknowledge(one(1, 9));
        former.unacknowledge(one(1, 2));
        outbox.adopt(former);
        PositionSet acknowledged = new PositionSet();
        acknowledged.add(1, 1);
        outbox.applyPendingTo(new PositionSet(), acknowledged);
        assertTrue(acknowledged.contains(1, 1));
        assertEquals(List.of(new Frame.Ack(one(1, 9))), take());
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
        for (int i = 0; i < 3 * FrameCodec.MAX_RECORDS + 1; i++) {
            outbox.addFar(1, i, 100);
        }
        assertEquals(4, outbox.lastSeq());
        assertEquals(4, take().size());
    }
}
