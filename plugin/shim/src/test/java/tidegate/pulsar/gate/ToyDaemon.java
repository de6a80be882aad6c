package tidegate.pulsar.gate;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.Consumer;
import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.Frame.Envelope;
import tidegate.pulsar.wire.FrameCodec;
import tidegate.pulsar.wire.FrameReader;
import tidegate.pulsar.wire.Incarnation;
import tidegate.pulsar.wire.Ownership;
import tidegate.pulsar.wire.Position;
import tidegate.pulsar.wire.PositionBitmaps;
import tidegate.pulsar.wire.ProtocolException;
import tidegate.pulsar.wire.Records;
import tidegate.pulsar.wire.ReleasePace;

/**
 * A daemon in memory that follows docs/protocol.md to the letter, for tests: one connection, bytes in and out.
 *
 * <p>A {@link #crash} loses all uncommitted data; {@link #wipe} loses the disk too.
 */
public final class ToyDaemon {
    /** One subscription's index. */
    public static final class Index {
        Incarnation incarnation;
        long generation;
        /** The epoch served last; nothing is known of it without a claim. */
        long epoch;
        Integer claim;
        Position markDelete = new Position(-1, -1);
        public final Map<Position, Long> held = new TreeMap<>();
        final Set<Position> acknowledged = new HashSet<>();
        /** From others than a broker since the last claim. */
        final Set<Position> putIn = new HashSet<>();

        Index copy() {
            Index copy = new Index();
            copy.incarnation = incarnation;
            copy.generation = generation;
            copy.epoch = epoch;
            copy.claim = claim;
            copy.markDelete = markDelete;
            copy.held.putAll(held);
            copy.acknowledged.addAll(acknowledged);
            copy.putIn.addAll(putIn);
            return copy;
        }

        void empty() {
            held.clear();
            acknowledged.clear();
        }

        /** True if it has a position behind that one. */
        boolean isBeyond(Position end) {
            return held.keySet().stream().anyMatch(position -> position.compareTo(end) > 0)
                    || acknowledged.stream().anyMatch(position -> position.compareTo(end) > 0);
        }
    }

    private static final class Stream {
        final int id;
        final Index index;
        final Set<Position> popped = new HashSet<>();
        boolean answered;
        final int horizonMs;
        final long generation;
        int credit;
        /** The last one from the shim. */
        ReleasePace pace = ReleasePace.NONE;
        long seq;
        long committedSeq;
        boolean closing;

        Stream(int id, Index index, Frame.Open open, int creditMax) {
            this.id = id;
            this.index = index;
            horizonMs = open.horizonMs();
            generation = open.generation();
            credit = Math.min(open.credit(), creditMax);
        }
    }

    private Map<String, Index> disk = new HashMap<>();
    private Map<String, Index> memory = new HashMap<>();
    private final Map<Integer, Stream> streams = new HashMap<>();
    private final List<ByteBuffer> output = new ArrayList<>();
    private FrameReader reader = new FrameReader();
    private final Set<Integer> failed = new HashSet<>();
    private final Map<String, Long> epochs = new HashMap<>();
    /** The claims of each life's owners, by epoch. */
    private final Map<String, Map<Long, Integer>> claims = new HashMap<>();
    private final Map<String, Map<Long, Position>> ends = new HashMap<>();
    private boolean greeted;
    private boolean changed = true;
    /** Frames of streams that were not open, numbers out of order: all that a real daemon would refuse. */
    public final List<String> violations = new ArrayList<>();
    /** The shim's answers to {@link #cancel}, by number. */
    final Map<Long, Frame.Cancelled> cancelled = new HashMap<>();
    /** The shim's answers to {@link #pace}, by number; the last unrequested one has number 0. */
    final Map<Long, Frame.Paced> paced = new HashMap<>();
    /** The shim's answers to {@link #reschedule}, by number. */
    final Map<Long, Frame.Rescheduled> rescheduled = new TreeMap<>();
    int version = FrameCodec.VERSION;
    final List<Frame> received = new ArrayList<>();
    int maxHeldPerFrame = 1000;
    /** A stream keeps no more credit than this. */
    int creditMax = Integer.MAX_VALUE;
    boolean answersOpen = true;

    private static Map<String, Index> copy(Map<String, Index> indexes) {
        Map<String, Index> copy = new HashMap<>();
        indexes.forEach((name, index) -> copy.put(name, index.copy()));
        return copy;
    }

    public Index index(String topic, String subscription) {
        return memory.computeIfAbsent(topic + " / " + subscription, name -> new Index());
    }

    Index onDisk(String topic, String subscription) {
        return disk.getOrDefault(topic + " / " + subscription, new Index());
    }

    /** The rest of the open streams, for the message of a failed test. */
    @Override
    public String toString() {
        StringBuilder text = new StringBuilder();
        streams.values().forEach(stream -> text.append("stream ").append(stream.id).append(" credit ")
                .append(stream.credit).append(" popped ").append(stream.popped));
        return text.toString();
    }

    /** The connection ends; both directions are lost. */
    void disconnect() {
        streams.clear();
        failed.clear();
        output.clear();
        reader = new FrameReader();
        greeted = false;
    }

    void crash() {
        disconnect();
        memory = copy(disk);
    }

    /** kill -9, and the data directory is gone. */
    void wipe() {
        disk = new HashMap<>();
        crash();
    }

    void receive(ByteBuffer bytes) throws ProtocolException {
        reader.feed(bytes);
        for (Envelope envelope; (envelope = reader.next()) != null; ) {
            received.add(envelope.frame());
            handle(envelope);
        }
    }

    /** The next bytes for the shim, or null. */
    ByteBuffer poll() {
        return output.isEmpty() ? null : output.remove(0);
    }

    /** Asks the newest stream's tracker to cancel; its answer will be in {@link #cancelled} under this number. */
    void cancel(long seq, boolean ask, Position... positions) {
        PositionBitmaps asked = new PositionBitmaps();
        for (Position position : positions) {
            asked.add(position.ledgerId(), position.entryId());
        }
        newest(stream -> send(stream.id, seq, new Frame.Cancel(ask, asked)));
    }

    /** As {@link #cancel}, for another pace; its answer will be in {@link #paced}. */
    void pace(long seq, boolean ask, ReleasePace pace) {
        newest(stream -> send(stream.id, seq, new Frame.Pace(ask, pace)));
    }

    /** The pace from the newest stream's shim; null without a stream. */
    ReleasePace knownPace() {
        ReleasePace[] known = {null};
        newest(stream -> known[0] = stream.pace);
        return known[0];
    }

    private void newest(Consumer<Stream> action) {
        streams.values().stream().filter(stream -> !stream.closing).max(Comparator.comparingInt(stream -> stream.id))
                .ifPresent(action);
    }

    /** Asks the newest stream's tracker for other due times. */
    void reschedule(long seq, boolean ask, Records records) {
        streams.values().stream().filter(stream -> !stream.closing).max(Comparator.comparingInt(stream -> stream.id))
                .ifPresent(stream -> send(stream.id, seq, new Frame.Reschedule(ask, records)));
    }

    private void send(int stream, long seq, Frame frame) {
        output.add(FrameCodec.encode(stream, seq, frame));
    }

    private void handle(Envelope envelope) {
        Frame frame = envelope.frame();
        if (frame instanceof Frame.Hello) {
            greeted = true;
            send(0, 0, new Frame.Welcome(version, 2000, 1, "toy"));
        } else if (!greeted) {
            violations.add(frame.name() + " before HELLO");
        } else if (frame instanceof Frame.Ping) {
            send(0, envelope.seq(), new Frame.Pong());
        } else if (frame instanceof Frame.Open open) {
            open(envelope.stream(), open);
        } else if (!(frame instanceof Frame.Pong)) {
            Stream stream = streams.get(envelope.stream());
            if (frame instanceof Frame.Error) {
                // The shim ends the stream, perhaps a failed one.
                streams.remove(envelope.stream());
                failed.add(envelope.stream());
                return;
            }
            if (failed.contains(envelope.stream())) {
                // It was on its way when the stream failed.
                return;
            }
            if (frame instanceof Frame.Cancelled answer) {
                // Perhaps behind the CLOSE that it has crossed; of an ended stream, nobody waits for it.
                if (stream != null) {
                    cancelled.put(envelope.seq(), answer);
                }
            } else if (frame instanceof Frame.Paced answer) {
                if (stream != null) {
                    stream.pace = answer.pace();
                    paced.put(envelope.seq(), answer);
                }
            } else if (frame instanceof Frame.Rescheduled answer) {
                if (stream != null) {
                    rescheduled.put(envelope.seq(), answer);
                }
            } else if (stream == null || stream.closing) {
                violations.add(frame.name() + " on stream " + envelope.stream() + ", which is not open");
            } else if (frame instanceof Frame.Credit credit) {
                stream.credit = Math.min(stream.credit + credit.more(), creditMax);
            } else if (envelope.seq() != stream.seq + 1) {
                violations.add(frame.name() + " with seq " + envelope.seq() + " after " + stream.seq);
            } else {
                stream.seq++;
                changed = true;
                change(stream, frame);
            }
        }
    }

    private void open(int id, Frame.Open open) {
        if (streams.containsKey(id)) {
            violations.add("stream " + id + " opened twice");
        }
        failed.remove(id);
        changed = true;
        Index index = index(open.topic(), open.subscription());
        if (!open.incarnation().equals(index.incarnation)) {
            index.empty();
            index.incarnation = open.incarnation();
            index.claim = null;
        }
        checkEpoch(open);
        claim(index, open);
        if (open.generation() == Seal.NONE || open.generation() != index.generation) {
            index.acknowledged.clear();
            index.generation = open.generation();
        }
        markDelete(index, open.markDeleteLedgerId(), open.markDeleteEntryId());
        Stream stream = new Stream(id, index, open, creditMax);
        open.inFlight().forEach((ledgerId, entryId) -> stream.popped.add(new Position(ledgerId, entryId)));
        stream.popped.retainAll(index.held.keySet());
        streams.put(id, stream);
        if (answersOpen) {
            answer(stream);
        }
    }

    /** The cursor counts epochs, so nobody ever opens a life of a subscription with a past epoch. */
    private void checkEpoch(Frame.Open open) {
        String life = open.topic() + " / " + open.subscription() + " / " + open.incarnation();
        long newest = epochs.getOrDefault(life, 0L);
        if (open.epoch() < newest) {
            violations.add("epoch " + open.epoch() + " after " + newest);
        }
        epochs.put(life, open.epoch());
        checkClaims(life, open);
    }

    /** No life here ever goes back, so an epoch has one claim, however often it is named, and each has its place. */
    private void checkClaims(String life, Frame.Open open) {
        Map<Long, Integer> known = claims.computeIfAbsent(life, one -> new HashMap<>());
        if (open.claims().size() != Math.min(open.epoch(), Ownership.MAX_CLAIMS)) {
            violations.add(open.claims().size() + " claims of epoch " + open.epoch());
        }
        for (int i = 0; i < open.claims().size(); i++) {
            long epoch = open.epoch() - open.claims().size() + 1 + i;
            Integer former = known.putIfAbsent(epoch, open.claims().get(i));
            if (former != null && !former.equals(open.claims().get(i))) {
                violations.add("epoch " + epoch + " has another claim than before");
            }
        }
        Position end = new Position(open.endLedgerId(), open.endEntryId());
        Position former = ends.computeIfAbsent(life, one -> new HashMap<>()).putIfAbsent(open.epoch(), end);
        if (former != null && !former.equals(end)) {
            violations.add("epoch " + open.epoch() + " was claimed at " + former + ", and at " + end);
        }
    }

    /** Empties the index if it is of another history of the subscription. */
    private static void claim(Index index, Frame.Open open) {
        if (open.claims().isEmpty()) {
            return;
        }
        Integer claim = open.claims().get(open.claims().size() - 1);
        boolean served = index.claim != null;
        boolean isFirst = !served || index.epoch != open.epoch() || !index.claim.equals(claim);
        long at = open.claims().size() - 1 - (open.epoch() - index.epoch);
        boolean continued = !served || at >= 0 && at < open.claims().size() && open.claims().get((int) at).equals(index.claim);
        if (isFirst && open.endLedgerId() >= 0) {
            // Published since the owner took the topic's end, and put in since: the owner reads them.
            index.putIn.removeIf(position -> position.compareTo(new Position(open.endLedgerId(), open.endEntryId())) <= 0);
            index.held.keySet().removeAll(index.putIn);
            index.putIn.clear();
        }
        boolean cut = isFirst && open.endLedgerId() >= 0 && index.isBeyond(new Position(open.endLedgerId(), open.endEntryId()));
        if (!continued || cut) {
            index.empty();
        }
        index.epoch = open.epoch();
        index.claim = claim;
    }

    /** Answers the unanswered ones, and all to come. */
    void answerOpens() {
        answersOpen = true;
        streams.values().stream().filter(stream -> !stream.answered).forEach(this::answer);
    }

    private void answer(Stream stream) {
        stream.answered = true;
        List<Position> held = new ArrayList<>(stream.index.held.keySet());
        PositionBitmaps acknowledged = new PositionBitmaps();
        stream.index.acknowledged.forEach(position -> acknowledged.add(position.ledgerId(), position.entryId()));
        for (int from = 0; from < held.size(); from += maxHeldPerFrame) {
            PositionBitmaps part = new PositionBitmaps();
            held.subList(from, Math.min(held.size(), from + maxHeldPerFrame))
                    .forEach(position -> part.add(position.ledgerId(), position.entryId()));
            send(stream.id, 0, new Frame.Held(false, part, new PositionBitmaps()));
        }
        send(stream.id, 0, new Frame.Held(true, new PositionBitmaps(), acknowledged));
    }

    private void change(Stream stream, Frame frame) {
        Index index = stream.index;
        boolean stale = stream.generation != index.generation;
        if (stale && (frame instanceof Frame.Ack || frame instanceof Frame.MarkDelete)) {
            return;
        }
        if (frame instanceof Frame.Add add) {
            Records records = add.records();
            for (int i = 0; i < records.size(); i++) {
                Position position = new Position(records.ledgerId(i), records.entryId(i));
                if (position.compareTo(index.markDelete) > 0 && !index.acknowledged.contains(position)) {
                    index.held.putIfAbsent(position, records.deliverAtMs(i));
                }
                if (add.near()) {
                    stream.popped.add(position);
                }
            }
        } else if (frame instanceof Frame.Move move) {
            move(stream, move);
        } else if (frame instanceof Frame.Ack ack) {
            ack.positions().forEach((ledgerId, entryId) -> {
                Position position = new Position(ledgerId, entryId);
                index.held.remove(position);
                stream.popped.remove(position);
                if (position.compareTo(index.markDelete) > 0) {
                    index.acknowledged.add(position);
                }
            });
        } else if (frame instanceof Frame.Unack unack) {
            unack.positions().forEach((ledgerId, entryId) ->
                    index.acknowledged.remove(new Position(ledgerId, entryId)));
        } else if (frame instanceof Frame.MarkDelete mark) {
            if (new Position(mark.ledgerId(), mark.entryId()).compareTo(index.markDelete) < 0) {
                violations.add("MARK_DELETE went back to " + mark.ledgerId() + ":" + mark.entryId());
            }
            markDelete(index, mark.ledgerId(), mark.entryId());
            stream.popped.retainAll(index.held.keySet());
        } else if (frame instanceof Frame.Clear) {
            index.empty();
            stream.popped.clear();
        } else if (frame instanceof Frame.Close) {
            stream.closing = true;
        } else {
            violations.add("the shim does not send " + frame.name());
        }
    }

    private void move(Stream stream, Frame.Move move) {
        if (version < FrameCodec.VERSION_WITH_MOVE) {
            violations.add("MOVE to a daemon that does not know it");
        }
        Records records = move.records();
        for (int i = 0; i < records.size(); i++) {
            Position position = new Position(records.ledgerId(i), records.entryId(i));
            if (position.compareTo(stream.index.markDelete) > 0 && !stream.index.acknowledged.contains(position)) {
                stream.index.held.put(position, records.deliverAtMs(i));
                stream.popped.remove(position);
                if (move.near()) {
                    stream.popped.add(position);
                }
            }
        }
    }

    private static void markDelete(Index index, long ledgerId, long entryId) {
        Position markDelete = new Position(ledgerId, entryId);
        if (markDelete.compareTo(index.markDelete) < 0) {
            // A reset of the cursor, which takes all acknowledgements back.
            index.acknowledged.clear();
        }
        index.markDelete = markDelete;
        index.held.keySet().removeIf(position -> position.compareTo(index.markDelete) <= 0);
        index.acknowledged.removeIf(position -> position.compareTo(index.markDelete) <= 0);
    }

    /** Puts everything on disk and says so. */
    void commit() {
        if (changed) {
            disk = copy(memory);
            changed = false;
        }
        for (Stream stream : List.copyOf(streams.values())) {
            if (stream.seq > stream.committedSeq) {
                stream.committedSeq = stream.seq;
                send(stream.id, stream.seq, new Frame.Durable());
            }
            if (stream.closing) {
                send(stream.id, 0, new Frame.Close());
                streams.remove(stream.id);
            }
        }
    }

    /** Pushes entries due within the horizon. */
    public void tick(long nowMs) {
        for (Stream stream : streams.values()) {
            List<Map.Entry<Position, Long>> due = new ArrayList<>();
            for (Map.Entry<Position, Long> entry : stream.index.held.entrySet()) {
                if (entry.getValue() <= nowMs + stream.horizonMs && !stream.popped.contains(entry.getKey())) {
                    due.add(entry);
                }
            }
            due.sort(Map.Entry.<Position, Long>comparingByValue().thenComparing(Map.Entry.comparingByKey()));
            Records records = new Records();
            for (Map.Entry<Position, Long> entry : due.subList(0, Math.min(due.size(), stream.credit))) {
                records.add(entry.getKey().ledgerId(), entry.getKey().entryId(), entry.getValue());
                stream.popped.add(entry.getKey());
                stream.credit--;
            }
            if (!records.isEmpty() && !stream.closing) {
                send(stream.id, 0, new Frame.Due(records));
            }
        }
    }

    /** Takes an entry in from elsewhere than the broker, as from a rebuild, and reports it held. */
    void takeIn(String topic, String subscription, Position position, long deliverAtMs) {
        Index index = index(topic, subscription);
        if (position.compareTo(index.markDelete) <= 0 || index.acknowledged.contains(position)
                || index.held.putIfAbsent(position, deliverAtMs) != null) {
            return;
        }
        index.putIn.add(position);
        changed = true;
        commit();
        PositionBitmaps held = new PositionBitmaps();
        held.add(position.ledgerId(), position.entryId());
        for (Stream stream : streams.values()) {
            if (stream.index == index && !stream.closing) {
                send(stream.id, 0, new Frame.Held(false, held, new PositionBitmaps()));
            }
        }
    }

    /** Loses a held position for good, as a corrupt block would; only a position on disk can be lost like that. */
    void corrupt(String topic, String subscription, Position position) {
        if (!onDisk(topic, subscription).held.containsKey(position)) {
            return;
        }
        changed = true;
        Index index = index(topic, subscription);
        index.held.remove(position);
        PositionBitmaps lost = new PositionBitmaps();
        lost.add(position.ledgerId(), position.entryId());
        for (Stream stream : streams.values()) {
            if (stream.index == index) {
                stream.popped.remove(position);
                send(stream.id, 0, new Frame.Unheld(lost));
            }
        }
    }

    /** Refuses the open streams, as a full disk would. */
    void failStreams() {
        failStreams(ProtocolException.STORAGE);
    }

    void failStreams(int code) {
        for (Stream stream : streams.values()) {
            send(stream.id, 0, new Frame.Error(code, "the test says so"));
        }
        failed.addAll(streams.keySet());
        streams.clear();
        memory = copy(disk);
    }
}
