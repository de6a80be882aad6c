package tidegate.pulsar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What is written down of ownership, and who may write it. */
class OwnershipTest {
    private static final String LIFE = "000102030405060708090a0b0c0d0e0f";

    private final ToyBroker cursor = new ToyBroker(new VirtualClock(ToyWorld.START_MS));
    private final Ownership first = Ownership.first(new Random(1));

    @Test
    void isReadAsItIsWritten() {
        Ownership ownership = Ownership.parse(LIFE + ":7");
        assertEquals(7, ownership.epoch());
        assertEquals(Incarnation.parse(LIFE), ownership.incarnation());
        assertEquals(LIFE + ":7", ownership.toString());
        assertEquals(LIFE + ":8", ownership.next().toString());
        assertEquals(0, first.epoch());
    }

    @ParameterizedTest
    @ValueSource(strings = {"", LIFE, ":7", LIFE + ":", LIFE + ":-1", LIFE + ":seven", "zz" + ":7", LIFE + ":9223372036854775808"})
    void whatIsSomethingElseIsNone(String text) {
        assertNull(Ownership.parse(text));
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
        Claim claim = new Claim(cursor, first);
        assertFalse(claim.isOwned());
        assertTrue(write(claim, 0));
        assertTrue(claim.isOwned());
        assertEquals(new Ownership(first.incarnation(), 1), cursor.ownership());
        assertEquals(1, cursor.disk.version);
        assertFalse(write(claim, 0), "it is owned");
        Claim later = new Claim(cursor, cursor.ownership());
        assertTrue(write(later, 0));
        assertEquals(2, later.ownership().epoch());
    }

    @Test
    void oneWriteAtATime() {
        Claim claim = new Claim(cursor, first);
        assertEquals(1, claim.begin(0).epoch());
        assertNull(claim.begin(60_000), "the answer to the first is still to come");
    }

    @Test
    void whoOwnsAnEpochWritesNone() {
        Claim claim = new Claim(cursor, first);
        claim.begin(0);
        claim.check();
        claim.take();
        assertThrows(IllegalStateException.class, claim::check);
    }

    @Test
    void aRefusedWriteIsTriedAgainWithGrowingPauses() {
        cursor.metadataConflicts = 3;
        Claim claim = new Claim(cursor, first);
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
        Claim claim = new Claim(cursor, first);
        for (int i = 1; i <= 4; i++) {
            assertFalse(claim.isStale(), i + " refusals");
            claim.begin(i * 60_000L);
            claim.written(TrackerHost.Written.FAILED, i * 60_000L);
            claim.begin(i * 60_000L + 30_000);
            claim.written(TrackerHost.Written.CONFLICT, i * 60_000L + 30_000);
        }
        assertTrue(claim.isStale(), "but not for what failed otherwise");
        assertTrue(write(claim, 600_000));
        assertFalse(claim.isStale());
    }

    @Test
    void itGoesByWhatTheMetadataSayMeanwhile() {
        Claim one = new Claim(cursor, first);
        Claim other = new Claim(cursor, Ownership.first(new Random(2)));
        Ownership next = one.begin(0);
        assertEquals(1, other.begin(0).epoch());
        cursor.putOwnership(next, done -> one.written(done, 0));
        cursor.runCursor();
        other.written(TrackerHost.Written.CONFLICT, 0);
        assertTrue(write(other, 60_000));
        assertEquals(new Ownership(first.incarnation(), 2), other.ownership());
    }

    @Test
    void whoHasLostItClaimsAnewAndSucceedsOnlyAsTheOwner() {
        Claim claim = new Claim(cursor, first);
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
