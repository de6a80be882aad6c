package tidegate.pulsar.link;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import tidegate.pulsar.gate.PendingBudget;
import tidegate.pulsar.gate.ToyBroker;
import tidegate.pulsar.gate.ToyWorld;
import tidegate.pulsar.gate.TrackerCore;
import tidegate.pulsar.gate.TrackerSettings;
import tidegate.pulsar.gate.VirtualClock;
import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.Frame.Envelope;
import tidegate.pulsar.wire.FrameReader;
import tidegate.pulsar.wire.FrameCodec;
import tidegate.pulsar.wire.Ownership;
import tidegate.pulsar.wire.PositionBitmaps;
import tidegate.pulsar.wire.ProtocolException;
import tidegate.pulsar.wire.Records;

/** Tests the succession when trackers and connections come and go; the test plays the daemon. */
class TrackerTableTest {
    private static final long LATER_MS = ToyWorld.START_MS + 3_600_000;

    private final VirtualClock clock = new VirtualClock(ToyWorld.START_MS);
    private final TrackerTable table = new TrackerTable();
    private final PendingBudget budget = new PendingBudget(1000);
    private LinkSession session;
    private FrameReader reader;

    private TrackerCore newCore(String subscription, ToyBroker context) {
        context.core = new TrackerCore(context, clock, new TrackerSettings("topic", subscription,
                Ownership.first(new Random(1)), 2000, 100, 100, 60_000), new Random(2), budget);
        context.core.speakForLast();
        return context.core;
    }

    private TrackerCore newCore(String subscription) {
        return newCore(subscription, new ToyBroker(clock));
    }

    private void connect() throws ProtocolException {
        session = new LinkSession("toy", "toy", clock.millis(), () -> { });
        reader = new FrameReader();
        table.connected(session);
        daemonSends(0, 0, new Frame.Welcome(FrameCodec.VERSION, 2000, 7, "test"));
        answerOpens();
    }

    private void daemonSends(int stream, long seq, Frame frame) throws ProtocolException {
        session.received(FrameCodec.encode(stream, seq, frame), clock.millis());
    }

    /** Answers every OPEN with an empty index; returns the other frames the daemon gets. */
    private List<Envelope> answerOpens() throws ProtocolException {
        List<Envelope> others = new ArrayList<>();
        for (int round = 0; round < 3; round++) {
            session.tick(clock.millis());
            for (ByteBuffer bytes; (bytes = session.output()) != null; ) {
                int length = bytes.remaining();
                reader.feed(bytes);
                session.written(length, clock.millis());
            }
            for (Envelope envelope; (envelope = reader.next()) != null; ) {
                if (envelope.frame() instanceof Frame.Open) {
                    daemonSends(envelope.stream(), 0, new Frame.Held(true, new PositionBitmaps(), new PositionBitmaps()));
                } else {
                    others.add(envelope);
                }
            }
        }
        return others;
    }

    private List<Frame> sent(TrackerCore core) throws ProtocolException {
        table.framesWaiting(core);
        return answerOpens().stream().map(Envelope::frame).toList();
    }

    @Test
    void aBrokerThatStoodStillHasNotListenedAndDoesNotCallTheDaemonSilent() throws ProtocolException {
        connect();
        clock.advance(60_000);
        session.tick(clock.millis());
        for (int beat = 0; beat < 2; beat++) {
            clock.advance(2_000);
            session.tick(clock.millis());
        }
        daemonSends(0, 0, new Frame.Pong());
        for (int beat = 0; beat < 3; beat++) {
            clock.advance(2_000);
            session.tick(clock.millis());
        }
        clock.advance(1);
        assertThrows(ProtocolException.class, () -> session.tick(clock.millis()));
    }

    @Test
    void whatAFormerTrackerLeftIsSentBeforeWhatItsSuccessorHadSent() throws ProtocolException {
        TrackerCore former = newCore("sub");
        table.register(former);
        connect();
        former.queue().addMessage(5, 1, LATER_MS);
        TrackerCore successor = newCore("sub");
        table.register(successor);
        answerOpens();
        successor.queue().addMessage(5, 2, LATER_MS);
        assertEquals(List.of(new Frame.Add(false, Records.of(5, 2, LATER_MS))), sent(successor));
        table.lost();
        assertTrue(former.isFinished());
        connect();
        assertEquals(List.of(new Frame.Add(false, Records.of(5, 1, LATER_MS)),
                new Frame.Add(false, Records.of(5, 2, LATER_MS))), sent(successor));
    }

    @Test
    void aForgottenTrackerTakesNothingOfTheBudgetWhoeverStillAsksIt() {
        TrackerCore core = newCore("sub");
        table.register(core);
        core.queue().addMessage(5, 1, LATER_MS);
        core.queue().shouldPause();
        assertEquals(1, budget.entries());
        core.finish();
        table.framesWaiting(core);
        table.forgetClosed(clock.millis());
        table.forgetClosed(clock.millis() + 61_000);
        assertEquals(0, budget.entries(), "the daemon was away for too long");
        core.queue().addMessage(5, 2, LATER_MS);
        core.queue().shouldPause();
        assertEquals(0, budget.entries());
        core.check();
    }

    @Test
    void aFormerTrackerTakesNothingOfTheBudgetWhoeverStillAsksIt() {
        TrackerCore former = newCore("sub");
        table.register(former);
        former.queue().addMessage(5, 1, LATER_MS);
        TrackerCore successor = newCore("sub");
        table.register(successor);
        former.queue().addMessage(5, 2, LATER_MS);
        former.queue().shouldPause();
        assertEquals(0, budget.entries());
        former.check();
    }

    @Test
    void aFormerTrackerThatOutlivesItsSuccessorKeepsItsLastWord() throws ProtocolException {
        TrackerCore former = newCore("sub");
        table.register(former);
        connect();
        former.queue().addMessage(5, 1, LATER_MS);
        TrackerCore successor = newCore("sub");
        table.register(successor);
        successor.finish();
        assertEquals(List.of(new Frame.Add(false, Records.of(5, 1, LATER_MS)), new Frame.Close()),
                answerOpens().stream().map(Envelope::frame).toList());
        assertEquals(List.of(new Frame.Close()), sent(successor));
        daemonSends(2, 1, new Frame.Durable());
        daemonSends(2, 0, new Frame.Close());
        assertTrue(successor.isClosed());
        table.forgetClosed(clock.millis());
        table.lost();
        assertFalse(former.handler().isOpen(), "it knows that the connection is gone");
        connect();
        assertEquals(List.of(new Frame.Add(false, Records.of(5, 1, LATER_MS)), new Frame.Close()),
                sent(former).stream().map(frame -> frame instanceof Frame.Add add ? new Frame.Add(false, add.records())
                        : frame).toList());
    }

    @Test
    void theIndexLogIsThereUntilTheDaemonHasAnsweredClose() throws ProtocolException {
        ToyBroker context = new ToyBroker(clock);
        TrackerCore core = newCore("sub", context);
        table.register(core);
        connect();
        core.finish();
        assertEquals(List.of(new Frame.Close()), sent(core));
        daemonSends(1, 1, new Frame.Durable());
        table.forgetClosed(clock.millis());
        daemonSends(1, 5, new Frame.LogRequest(Frame.LogRequest.APPEND, 7, -1, -1, "", "",
                ByteBuffer.wrap(new byte[] {1})));
        assertEquals(List.of(5L), answerOpens().stream().map(Envelope::seq).toList(), "it is asked, and answers");
        assertFalse(core.whenClosed().isDone());
        daemonSends(1, 0, new Frame.Close());
        table.forgetClosed(clock.millis());
        assertTrue(core.whenClosed().isDone());
        assertTrue(table.isEmpty());
    }

    @Test
    void aConnectionThatEndsBeforeCloseIsAnsweredIsNotWaitedFor() throws ProtocolException {
        TrackerCore core = newCore("sub");
        table.register(core);
        connect();
        core.finish();
        assertEquals(List.of(new Frame.Close()), sent(core));
        daemonSends(1, 1, new Frame.Durable());
        table.lost();
        assertTrue(core.isClosed());
        table.forgetClosed(clock.millis());
        assertTrue(table.isEmpty());
    }

    @Test
    void theLinkDoesNotWaitForTheLockOfATrackerThatIsNotFinished() throws ProtocolException {
        TrackerCore busy = newCore("busy");
        TrackerCore done = newCore("done");
        table.register(busy);
        table.register(done);
        connect();
        done.finish();
        assertEquals(List.of(new Frame.Close()), sent(done));
        daemonSends(2, 1, new Frame.Durable());
        daemonSends(2, 0, new Frame.Close());
        // On another thread, without the lock.
        busy.holdingLock(() ->
                assertTimeoutPreemptively(Duration.ofSeconds(5), () -> table.forgetClosed(clock.millis())));
        assertTrue(done.whenClosed().isDone());
        assertFalse(table.isEmpty(), "the busy one is still there");
    }

    @Test
    void aTrackerThatCannotBeOpenedIsAskedAgainWhenItSaysSoOrAfterAWhile() throws ProtocolException {
        ToyBroker context = new ToyBroker(clock);
        TrackerCore waiting = new TrackerCore(context, clock, new TrackerSettings("topic", "waiting",
                Ownership.first(new Random(1)), 2000, 100, 100, 60_000), new Random(2), budget);
        context.core = waiting;
        table.register(waiting);
        connect();
        assertFalse(waiting.handler().isOpen(), "it has claimed nothing yet");
        waiting.holdingLock(() ->
                assertTimeoutPreemptively(Duration.ofSeconds(5), () -> session.tick(clock.millis())));
        waiting.speakForLast();
        assertEquals(List.of(), answerOpens());
        assertFalse(waiting.handler().isOpen(), "nobody has said that it can be opened now");
        clock.advance(100);
        answerOpens();
        assertTrue(waiting.handler().isOpen());

        daemonSends(1, 0, new Frame.Error(ProtocolException.STALE_EPOCH, "another one has it"));
        answerOpens();
        assertFalse(waiting.handler().isOpen());
        waiting.speakForLast();
        clock.advance(1000);
        table.framesWaiting(waiting);
        answerOpens();
        assertTrue(waiting.handler().isOpen());
    }

    @Test
    void oneThatFailsDoesNotKeepTheOthersFromHearingTheNews() throws ProtocolException {
        boolean[] broken = {false};
        TrackerCore failing = newCore("failing", new ToyBroker(clock) {
            @Override
            public void readMore() {
                if (broken[0]) {
                    throw new NoClassDefFoundError("the broker is going down");
                }
            }
        });
        TrackerCore other = newCore("other");
        table.register(failing);
        table.register(other);
        connect();
        assertTrue(other.handler().isOpen());
        broken[0] = true;
        table.lost();
        assertFalse(other.handler().isOpen());
        broken[0] = false;
        connect();
        assertTrue(failing.handler().isOpen());
        assertTrue(other.handler().isOpen());
    }

    @Test
    void oneThatFailsAtAFrameTakesNoOtherWithIt() throws ProtocolException {
        boolean[] broken = {false};
        TrackerCore failing = newCore("failing", new ToyBroker(clock) {
            @Override
            public boolean isDeleted(long ledgerId, long entryId) {
                if (broken[0]) {
                    throw new IllegalStateException("a bug");
                }
                return super.isDeleted(ledgerId, entryId);
            }
        });
        TrackerCore other = newCore("other");
        table.register(failing);
        table.register(other);
        connect();
        failing.queue().addMessage(5, 1, LATER_MS);
        assertEquals(List.of(new Frame.Add(false, Records.of(5, 1, LATER_MS))), sent(failing));
        broken[0] = true;
        daemonSends(1, 0, new Frame.Due(Records.of(5, 9, clock.millis() + 1)));
        daemonSends(2, 0, new Frame.Due(Records.of(6, 1, clock.millis() + 1)));
        assertEquals(clock.millis() + 1, other.queue().nextDueMs(), "it has its entry");
        broken[0] = false;

        table.restartFailed(clock.millis());
        assertFalse(failing.handler().isOpen());
        assertTrue(other.handler().isOpen());
        List<Envelope> told = answerOpens();
        assertEquals(1, told.size());
        assertEquals(1, told.get(0).stream());
        assertEquals(ProtocolException.FAILED, ((Frame.Error) told.get(0).frame()).code());
        // Frames under way on the ended stream belong to nobody.
        daemonSends(1, 1, new Frame.Durable());

        clock.advance(1000);
        table.restartFailed(clock.millis());
        assertEquals(List.of(), answerOpens());
        assertEquals(List.of(new Frame.Add(false, Records.of(5, 1, LATER_MS))), sent(failing),
                "what was not durable is sent again");
        assertTrue(failing.handler().isOpen());
        assertTrue(other.handler().isOpen());
    }

    @Test
    void aFormerTrackerThatFailsLeavesItsChangesToItsSuccessorInOrder() throws ProtocolException {
        boolean[] broken = {false};
        TrackerCore former = newCore("sub", new ToyBroker(clock) {
            @Override
            public void readMore() {
                if (broken[0]) {
                    throw new IllegalStateException("a bug");
                }
            }
        });
        table.register(former);
        connect();
        former.queue().addMessage(5, 1, LATER_MS);
        TrackerCore successor = newCore("sub");
        table.register(successor);
        answerOpens();
        successor.queue().addMessage(5, 2, LATER_MS);
        assertEquals(List.of(new Frame.Add(false, Records.of(5, 2, LATER_MS))), sent(successor));
        broken[0] = true;
        daemonSends(1, 0, new Frame.Unheld(new PositionBitmaps()));
        broken[0] = false;
        table.restartFailed(clock.millis());
        clock.advance(1000);
        table.restartFailed(clock.millis());
        answerOpens();
        assertEquals(List.of(new Frame.Add(false, Records.of(5, 1, LATER_MS)),
                new Frame.Add(false, Records.of(5, 2, LATER_MS))), sent(successor));
        assertTrue(successor.handler().isOpen());
    }

    /** The daemon had the entry before it let go of it, and DURABLE is still on its way: nobody would hold it. */
    @Test
    void whatTheDaemonLetsGoOfWhileItIsBeingToldIsToldOnceMore() throws ProtocolException {
        TrackerCore core = newCore("sub");
        table.register(core);
        connect();
        core.queue().addMessage(5, 1, LATER_MS);
        core.queue().addMessage(5, 2, LATER_MS);
        assertEquals(1, sent(core).size());
        PositionBitmaps gone = new PositionBitmaps();
        gone.add(5, 1);
        daemonSends(1, 0, new Frame.Unheld(gone));
        daemonSends(1, 1, new Frame.Durable());
        assertEquals(List.of(new Frame.Add(false, Records.of(5, 1, LATER_MS))), sent(core));
    }

    /**
     * A subscription was deleted and made again while the daemon's disk is full: an OPEN of its former life ends this one's.
     */
    @Test
    void aFormerTrackerThatTheDaemonRefusesIsNotOpenedBehindItsSuccessor() throws ProtocolException {
        TrackerCore former = newCore("sub");
        table.register(former);
        connect();
        former.queue().addMessage(5, 1, LATER_MS);
        ToyBroker context = new ToyBroker(clock);
        TrackerCore successor = new TrackerCore(context, clock, new TrackerSettings("topic", "sub",
                Ownership.first(new Random(9)), 2000, 100, 100, 60_000), new Random(2), budget);
        context.core = successor;
        successor.speakForLast();
        table.register(successor);
        answerOpens();
        successor.queue().addMessage(7, 1, LATER_MS);
        assertEquals(List.of(new Frame.Add(false, Records.of(7, 1, LATER_MS))), sent(successor));

        daemonSends(1, 0, new Frame.Error(ProtocolException.STORAGE, "the disk is full"));
        for (int second = 0; second < 5; second++) {
            clock.advance(1000);
            table.restartFailed(clock.millis());
            answerOpens();
        }
        assertFalse(former.handler().isOpen(), "its successor speaks for the subscription");
        assertTrue(successor.handler().isOpen());
    }

    /** The former's changes that were not on the daemon's disk go out before its successor's. */
    @Test
    void aFormerTrackerThatTheDaemonRefusesLeavesItsChangesToItsSuccessor() throws ProtocolException {
        TrackerCore former = newCore("sub");
        table.register(former);
        connect();
        former.queue().addMessage(5, 1, LATER_MS);
        TrackerCore successor = newCore("sub");
        table.register(successor);
        answerOpens();
        successor.queue().addMessage(5, 2, LATER_MS);
        assertEquals(List.of(new Frame.Add(false, Records.of(5, 2, LATER_MS))), sent(successor));
        daemonSends(1, 0, new Frame.Error(ProtocolException.STALE_EPOCH, "another one has it"));
        table.restartFailed(clock.millis());
        clock.advance(1000);
        table.restartFailed(clock.millis());
        answerOpens();
        assertEquals(List.of(new Frame.Add(false, Records.of(5, 1, LATER_MS)),
                new Frame.Add(false, Records.of(5, 2, LATER_MS))), sent(successor));
        assertTrue(successor.handler().isOpen());
    }

    /** Both names may have blanks and slashes: a topic of an old namespace, with a cluster in its name, in its last part. */
    @Test
    void namesThatLookAlikeWhenTheyAreJoinedAreTwoSubscriptions() {
        List<TrackerCore> cores = new ArrayList<>();
        for (String[] names : new String[][] {{"topic / a", "b"}, {"topic", "a / b"}}) {
            ToyBroker context = new ToyBroker(clock);
            context.core = new TrackerCore(context, clock, new TrackerSettings(names[0], names[1],
                    Ownership.first(new Random(1)), 2000, 100, 100, 60_000), new Random(2), budget);
            cores.add(context.core);
            table.register(context.core);
        }
        assertFalse(cores.get(0).isFinished(), "it would hand out nothing any more");
        assertFalse(cores.get(1).isFinished());
    }

    /** Pulsar cleans up after a subscription without a tracker while one is being made. */
    @Test
    void aLastWordDoesNotEndTheTrackerThatIsThere() throws ProtocolException {
        TrackerCore live = newCore("sub");
        table.register(live);
        connect();
        live.queue().addMessage(5, 1, LATER_MS);
        TrackerCore lastWord = newCore("sub");
        lastWord.queue().clear();
        lastWord.finish();
        table.register(lastWord);
        assertFalse(live.isFinished());
        assertTrue(lastWord.whenClosed().isDone(), "nobody waits for it");
        assertEquals(List.of(new Frame.Add(false, Records.of(5, 1, LATER_MS))), sent(live));
        live.finish();
        assertEquals(List.of(new Frame.Close()), sent(live));
    }

    @Test
    void aTrackerThatAFormerDispatcherHasMadeTooLateDoesNotEndTheOneThatIsThere() throws ProtocolException {
        TrackerCore current = newCore("sub");
        table.register(current);
        connect();
        TrackerCore late = newCore("sub", new ToyBroker(clock) {
            @Override
            public boolean isClosed() {
                return true;
            }
        });
        late.queue().addMessage(5, 1, LATER_MS);
        table.register(late);
        assertTrue(late.isFinished());
        assertFalse(current.isFinished());
        current.queue().addMessage(5, 2, LATER_MS);
        assertEquals(List.of(new Frame.Add(false, Records.of(5, 2, LATER_MS))), sent(current));
    }

    @Test
    void aLastWordFollowsATrackerWhoseDispatcherIsClosed() throws ProtocolException {
        TrackerCore closed = newCore("sub");
        table.register(closed);
        connect();
        closed.close();
        TrackerCore lastWord = newCore("sub");
        lastWord.queue().clear();
        lastWord.finish();
        table.register(lastWord);
        assertTrue(closed.isFinished());
        assertEquals(List.of(new Frame.Close()), sent(closed));
        assertEquals(List.of(new Frame.Clear(), new Frame.Close()), sent(lastWord));
    }

    /** A non-durable subscription goes with its last consumer; its next life has another cursor. */
    @Test
    void aSubscriptionThatIsNotDurableIsForgottenAtItsEnd() throws ProtocolException {
        ToyBroker context = new ToyBroker(clock);
        context.durable = false;
        TrackerCore core = newCore("sub", context);
        table.register(core);
        connect();
        core.queue().addMessage(5, 1, LATER_MS);
        assertEquals(List.of(new Frame.Add(false, Records.of(5, 1, LATER_MS))), sent(core));
        core.finish();
        assertEquals(List.of(new Frame.Clear(), new Frame.Close()), sent(core));
    }
}
