package tidegate.pulsar.link;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.SocketException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.UserPrincipal;
import java.time.Clock;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import tidegate.pulsar.gate.PendingBudget;
import tidegate.pulsar.gate.ToyBroker;
import tidegate.pulsar.gate.TrackerCore;
import tidegate.pulsar.gate.TrackerSettings;
import tidegate.pulsar.gate.VirtualClock;
import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.Frame.Envelope;
import tidegate.pulsar.wire.FrameCodec;
import tidegate.pulsar.wire.FrameReader;
import tidegate.pulsar.wire.Ownership;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.PositionBitmaps;
import tidegate.pulsar.wire.ProtocolException;
import tidegate.pulsar.wire.Records;

/** The link's thread against a daemon that the test plays itself, over a real Unix domain socket. */
@Timeout(30)
class DaemonLinkTest {
    @TempDir
    Path directory;

    private final Clock clock = Clock.systemUTC();
    private Path socket;
    private ServerSocketChannel server;
    private SocketChannel peer;
    private FrameReader reader;
    private DaemonLink link;
    private final PendingBudget budget = new PendingBudget(1000);

    @BeforeEach
    void listen() throws IOException {
        socket = directory.resolve("daemon.sock");
        bind();
    }

    private void bind() throws IOException {
        Files.deleteIfExists(socket);
        server = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
        server.bind(UnixDomainSocketAddress.of(socket));
    }

    @AfterEach
    void stop() throws IOException {
        if (link != null) {
            link.close();
        }
        hangUp();
        server.close();
    }

    private void startLink() throws IOException {
        startLink(new SocketPeer(SocketPeer::ownUserAndRoot));
    }

    private void startLink(SocketPeer trusted) throws IOException {
        link = new DaemonLink(socket, trusted, () -> Optional.of("127.0.0.1:6650"), "pulsar test");
        link.start();
    }

    private void accept() throws IOException {
        peer = server.accept();
        reader = new FrameReader();
    }

    private void hangUp() throws IOException {
        if (peer != null) {
            peer.close();
            peer = null;
        }
    }

    private Envelope receive() throws Exception {
        for (Envelope envelope; ; ) {
            if ((envelope = reader.next()) != null) {
                return envelope;
            }
            ByteBuffer bytes = ByteBuffer.allocate(4096);
            if (peer.read(bytes) < 0) {
                return null;
            }
            reader.feed(bytes.flip());
        }
    }

    /** The next frame that is not a heartbeat. */
    private Envelope receiveOther() throws Exception {
        Envelope envelope;
        do {
            envelope = receive();
        } while (envelope != null && envelope.frame() instanceof Frame.Ping);
        return envelope;
    }

    private void send(int stream, long seq, Frame frame) throws IOException {
        ByteBuffer bytes = FrameCodec.encode(stream, seq, frame);
        while (bytes.hasRemaining()) {
            peer.write(bytes);
        }
    }

    private void greet(int heartbeatMs) throws Exception {
        accept();
        assertInstanceOf(Frame.Hello.class, receive().frame());
        send(0, 0, new Frame.Welcome(FrameCodec.VERSION, heartbeatMs, 7, "test"));
    }

    /** A broker whose core tells the link of its frames. */
    private class LinkedBroker extends ToyBroker {
        LinkedBroker() {
            super(new VirtualClock(clock.millis()));
        }

        @Override
        public void framesWaiting() {
            link.framesWaiting(core);
        }

        @Override
        public Position persistedMarkDelete() {
            return new Position(3, 4);
        }
    }

    private TrackerCore newCore(String subscription) {
        return newCore(subscription, new LinkedBroker());
    }

    private TrackerCore newCore(String subscription, ToyBroker context) {
        context.core = new TrackerCore(context, clock, new TrackerSettings("topic", subscription,
                Ownership.first(new Random(1)), 2000, 100, 100, 60_000), new Random(2), budget);
        context.core.speakForLast();
        return context.core;
    }

    private Frame.Open open(int stream) throws Exception {
        Envelope open = receiveOther();
        assertEquals(stream, open.stream());
        return assertInstanceOf(Frame.Open.class, open.frame());
    }

    /** Streams 1 and 2, in any order. */
    private void openBoth() throws Exception {
        int first = receiveOpen();
        assertEquals(3, first + receiveOpen());
    }

    private int receiveOpen() throws Exception {
        Envelope envelope = receiveOther();
        assertInstanceOf(Frame.Open.class, envelope.frame());
        return envelope.stream();
    }

    private void answerEmpty(int stream) throws IOException {
        send(stream, 0, new Frame.Held(true, new PositionBitmaps(), new PositionBitmaps()));
    }

    private static void await(java.util.function.BooleanSupplier condition) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (!condition.getAsBoolean()) {
            assertTrue(System.nanoTime() < end, "waited for too long");
            TimeUnit.MILLISECONDS.sleep(2);
        }
    }

    @Test
    void tellsNothingToAProcessOfAnotherUser() throws Exception {
        AtomicInteger asked = new AtomicInteger();
        startLink(new SocketPeer(() -> {
            if (asked.incrementAndGet() == 1) {
                throw new IOException("the directory of users does not answer");
            }
            return Set.of(user("54321"));
        }));
        link.register(newCore("sub"));
        for (int connection = 0; connection < 3; connection++) {
            accept();
            assertNull(receive(), "the connection ends, and nothing was said");
            hangUp();
        }
        assertFalse(link.stats().connected());
        assertEquals(2, asked.get(), "what is known is not asked again");
    }

    @Test
    void trustsItsOwnUserAndRoot() throws Exception {
        Set<UserPrincipal> users = SocketPeer.ownUserAndRoot();
        assertEquals(new HashSet<>(List.of(Files.getOwner(socket), user("root"))), users);
    }

    @Test
    void knowsItsUserByNumber() throws Exception {
        assertEquals("54322", SocketPeer.effectiveUid(List.of("Name:\tjava", "Uid:\t54321\t54322\t54323\t54324", "Gid:\t1\t2\t3\t4")));
        assertThrows(IOException.class, () -> SocketPeer.effectiveUid(List.of("Name:\tjava", "Uid:")));
    }

    private static UserPrincipal user(String name) throws IOException {
        return FileSystems.getDefault().getUserPrincipalLookupService().lookupPrincipalByName(name);
    }

    @Test
    void greetsOpensAndSendsInBatches() throws Exception {
        startLink();
        TrackerCore core = newCore("sub");
        link.register(core);
        accept();
        Envelope hello = receive();
        assertEquals(new Envelope(0, 0, new Frame.Hello(3, 7, 1, "127.0.0.1:6650", "pulsar test")), hello);
        send(0, 0, new Frame.Welcome(FrameCodec.VERSION, 2000, 7, "test"));
        Frame.Open open = open(1);
        assertEquals("topic", open.topic());
        assertEquals("sub", open.subscription());
        assertEquals(3, open.markDeleteLedgerId());
        assertEquals(4, open.markDeleteEntryId());
        assertEquals(List.of(), open.claims(), "it speaks for one that has claimed nothing");
        assertEquals(-1, open.endLedgerId());
        assertEquals(-1, open.endEntryId());
        long later = clock.millis() + 3_600_000;
        core.queue().addMessage(5, 1, later);
        core.queue().addMessage(5, 2, later);
        answerEmpty(1);
        assertEquals(new Envelope(1, 1, new Frame.Add(false, Records.of(5, 1, later, 5, 2, later))), receiveOther());
        send(1, 1, new Frame.Durable());
        await(() -> core.stats().pending() == 0);
        assertTrue(link.isConnected());
    }

    @Test
    void connectsOnceTheBrokerKnowsItsName() throws Exception {
        AtomicReference<Optional<String>> name = new AtomicReference<>(Optional.empty());
        AtomicInteger asked = new AtomicInteger();
        link = new DaemonLink(socket, new SocketPeer(SocketPeer::ownUserAndRoot), () -> {
            asked.incrementAndGet();
            return name.get();
        }, "pulsar test");
        link.start();
        await(() -> asked.get() >= 2);
        server.configureBlocking(false);
        assertNull(server.accept(), "there is no name to say");
        server.configureBlocking(true);
        name.set(Optional.of("127.0.0.1:41234"));
        accept();
        assertEquals("127.0.0.1:41234", assertInstanceOf(Frame.Hello.class, receive().frame()).clientName());
    }

    @Test
    void connectsAgainAndSendsAgainWhatWasNotDurable() throws Exception {
        startLink();
        TrackerCore core = newCore("sub");
        link.register(core);
        greet(2000);
        open(1);
        answerEmpty(1);
        await(() -> core.handler().isOpen());
        long later = clock.millis() + 3_600_000;
        core.queue().addMessage(5, 1, later);
        receiveOther();
        hangUp();
        greet(2000);
        Frame.Open again = open(1);
        assertEquals(1, core.stats().near(), "gated here while the daemon was away");
        assertEquals(0, again.inFlight().size(), "it is the daemon's to hand out, as it is due later");
        answerEmpty(1);
        assertEquals(new Envelope(1, 1, new Frame.Add(false, Records.of(5, 1, later))), receiveOther());
        assertEquals(1, link.stats().reconnects());
    }

    @Test
    void waitsForADaemonThatIsNotThereYet() throws Exception {
        server.close();
        Files.deleteIfExists(socket);
        startLink();
        TrackerCore core = newCore("sub");
        link.register(core);
        TimeUnit.MILLISECONDS.sleep(50);
        bind();
        greet(2000);
        open(1);
        assertNotNull(core);
    }

    /** A frozen process accepts nobody, and after enough attempts the system takes no further one for it. */
    @Test
    void isNotHeldUpByADaemonThatAcceptsNobody() throws Exception {
        server.close();
        Files.delete(socket);
        server = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
        server.bind(UnixDomainSocketAddress.of(socket), 1);
        List<SocketChannel> queue = fillQueue();
        AtomicInteger attempts = new AtomicInteger();
        link = new DaemonLink(socket, new SocketPeer(SocketPeer::ownUserAndRoot), () -> {
            attempts.incrementAndGet();
            return Optional.of("127.0.0.1:6650");
        }, "pulsar test");
        link.start();
        await(() -> attempts.get() > 1);
        assertFalse(link.isConnected());
        for (int i = 0; i < queue.size(); i++) {
            server.accept().close();
        }
        greet(60_000);
        await(link::isConnected);
    }

    private List<SocketChannel> fillQueue() throws IOException {
        List<SocketChannel> queue = new ArrayList<>();
        while (true) {
            SocketChannel one = SocketChannel.open(StandardProtocolFamily.UNIX);
            one.configureBlocking(false);
            try {
                assertTrue(one.connect(UnixDomainSocketAddress.of(socket)));
            } catch (SocketException full) {
                one.close();
                return queue;
            }
            queue.add(one);
        }
    }

    @Test
    void answersPingAndSendsItsOwn() throws Exception {
        startLink();
        greet(100);
        send(0, 77, new Frame.Ping());
        boolean pong = false;
        boolean ping = false;
        while (!pong || !ping) {
            Envelope envelope = receive();
            if (envelope.frame() instanceof Frame.Pong) {
                assertEquals(77, envelope.seq());
                pong = true;
            } else {
                ping |= envelope.frame() instanceof Frame.Ping;
                send(0, envelope.seq(), new Frame.Pong());
            }
        }
    }

    @Test
    void leavesADaemonThatIsSilent() throws Exception {
        startLink();
        greet(50);
        int pings = 0;
        for (Envelope envelope = receive(); envelope != null; envelope = receive()) {
            // Until it has waited three heartbeats for a sign of life.
            pings += envelope.frame() instanceof Frame.Ping ? 1 : 0;
        }
        assertTrue(pings >= 1, "it has not asked for one");
        hangUp();
        greet(2000);
    }

    @Test
    void tellsTheDaemonWhyItLeaves() throws Exception {
        startLink();
        greet(2000);
        send(0, 0, new Frame.Hello(3, 3, 1, "nonsense", "nonsense"));
        ByteBuffer broken = FrameCodec.encode(0, 5, new Frame.Ping());
        broken.put(10, (byte) 1);
        peer.write(broken);
        Frame.Error error = assertInstanceOf(Frame.Error.class, receiveOther().frame());
        assertEquals(ProtocolException.MALFORMED, error.code());
        assertNull(receiveOther());
    }

    @Test
    void refusesADaemonOfAnotherVersion() throws Exception {
        startLink();
        accept();
        receive();
        send(0, 0, new Frame.Welcome(FrameCodec.VERSION + 1, 2000, 7, "test"));
        assertEquals(ProtocolException.VERSION, assertInstanceOf(Frame.Error.class, receive().frame()).code());
        assertNull(receive());
    }

    private static final Frame.Bypassed BYPASSED = new Frame.Bypassed(1,
            List.of(new Frame.Bypassed.Dispatcher("topic", "sub", 3, "another tracker has them")));

    @Test
    void tellsWhatBypassesAtOnceAndAfterEachConnection() throws Exception {
        startLink();
        greet(20_000);
        await(link::isConnected);
        link.bypassed(BYPASSED);
        assertEquals(new Envelope(0, 0, BYPASSED), receiveOther());
        hangUp();
        greet(20_000);
        assertEquals(new Envelope(0, 0, BYPASSED), receiveOther());
        link.bypassed(Frame.Bypassed.NOTHING);
        assertEquals(Frame.Bypassed.NOTHING, receiveOther().frame());
    }

    @Test
    void aDaemonOfAnOlderVersionIsNotToldWhatItDoesNotKnow() throws Exception {
        startLink();
        accept();
        receive();
        send(0, 0, new Frame.Welcome(3, 2000, 7, "test"));
        await(link::isConnected);
        link.bypassed(BYPASSED);
        link.register(newCore("sub"));
        assertInstanceOf(Frame.Open.class, receiveOther().frame());
    }

    @Test
    void anErrorOfTheDaemonEndsTheConnectionNotTheLink() throws Exception {
        startLink();
        greet(2000);
        send(0, 0, new Frame.Error(9, "shutting down"));
        assertNull(receiveOther());
        hangUp();
        greet(2000);
    }

    @Test
    void aTrackerThatFailsIsOpenedAgainAndTheOthersGoOn() throws Exception {
        AtomicInteger failures = new AtomicInteger(3);
        startLink();
        TrackerCore core = newCore("sub", new LinkedBroker() {
            @Override
            public void readMore() {
                if (failures.getAndDecrement() > 0) {
                    throw new NoClassDefFoundError("the broker is going down");
                }
            }
        });
        TrackerCore other = newCore("other");
        link.register(core);
        link.register(other);
        greet(2000);
        openBoth();
        answerEmpty(2);
        await(() -> other.handler().isOpen());
        answerEmpty(1);
        // HELD makes the dispatcher read, which fails, and so does telling it that the stream has ended.
        for (int stream : List.of(3, 4)) {
            Envelope end = receiveOther();
            assertEquals(ProtocolException.FAILED, assertInstanceOf(Frame.Error.class, end.frame()).code());
            Envelope again = receiveOther();
            assertInstanceOf(Frame.Open.class, again.frame());
            assertEquals(stream, again.stream());
            assertTrue(other.handler().isOpen());
            answerEmpty(stream);
        }
        await(() -> core.handler().isOpen() && other.handler().isOpen());
    }

    @Test
    void withoutADaemonTheNotesOfClosedTrackersDoNotPileUp() throws Exception {
        server.close();
        Files.deleteIfExists(socket);
        startLink();
        TrackerCore core = newCore("sub");
        link.register(core);
        for (int i = 0; i < 100; i++) {
            TrackerCore closed = newCore("closed " + i);
            link.register(closed);
            closed.queue().clear();
            closed.finish();
        }
        await(() -> link.unreadNotes() == 0);
        long later = clock.millis() + 3_600_000;
        core.queue().addMessage(5, 1, later);
        core.queue().clear();
        bind();
        greet(2000);
        // The link still fetches frames that were noted in vain.
        for (Envelope envelope; !((envelope = receiveOther()).frame() instanceof Frame.Clear); ) {
            if (envelope.frame() instanceof Frame.Open) {
                answerEmpty(envelope.stream());
            }
        }
    }

    @Test
    void manySubscriptionsShareTheConnection() throws Exception {
        startLink();
        List<TrackerCore> cores = java.util.stream.IntStream.range(0, 2000).mapToObj(i -> newCore("sub" + i)).toList();
        cores.forEach(link::register);
        greet(10_000);
        for (int i = 0; i < cores.size(); i++) {
            Envelope open = receiveOther();
            assertInstanceOf(Frame.Open.class, open.frame());
            answerEmpty(open.stream());
        }
        await(() -> cores.stream().allMatch(core -> core.handler().isOpen()));
    }

    @Test
    void closingWaitsForTheLastWord() throws Exception {
        startLink();
        TrackerCore core = newCore("sub");
        link.register(core);
        greet(2000);
        open(1);
        answerEmpty(1);
        await(() -> core.handler().isOpen());
        Thread closing = new Thread(() -> link.close(20_000));
        closing.start();
        assertEquals(new Envelope(1, 1, new Frame.Close()), receiveOther());
        assertTrue(closing.isAlive(), "nothing is confirmed yet");
        send(1, 1, new Frame.Durable());
        assertTrue(closing.isAlive(), "the daemon may have last words for the index log");
        send(1, 0, new Frame.Close());
        closing.join();
        assertTrue(core.isClosed());
    }

    @Test
    void aSuccessorIsOpenedAfterItsPredecessorIsClosed() throws Exception {
        startLink();
        TrackerCore first = newCore("sub");
        link.register(first);
        greet(2000);
        open(1);
        answerEmpty(1);
        await(() -> first.handler().isOpen());
        TrackerCore second = newCore("sub");
        link.register(second);
        assertEquals(new Envelope(1, 1, new Frame.Close()), receiveOther());
        open(2);
        send(1, 1, new Frame.Durable());
        send(1, 0, new Frame.Close());
        answerEmpty(2);
        await(() -> second.handler().isOpen());
        assertTrue(first.isClosed());
    }
}
