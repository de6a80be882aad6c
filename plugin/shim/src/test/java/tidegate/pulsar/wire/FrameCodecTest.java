package tidegate.pulsar.wire;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import tidegate.pulsar.wire.Frame.Envelope;

/** The codec against the golden files that were derived from docs/protocol.md by hand, and against broken bytes. */
class FrameCodecTest {
    private static final long T = 1_767_225_600_000L;
    private static final Map<String, Envelope> GOLDEN = golden();
    /** Frames of the control role, which no broker gets. */
    private static final List<String> CONTROL = List.of("20_query.hex", "21_reply.hex", "22_ingest.hex");

    private static Map<String, Envelope> golden() {
        Map<String, Envelope> frames = new LinkedHashMap<>();
        frames.put("01_hello", frame(0, 0, new Frame.Hello(3, 4, 1, "127.0.0.1:6650", "pulsar 4.0.8")));
        frames.put("01_hello_control", frame(0, 0, new Frame.Hello(1, 3, 2, "gezeiten-tür", "tidegate 0.1.0")));
        frames.put("02_welcome", frame(0, 0, new Frame.Welcome(4, 2000, 0x0123456789abcdefL, "tidegate 0.1.0")));
        frames.put("03_error",
                frame(0, 0, new Frame.Error(1, "the daemon speaks versions 2 to 3, the client 1 to 1")));
        frames.put("03_error_stream", frame(7, 0, new Frame.Error(8, "no space left in the data directory")));
        frames.put("04_ping", frame(0, 42, new Frame.Ping()));
        frames.put("05_pong", frame(0, 42, new Frame.Pong()));
        frames.put("10_open", frame(7, 0, open(0, 0, -1, new PositionBitmaps(), "", "", List.of(), -1, -1)));
        frames.put("10_open_in_flight", frame(7, 0, open(3, 0x7123456789abcdefL, 3,
                positions(12, 4, 12, 6, 15, 0, 15, 2 << 16 | 9), "bookkeeper", "1;4711;4700;bookkeeper",
                List.of(0x01020304, 0xfcfdfeff), 13, 77)));
        frames.put("11_held", frame(7, 0, new Frame.Held(true, three(), positions(12, 6, 12, 8))));
        frames.put("11_held_more", frame(7, 0, new Frame.Held(false, positions(12, 5), new PositionBitmaps())));
        frames.put("11_held_empty", frame(7, 0, new Frame.Held(true, new PositionBitmaps(), new PositionBitmaps())));
        frames.put("12_add", frame(7, 1, new Frame.Add(false,
                Records.of(12, 5, T + 60_000, 12, 7, T + 86_400_000, 15, 70_000, T + 1))));
        frames.put("12_add_near", frame(7, 2, new Frame.Add(true, Records.of(12, 8, T + 900))));
        frames.put("13_durable", frame(7, 2, new Frame.Durable()));
        frames.put("14_due", frame(7, 0, new Frame.Due(
                Records.of(15, 70_000, T + 1, 12, 5, T + 60_000, 12, 9, T + 60_000))));
        frames.put("15_credit", frame(7, 0, new Frame.Credit(5000)));
        frames.put("16_ack", frame(7, 3, new Frame.Ack(three())));
        frames.put("17_unack", frame(7, 4, new Frame.Unack(positions(12, 5, 12, 7))));
        frames.put("18_mark_delete", frame(7, 5, new Frame.MarkDelete(12, 9)));
        frames.put("19_clear", frame(7, 6, new Frame.Clear()));
        frames.put("1a_close", frame(7, 7, new Frame.Close()));
        frames.put("1a_close_daemon", frame(7, 0, new Frame.Close()));
        frames.put("1b_unheld", frame(7, 0, new Frame.Unheld(positions(15, 70_000))));
        ByteBuffer nothing = ByteBuffer.allocate(0);
        frames.put("1c_log_request", frame(7, 41, new Frame.LogRequest(Frame.LogRequest.APPEND, 4711, -1, -1, "", "",
                ByteBuffer.wrap(new byte[] {0x54, 0x47, 0x01, 0x62}))));
        frames.put("1c_log_request_point", frame(7, 42, new Frame.LogRequest(Frame.LogRequest.POINT, -1, -1, -1,
                "1;4700;4711;bookkeeper", "1;4711;4700;bookkeeper", nothing)));
        frames.put("1d_log_answer", frame(7, 43, new Frame.LogAnswer(Frame.LogAnswer.OK, -1, "",
                List.of(ByteBuffer.wrap(new byte[] {0x54, 0x47, 0x01, 0x68}), ByteBuffer.wrap(new byte[] {7})))));
        frames.put("1d_log_answer_away", frame(7, 44, Frame.LogAnswer.failed(Frame.LogAnswer.AWAY, "no bookie")));
        frames.put("1e_bypassed", frame(0, 0, new Frame.Bypassed(40, List.of(new Frame.Bypassed.Dispatcher(
                "persistent://public/default/t", "s", 1234, "Pulsar's Bucket tracker has them")))));
        frames.put("1e_bypassed_nothing", frame(0, 0, Frame.Bypassed.NOTHING));
        frames.put("23_http_request", frame(0, 9, new Frame.HttpRequest("POST", "/tidegate/v1/persistent/acme/shop/orders/sub/cancel",
                "acme-tür", ByteBuffer.wrap("{\"ids\":[\"17:4711\"]}".getBytes(StandardCharsets.UTF_8)))));
        frames.put("23_http_request_get", frame(0, 10,
                new Frame.HttpRequest("GET", "/tidegate/v1/persistent/acme/shop/orders/sub/tide?step_ms=60000", "", nothing)));
        frames.put("24_http_response", frame(0, 9, new Frame.HttpResponse(200, "application/json",
                ByteBuffer.wrap("{\"done\":1}".getBytes(StandardCharsets.UTF_8)))));
        frames.put("40_cancel", frame(7, 51, new Frame.Cancel(false, positions(12, 5, 12, 7, 15, 9))));
        frames.put("40_cancel_ask", frame(7, 52, new Frame.Cancel(true, positions(12, 5))));
        frames.put("41_cancelled", frame(7, 51,
                new Frame.Cancelled(Standing.SETTLED, positions(12, 5, 15, 9), new PositionBitmaps(), positions(12, 7))));
        frames.put("41_cancelled_undecided", frame(7, 53, Frame.Cancelled.notYet()));
        frames.put("41_cancelled_no_room", frame(7, 54,
                new Frame.Cancelled(Standing.NO_ROOM, positions(12, 5), new PositionBitmaps(), new PositionBitmaps())));
        frames.put("42_reschedule", frame(7, 61, new Frame.Reschedule(false, Records.of(12, 5, T + 60_000, 12, 7, 0, 15, 70_000, T + 1))));
        frames.put("42_reschedule_ask", frame(7, 62, new Frame.Reschedule(true, Records.of(12, 5, T + 60_000))));
        frames.put("43_rescheduled", frame(7, 61,
                new Frame.Rescheduled(Standing.SETTLED, positions(12, 5, 15, 9), new PositionBitmaps(), positions(12, 7))));
        frames.put("43_rescheduled_no_room", frame(7, 63,
                new Frame.Rescheduled(Standing.NO_ROOM, positions(12, 5), new PositionBitmaps(), new PositionBitmaps())));
        frames.put("43_rescheduled_undecided", frame(7, 64, Frame.Rescheduled.notYet()));
        frames.put("1f_move", frame(7, 8, new Frame.Move(false, Records.of(12, 5, T + 60_000, 15, 70_000, T + 1))));
        frames.put("1f_move_near", frame(7, 9, new Frame.Move(true, Records.of(12, 7, 0))));
        frames.put("44_pace", frame(7, 61, new Frame.Pace(false, ReleasePace.rate(500))));
        frames.put("44_pace_ask", frame(7, 62, new Frame.Pace(true, ReleasePace.NONE)));
        frames.put("44_pace_paused", frame(7, 63, new Frame.Pace(false, ReleasePace.PAUSED)));
        frames.put("45_paced", frame(7, 0, new Frame.Paced(ReleasePace.spread(600_000), 17, "")));
        frames.put("45_paced_not", frame(7, 63, new Frame.Paced(ReleasePace.NONE, 0, "no room")));
        frames.put("46_behind", frame(7, 0, new Frame.Behind(1_000_000)));
        frames.put("47_peek", frame(7, 70, new Frame.Peek(Frame.Peek.PROPERTY, "customer", "4711", positions(12, 5))));
        frames.put("48_peeked", frame(7, 70, new Frame.Peeked(positions(12, 5), positions(13, 6), 300, ByteBuffer.allocate(0))));
        frames.put("48_peeked_content", frame(7, 71, new Frame.Peeked(positions(12, 5), new PositionBitmaps(), 300,
                ByteBuffer.wrap("{\"size_bytes\":300,\"properties\":{}}".getBytes(StandardCharsets.UTF_8)))));
        return frames;
    }

    private static Envelope frame(int stream, long seq, Frame frame) {
        return new Envelope(stream, seq, frame);
    }

    private static Frame.Open open(long epoch, long generation, long markDeleteEntryId, PositionBitmaps inFlight,
            String logHome, String logPointer, List<Integer> claims, long endLedgerId, long endEntryId) {
        byte[] incarnation = new byte[16];
        for (int i = 0; i < incarnation.length; i++) {
            incarnation[i] = (byte) (0xa0 + i);
        }
        return new Frame.Open(new Incarnation(incarnation), epoch, generation, 2000, 20_000, 12, markDeleteEntryId,
                "persistent://public/default/orders-partition-3", "billing/é", inFlight, logHome, logPointer, claims,
                endLedgerId, endEntryId);
    }

    private static PositionBitmaps positions(long... pairs) {
        PositionBitmaps positions = new PositionBitmaps();
        for (int i = 0; i < pairs.length; i += 2) {
            positions.add(pairs[i], pairs[i + 1]);
        }
        return positions;
    }

    /** Ledger 15 has a run, the others arrays. */
    private static PositionBitmaps three() {
        PositionBitmaps positions = positions(12, 5, 12, 7, 12, 9, 16, 1, 16, 1 << 16 | 2, 16, 1 << 16 | 3);
        for (int entry = 0; entry < 1000; entry++) {
            positions.add(15, entry);
        }
        return positions.optimized();
    }

    private static Envelope decode(ByteBuffer bytes) throws ProtocolException {
        FrameReader reader = new FrameReader();
        reader.feed(bytes);
        Envelope envelope = reader.next();
        assertFalse(reader.hasPartialFrame());
        return envelope;
    }

    @Test
    void everyGoldenFileIsKnownHere() {
        Set<String> files = new HashSet<>();
        GoldenFrames.names("").stream().filter(name -> !name.startsWith("bad_") && !CONTROL.contains(name))
                .forEach(name -> files.add(name.replace(".hex", "")));
        assertEquals(files, GOLDEN.keySet());
    }

    @TestFactory
    Stream<DynamicTest> goldenFilesAreDecoded() {
        return GOLDEN.entrySet().stream().map(golden -> DynamicTest.dynamicTest(golden.getKey(), () ->
                assertEquals(golden.getValue(), decode(GoldenFrames.read(golden.getKey() + ".hex")))));
    }

    @TestFactory
    Stream<DynamicTest> goldenFilesAreWhatTheEncoderWrites() {
        return GOLDEN.entrySet().stream().map(golden -> DynamicTest.dynamicTest(golden.getKey(), () -> {
            Envelope envelope = golden.getValue();
            assertEquals(GoldenFrames.read(golden.getKey() + ".hex"),
                    FrameCodec.encode(envelope.stream(), envelope.seq(), envelope.frame()));
        }));
    }

    @TestFactory
    Stream<DynamicTest> badFilesAreRefusedWithTheirCode() {
        // The greeter negotiates the version, not the codec; a torn frame is no frame yet.
        return GoldenFrames.names("bad_").stream()
                .filter(name -> !name.startsWith("bad_version") && !name.equals("bad_torn.hex"))
                .map(name -> DynamicTest.dynamicTest(name, () -> {
                    ProtocolException refused =
                            assertThrows(ProtocolException.class, () -> decode(GoldenFrames.read(name)));
                    assertEquals(GoldenFrames.errorCode(name), refused.code());
                }));
    }

    @Test
    void framesOfTheControlRoleAreRefused() {
        for (String name : CONTROL) {
            ProtocolException refused = assertThrows(ProtocolException.class, () -> decode(GoldenFrames.read(name)));
            assertEquals(ProtocolException.MALFORMED, refused.code());
        }
    }

    @Test
    void aTornFrameIsNeverHandedOut() throws ProtocolException {
        FrameReader reader = new FrameReader();
        reader.feed(GoldenFrames.read("bad_torn.hex"));
        assertNull(reader.next());
        assertTrue(reader.hasPartialFrame());
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 2, 3, 7, 16, 1000, 100_000})
    void framesComeOutWholeHoweverTheBytesArrive(int chunk) throws ProtocolException {
        int sizeBytes = 0;
        List<ByteBuffer> encoded = new ArrayList<>();
        for (Envelope envelope : GOLDEN.values()) {
            encoded.add(FrameCodec.encode(envelope.stream(), envelope.seq(), envelope.frame()));
            sizeBytes += encoded.get(encoded.size() - 1).remaining();
        }
        ByteBuffer all = ByteBuffer.allocate(sizeBytes);
        encoded.forEach(all::put);
        all.flip();
        FrameReader reader = new FrameReader();
        List<Envelope> frames = new ArrayList<>();
        while (all.hasRemaining()) {
            int length = Math.min(chunk, all.remaining());
            reader.feed(all.slice(all.position(), length));
            all.position(all.position() + length);
            for (Envelope envelope; (envelope = reader.next()) != null; ) {
                frames.add(envelope);
            }
        }
        assertEquals(new ArrayList<>(GOLDEN.values()), frames);
    }

    @Test
    void aFrameLargerThanTheReadersBufferPasses() throws ProtocolException {
        Records records = new Records();
        for (int i = 0; i < FrameCodec.MAX_RECORDS; i++) {
            records.add(i, i, i);
        }
        ByteBuffer bytes = FrameCodec.encode(1, 1, new Frame.Add(false, records));
        FrameReader reader = new FrameReader();
        reader.feed(FrameCodec.encode(0, 1, new Frame.Ping()));
        reader.feed(bytes.slice(0, 100_000));
        assertEquals(new Frame.Ping(), reader.next().frame());
        assertNull(reader.next());
        reader.feed(bytes.slice(100_000, bytes.limit() - 100_000));
        assertEquals(new Frame.Add(false, records), reader.next().frame());
    }

    @Test
    void anyFlippedBitIsRefused() {
        for (Map.Entry<String, Envelope> golden : GOLDEN.entrySet()) {
            byte[] bytes = GoldenFrames.read(golden.getKey() + ".hex").array();
            Random random = new Random(golden.getKey().hashCode());
            for (int round = 0; round < 50; round++) {
                byte[] broken = bytes.clone();
                // Not in the length: a longer frame is one that has not arrived whole yet.
                int bit = FrameCodec.LENGTH_BYTES * 8 + random.nextInt((bytes.length - FrameCodec.LENGTH_BYTES) * 8);
                broken[bit / 8] ^= (byte) (1 << bit % 8);
                assertThrows(ProtocolException.class, () -> decode(ByteBuffer.wrap(broken)), golden.getKey());
            }
        }
    }

    @Test
    void whatDoesNotFitIntoAFrameIsNotEncoded() {
        String tooLong = "x".repeat(70_000);
        assertThrows(IllegalArgumentException.class, () -> FrameCodec.encode(0, 0, new Frame.Error(1, tooLong)));
        Records records = new Records();
        for (int i = 0; i < FrameCodec.MAX_LENGTH / 24; i++) {
            records.add(i, i, i);
        }
        assertThrows(IllegalArgumentException.class, () -> FrameCodec.encode(1, 1, new Frame.Add(false, records)));
        assertThrows(IllegalArgumentException.class, () -> positions(1, 1L << 32));
    }

    @Test
    void thereAreAsManyClaimsAsOwnersAreRemembered() throws ProtocolException {
        Frame.Open most = open(99, 1, -1, new PositionBitmaps(), "", "", Collections.nCopies(64, -1), 13, 77);
        assertEquals(most, decode(FrameCodec.encode(7, 0, most)).frame());
        Frame.Open more = open(99, 1, -1, new PositionBitmaps(), "", "", Collections.nCopies(65, -1), 13, 77);
        ProtocolException refused = assertThrows(ProtocolException.class, () -> decode(FrameCodec.encode(7, 0, more)));
        assertEquals(ProtocolException.MALFORMED, refused.code());
        assertTrue(refused.getMessage().startsWith("65 claims"), refused.getMessage());
    }

    @Test
    void positionsThatCannotBeAreRefused() throws ProtocolException {
        long[][] wild = {{12, -1}, {12, 1L << 32}, {12, Long.MAX_VALUE}, {12, Long.MIN_VALUE}, {-1, 5}};
        for (long[] position : wild) {
            for (Frame frame : List.of(new Frame.Due(Records.of(12, 4, T, position[0], position[1], T)),
                    new Frame.Add(true, Records.of(position[0], position[1], T)))) {
                ProtocolException refused =
                        assertThrows(ProtocolException.class, () -> decode(FrameCodec.encode(7, 0, frame)), frame::toString);
                assertEquals(ProtocolException.MALFORMED, refused.code());
            }
        }
        for (Frame frame : List.of(new Frame.Move(false, Records.of(12, 4, -1)), new Frame.Reschedule(false, Records.of(12, 4, -1)))) {
            assertThrows(ProtocolException.class, () -> decode(FrameCodec.encode(7, 1, frame)), frame::toString);
        }
        assertThrows(ProtocolException.class, () -> decode(FrameCodec.encode(7, 0, new Frame.Unheld(positions(-1, 5)))));
        Frame last = new Frame.Due(Records.of(0, 0, T, 12, 0xFFFF_FFFFL, T));
        assertEquals(last, decode(FrameCodec.encode(7, 0, last)).frame());
    }

    @Test
    void aLedgerThatIsTooLargeAloneIsCutAtEntryIds() {
        PositionBitmaps positions = new PositionBitmaps();
        Random random = new Random(6);
        for (int i = 0; i < 200_000; i++) {
            positions.add(9, random.nextInt(1 << 22));
        }
        positions.add(8, 1);
        positions.add(10, 1);
        List<PositionBitmaps> parts = positions.cut(50_000);
        assertTrue(parts.size() > 5);
        PositionBitmaps together = new PositionBitmaps();
        for (PositionBitmaps part : parts) {
            assertTrue(part.sizeBytes() <= 50_000, part.sizeBytes() + " bytes");
            together.addAll(part);
        }
        assertEquals(positions, together);
    }

    @Test
    void aLargeSetIsCutAtLedgerBorders() {
        PositionBitmaps positions = new PositionBitmaps();
        Random random = new Random(5);
        for (int ledger = 0; ledger < 50; ledger++) {
            for (int i = 0; i < 3000; i++) {
                positions.add(ledger, random.nextInt(1 << 20));
            }
        }
        List<PositionBitmaps> parts = positions.cut(100_000);
        assertTrue(parts.size() > 1);
        PositionBitmaps together = new PositionBitmaps();
        for (PositionBitmaps part : parts) {
            assertTrue(part.sizeBytes() <= 100_000, part.sizeBytes() + " bytes");
            together.addAll(part);
        }
        assertEquals(positions, together);
    }
}
