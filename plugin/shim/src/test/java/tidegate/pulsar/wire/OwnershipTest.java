package tidegate.pulsar.wire;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import tidegate.pulsar.gate.Claim;
import tidegate.pulsar.gate.ToyBroker;
import tidegate.pulsar.gate.ToyWorld;
import tidegate.pulsar.gate.TrackerContext;
import tidegate.pulsar.gate.VirtualClock;

/** Tests the stored record of ownership, and who may write it. */
class OwnershipTest {
    private static final Position NOT_KNOWN = new Position(-1, -1);
    private static final String LIFE = "000102030405060708090a0b0c0d0e0f";

    private final ToyBroker cursor = new ToyBroker(new VirtualClock(ToyWorld.START_MS));
    private final Ownership first = Ownership.first(new Random(1));
    private final Random random = new Random(4);

    @Test
    void isReadAsItIsWritten() {
        Ownership ownership = Ownership.parse(LIFE + ":7");
        assertEquals(7, ownership.epoch());
        assertEquals(Incarnation.parse(LIFE), ownership.incarnation());
        assertEquals(LIFE + ":7", ownership.toString());
        assertEquals(0, first.epoch());
        assertEquals(List.of(), first.claims());
        assertEquals(first, Ownership.parse(first.toString()));
    }

    @Test
    void theClaimsOfTheLastOwnersAreWrittenOldestFirst() {
        Ownership ownership = Ownership.parse(LIFE + ":7:00000001fcfdfeff");
        assertEquals(7, ownership.epoch());
        assertEquals(List.of(1, 0xfcfdfeff), ownership.claims());
        assertEquals(LIFE + ":7:00000001fcfdfeff", ownership.toString());
        assertEquals(ownership, Ownership.parse(ownership.toString()));
        assertEquals(ownership.hashCode(), Ownership.parse(ownership.toString()).hashCode());
        assertNotEquals(ownership, Ownership.parse(LIFE + ":7:00000001fcfdfefe"));
        assertNotEquals(ownership, Ownership.parse(LIFE + ":7"));
    }

    @Test
    void onceStoredWithASealIsAlwaysStoredWithOne() {
        assertFalse(first.next(false, random).sealed());
        Ownership ownership = first.next(true, random);
        assertTrue(ownership.sealed());
        assertTrue(ownership.next(false, random).sealed());
        assertEquals(ownership, Ownership.parse(ownership.toString()));
        assertEquals(LIFE + ":+7:00000001", Ownership.parse(LIFE + ":+7:00000001").toString());
        assertEquals(7, Long.parseLong("+7"), "as a broker reads it that knows of no seals");
    }

    @Test
    void anOwnerOfBeforeThereWereClaimsIsFollowedByOneThatHasOne() {
        Ownership old = Ownership.parse(LIFE + ":7");
        assertEquals(List.of(), old.claims());
        Ownership next = old.next(false, new Random(3));
        assertEquals(8, next.epoch());
        assertEquals(List.of(new Random(3).nextInt()), next.claims());
        assertEquals(next, Ownership.parse(next.toString()));
    }

    @Test
    void sixtyFourOwnersAreRemembered() {
        Random drawn = new Random(4);
        List<Integer> claims = new ArrayList<>();
        Ownership ownership = first;
        for (int epoch = 1; epoch <= 65; epoch++) {
            ownership = ownership.next(false, random);
            claims.add(drawn.nextInt());
            assertEquals(epoch, ownership.epoch());
            assertEquals(claims.subList(Math.max(0, epoch - 64), epoch), ownership.claims(), "none is left out");
            assertEquals(ownership, Ownership.parse(ownership.toString()));
            assertEquals(first.incarnation(), ownership.incarnation());
        }
        assertEquals(64, ownership.claims().size());
        assertEquals(LIFE.length() + ":65:".length() + 64 * 8, ownership.toString().length());
    }

    @Test
    void whatCannotBeIsNotMade() {
        assertThrows(IllegalArgumentException.class, () -> new Ownership(first.incarnation(), 1, false, List.of(1, 2)));
        assertThrows(IllegalArgumentException.class,
                () -> new Ownership(first.incarnation(), 99, false, Collections.nCopies(65, 1)));
    }

    @ParameterizedTest
    @ValueSource(strings = {"", LIFE, ":7", LIFE + ":", LIFE + ":-1", LIFE + ":seven", "zz" + ":7", LIFE + ":9223372036854775807",
            LIFE + ":9223372036854775808", LIFE + ":++1",
            LIFE + ":7:", LIFE + ":7:0000001", LIFE + ":7:000000010", LIFE + ":7:0000000x", LIFE + ":7:+0000001",
            LIFE + ":7:-0000001", LIFE + ":7:00000001:", LIFE + ":7:00000001:00000002", LIFE + "::00000001", LIFE + ":1:0000000100000002",
            LIFE + ":0:00000001", LIFE + ":-1:00000001", LIFE + ":seven:00000001", "zz:7:00000001"})
    void whatIsSomethingElseIsNone(String text) {
        assertNull(Ownership.parse(text));
    }

    @Test
    void moreClaimsThanAreKeptAreNone() {
        assertEquals(64, Ownership.parse(LIFE + ":99:" + "0badcafe".repeat(64)).claims().size());
        assertNull(Ownership.parse(LIFE + ":99:" + "0badcafe".repeat(65)));
    }

    private boolean write(Claim claim, long nowMs) {
        Ownership next = claim.begin(nowMs);
        if (next == null) {
            return false;
        }
        cursor.putOwnership(next, done -> claim.written(done, nowMs));
        cursor.runCursor();
        return true;
    }

    @Test
    void oneClaimIsOneWriteAndCountsOneFurther() {
        Claim claim = new Claim(cursor, first, random);
        assertFalse(claim.isOwned());
        assertTrue(write(claim, 0));
        assertTrue(claim.isOwned());
        assertEquals(new Ownership(first.incarnation(), 1, false, claim.ownership().claims()), cursor.ownership());
        assertEquals(1, claim.ownership().claims().size());
        assertEquals(1, cursor.disk.version);
        assertFalse(write(claim, 0), "it is owned");
        Claim later = new Claim(cursor, cursor.ownership(), random);
        assertTrue(write(later, 0));
        assertEquals(2, later.ownership().epoch());
        assertEquals(2, later.ownership().claims().size());
        assertEquals(claim.ownership().claims(), later.ownership().claims().subList(0, 1));
    }

    @Test
    void whatIsClaimedStaysUntilItIsLost() {
        Position last = new Position(3, 7);
        cursor.publish(last, -1);
        Claim claim = new Claim(cursor, first, random);
        assertEquals(NOT_KNOWN, claim.end());
        write(claim, 0);
        Ownership claimed = claim.ownership();
        cursor.publish(new Position(3, 8), -1);
        assertNull(claim.begin(60_000));
        assertEquals(claimed, claim.ownership());
        assertEquals(last, claim.end(), "as it was when it was claimed");
        claim.lost();
        write(claim, 60_000);
        assertEquals(2, claim.ownership().epoch());
        assertEquals(claimed.claims(), claim.ownership().claims().subList(0, 1));
        assertNotEquals(claimed.claims().get(0), claim.ownership().claims().get(1));
        assertEquals(new Position(3, 8), claim.end());
    }

    @Test
    void whatIsTriedAgainIsAnotherClaim() {
        Claim claim = new Claim(cursor, first, random);
        Ownership refused = claim.begin(0);
        claim.written(TrackerContext.Written.FAILED, 0);
        cursor.publish(new Position(3, 7), -1);
        Ownership next = claim.begin(60_000);
        assertEquals(refused.epoch(), next.epoch());
        assertEquals(1, next.claims().size(), "what was refused is nobody's");
        assertNotEquals(refused.claims(), next.claims());
        assertEquals(new Position(3, 7), claim.end());
    }

    @Test
    void aLastWordIsSaidUnderWhatIsThere() {
        Ownership there = first.next(false, random).next(false, random);
        Claim claim = new Claim(cursor, there, random);
        cursor.publish(new Position(3, 7), -1);
        claim.take();
        assertTrue(claim.isOwned());
        assertEquals(there, claim.ownership());
        assertEquals(NOT_KNOWN, claim.end());
    }

    @Test
    void oneWriteAtATime() {
        Claim claim = new Claim(cursor, first, random);
        assertEquals(1, claim.begin(0).epoch());
        assertNull(claim.begin(60_000), "the answer to the first is still to come");
    }

    @Test
    void whoOwnsAnEpochWritesNone() {
        Claim claim = new Claim(cursor, first, random);
        claim.begin(0);
        claim.check();
        claim.take();
        assertThrows(IllegalStateException.class, claim::check);
    }

    @Test
    void aRefusedWriteIsTriedAgainWithGrowingPauses() {
        cursor.metadataConflicts = 3;
        Claim claim = new Claim(cursor, first, random);
        long nowMs = 0;
        long tries = 0;
        while (!claim.isOwned()) {
            tries += write(claim, nowMs) ? 1 : 0;
            nowMs += 10;
        }
        assertEquals(4, tries);
        assertTrue(nowMs > 1_000, nowMs + " ms");
        assertEquals(1, claim.ownership().epoch(), "what was refused is not counted");
    }

    @Test
    void refusedOftenEnoughItGoesByAnOldVersion() {
        Claim claim = new Claim(cursor, first, random);
        for (int i = 1; i <= 4; i++) {
            assertFalse(claim.isStale(), i + " refusals");
            claim.begin(i * 60_000L);
            claim.written(TrackerContext.Written.FAILED, i * 60_000L);
            claim.begin(i * 60_000L + 30_000);
            claim.written(TrackerContext.Written.CONFLICT, i * 60_000L + 30_000);
        }
        assertTrue(claim.isStale(), "but not for what failed otherwise");
        assertTrue(write(claim, 600_000));
        assertFalse(claim.isStale());
    }

    @Test
    void itGoesByWhatTheMetadataSayMeanwhile() {
        Claim one = new Claim(cursor, first, random);
        Claim other = new Claim(cursor, Ownership.first(new Random(2)), random);
        Ownership next = one.begin(0);
        assertEquals(1, other.begin(0).epoch());
        cursor.putOwnership(next, done -> one.written(done, 0));
        cursor.runCursor();
        other.written(TrackerContext.Written.CONFLICT, 0);
        assertTrue(write(other, 60_000));
        assertEquals(new Ownership(first.incarnation(), 2, false, other.ownership().claims()), other.ownership());
        assertEquals(next.claims(), other.ownership().claims().subList(0, 1));
        assertEquals(2, other.ownership().claims().size());
    }

    @Test
    void whoHasLostItClaimsAnewAndSucceedsOnlyAsTheOwner() {
        Claim claim = new Claim(cursor, first, random);
        write(claim, 0);
        claim.lost();
        assertTrue(write(claim, 0));
        assertEquals(2, claim.ownership().epoch());
        cursor.disk.version = 99;
        claim.lost();
        write(claim, 0);
        assertFalse(claim.isOwned());
    }
}
