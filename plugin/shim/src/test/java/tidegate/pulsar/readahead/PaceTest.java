package tidegate.pulsar.readahead;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** Tests the speed of reading ahead by the latency of live traffic; a look each 50 ms, as the thread does. */
class PaceTest {
    private static final long LOOK_NS = TimeUnit.MILLISECONDS.toNanos(50);
    private static final long HIGHEST = 400_000;
    private static final Pace.Felt CALM = new Pace.Felt(2, 0.1);
    private static final Pace.Felt SLOW_PUBLISH = new Pace.Felt(9, 0.1);
    private static final Pace.Felt SLOW_DISPATCH = new Pace.Felt(2, 8);

    private long nowNs = -5;
    private final Pace pace = new Pace(HIGHEST, nowNs);

    /** Reads all that may be read until the next look; returns how many entries that were. */
    private long readUntilLook(Pace.Felt felt) {
        long read = 0;
        for (long endNs = nowNs + LOOK_NS; nowNs < endNs; nowNs += 1_000_000) {
            if (pace.mayRead(nowNs)) {
                int batch = pace.batch(4096);
                pace.spend(batch, 0, nowNs);
                read += batch;
            }
        }
        pace.look(felt);
        return read;
    }

    private void beCalm() {
        for (int i = 0; i < 20; i++) {
            pace.look(CALM);
        }
    }

    private void read(int looks, Pace.Felt felt) {
        for (int i = 0; i < looks; i++) {
            readUntilLook(felt);
        }
    }

    @Test
    void readsAsFastAsIsAllowedWhileNobodyFeelsIt() {
        beCalm();
        read(40, CALM);
        assertEquals(HIGHEST, pace.perSecond());
        long read = 0;
        for (int i = 0; i < 20; i++) {
            read += readUntilLook(CALM);
        }
        assertEquals(HIGHEST, read, 0.05 * HIGHEST);
    }

    @Test
    void goesUpWhereThereIsNoLiveTraffic() {
        read(40, Pace.Felt.NOTHING);
        assertEquals(HIGHEST, pace.perSecond());
    }

    @Test
    void backsOffWhenPublishingOrDispatchingGetsSlower() {
        for (Pace.Felt slow : new Pace.Felt[] {SLOW_PUBLISH, SLOW_DISPATCH}) {
            beCalm();
            read(40, CALM);
            read(8, slow);
            assertTrue(pace.perSecond() < HIGHEST / 2, pace.perSecond() + " a second");
            read(150, CALM);
            assertEquals(HIGHEST, pace.perSecond(), "it comes back");
        }
    }

    @Test
    void beginsSlowlyAndInSmallPiecesWhereSomebodyPublishes() {
        read(40, Pace.Felt.NOTHING);
        assertEquals(HIGHEST, pace.perSecond());
        assertEquals(4096, pace.batch(4096));
        assertEquals(4, pace.reads(4));
        // Between two passes, or while one goes on.
        pace.look(CALM);
        long first = pace.perSecond();
        assertTrue(first < HIGHEST / 2, first + " a second");
        assertTrue(pace.batch(4096) <= first / 100, pace.batch(4096) + " at once");
        assertEquals(1, pace.reads(4));
        read(40, Pace.Felt.NOTHING);
        assertEquals(HIGHEST, pace.perSecond());
        readUntilLook(CALM);
        assertEquals(first, pace.perSecond());
    }

    @Test
    void aPublisherThatPausesIsNotForgottenAtOnce() {
        beCalm();
        readUntilLook(CALM);
        readUntilLook(Pace.Felt.NOTHING);
        assertEquals(1, pace.reads(4));
    }

    @Test
    void whatWasFeltIsApproachedCarefullyAndNotForEver() {
        beCalm();
        read(40, CALM);
        while (pace.perSecond() == HIGHEST) {
            readUntilLook(SLOW_PUBLISH);
        }
        int quick = 0;
        for (; pace.perSecond() < HIGHEST * 3 / 4; quick++) {
            readUntilLook(CALM);
        }
        int careful = 0;
        for (; pace.perSecond() < HIGHEST; careful++) {
            readUntilLook(CALM);
        }
        assertTrue(careful > 5 * quick, careful + " looks after " + quick);
    }

    @Test
    void dispatchersMayWaitWhileNobodyPublishes() {
        beCalm();
        read(40, new Pace.Felt(Double.NaN, 80));
        assertEquals(HIGHEST, pace.perSecond());
        read(10, new Pace.Felt(2, 80));
        assertTrue(pace.perSecond() < HIGHEST / 2, pace.perSecond() + " a second");
    }

    @Test
    void neverStarvesHoweverSlowLiveTrafficIs() {
        beCalm();
        read(100, new Pace.Felt(10_000, 10_000));
        assertTrue(pace.perSecond() >= Pace.LOWEST_PER_SECOND, pace.perSecond() + " a second");
        long read = 0;
        for (int i = 0; i < 20; i++) {
            read += readUntilLook(new Pace.Felt(10_000, 10_000));
        }
        assertTrue(read >= Pace.LOWEST_PER_SECOND * 0.9, read + " in a second");
    }

    @Test
    void whatIsSlowWithoutItIsNoReasonToWait() {
        beCalm();
        // Something else makes publishing slow, and stays.
        read(400, SLOW_PUBLISH);
        assertEquals(HIGHEST, pace.perSecond());
    }

    @Test
    void slowerMeansSmallerBatches() {
        read(40, Pace.Felt.NOTHING);
        int large = pace.batch(4096);
        assertEquals(100, pace.batch(100));
        beCalm();
        read(15, SLOW_PUBLISH);
        assertTrue(pace.batch(4096) < large / 2, pace.batch(4096) + " after " + large);
    }

    @Test
    void whatWasNotUsedIsNotSavedUp() {
        readUntilLook(CALM);
        nowNs += TimeUnit.SECONDS.toNanos(10);
        assertTrue(readUntilLook(CALM) <= HIGHEST / 10);
    }

    /** At a speed that keeps nothing waiting. */
    private Pace fast() {
        Pace fast = new Pace(10_000_000, nowNs);
        fast.look(CALM);
        for (int i = 0; i < 100; i++) {
            fast.spend(10_000_000, 0, nowNs);
            nowNs += TimeUnit.SECONDS.toNanos(2);
            fast.look(CALM);
        }
        assertEquals(10_000_000, fast.perSecond());
        return fast;
    }

    @Test
    void besideLiveTrafficEachPieceIsFollowedByARest() {
        Pace fast = fast();
        long tookNs = TimeUnit.MILLISECONDS.toNanos(10);
        fast.spend(2_000, tookNs, nowNs);
        assertFalse(fast.mayRead(nowNs + 2 * tookNs - 1));
        assertTrue(fast.mayRead(nowNs + 2 * tookNs));
        // As long as a piece takes, but not as long as one that hung.
        nowNs += 2 * tookNs;
        long longestNs = TimeUnit.MILLISECONDS.toNanos(100);
        fast.spend(20_000, 6 * tookNs, nowNs);
        assertFalse(fast.mayRead(nowNs + longestNs - 1));
        assertTrue(fast.mayRead(nowNs + longestNs));
    }

    @Test
    void aRestDoesNotMakeItSlowerThanTheLowestSpeed() {
        // Nobody feels it, but pieces take long: the machine is like that.
        for (long tookMs : new long[] {2, 4, 8}) {
            Pace slow = new Pace(HIGHEST, nowNs);
            slow.look(CALM);
            long beganNs = nowNs;
            long read = 0;
            for (int piece = 0; piece < 200; piece++) {
                while (!slow.mayRead(nowNs)) {
                    nowNs += 10_000;
                }
                int batch = slow.batch(4096);
                nowNs += TimeUnit.MILLISECONDS.toNanos(tookMs);
                slow.spend(batch, TimeUnit.MILLISECONDS.toNanos(tookMs), nowNs);
                slow.look(CALM);
                read += batch;
            }
            double perSecond = read * 1e9 / (nowNs - beganNs);
            assertTrue(perSecond >= Pace.LOWEST_PER_SECOND * 0.9, perSecond + " a second, pieces of " + tookMs + " ms");
        }
    }

    @Test
    void besideLiveTrafficPiecesStaySmallHoweverFastItIs() {
        Pace fast = fast();
        assertTrue(fast.batch(4096) <= 512, fast.batch(4096) + " at once");
    }

    @Test
    void aSpeedThatIsNotMadeUseOfDoesNotRise() {
        pace.look(CALM);
        long first = pace.perSecond();
        for (int i = 0; i < 20; i++) {
            nowNs += LOOK_NS;
            // The storage gives no more than that.
            pace.spend(512, LOOK_NS / 4, nowNs);
            pace.look(CALM);
        }
        assertEquals(first, pace.perSecond());
        read(3, SLOW_PUBLISH);
        assertTrue(pace.perSecond() < first, "what is felt makes it slower at once");
    }

    @Test
    void whereNobodyPublishesNobodyNeedsARest() {
        read(40, Pace.Felt.NOTHING);
        nowNs += TimeUnit.SECONDS.toNanos(1);
        pace.spend(1, TimeUnit.MINUTES.toNanos(1), nowNs);
        assertTrue(pace.mayRead(nowNs));
    }

    @Test
    void restsForASecondAtMost() {
        pace.spend(Long.MAX_VALUE / 1000, 0, nowNs);
        assertTrue(pace.mayRead(nowNs + TimeUnit.SECONDS.toNanos(1)));
    }

    @Test
    void keepsToALowerSpeedThanItWouldBackOffTo() {
        Pace slow = new Pace(1000, 0);
        assertEquals(1000, slow.perSecond());
        slow.spend(1000, 0, 0);
        slow.look(SLOW_PUBLISH);
        assertEquals(1000, slow.perSecond());
        assertFalse(slow.mayRead(TimeUnit.MILLISECONDS.toNanos(900)));
        assertTrue(slow.mayRead(TimeUnit.MILLISECONDS.toNanos(1000)));
    }

    /**
     * Reads {@code entries} as a pass does, {@code perMs} a millisecond at most; returns how many of them were read in a hurry.
     */
    private long hurry(long entries, int perMs, Pace.Felt felt) {
        long hurried = 0;
        long left = entries;
        for (long ms = 0; left > 0 && ms < 600_000; ms++) {
            pace.want(left, nowNs);
            if (pace.mayRead(nowNs)) {
                int batch = (int) Math.min(left, pace.batch(perMs));
                hurried += pace.reads(4) == 4 ? batch : 0;
                pace.spend(batch, 0, nowNs);
                left -= batch;
            }
            nowNs += 1_000_000;
            if (ms % 50 == 49) {
                pace.look(felt);
            }
        }
        pace.want(0, nowNs);
        return hurried;
    }

    @Test
    void aSmallBacklogIsReadAtFullSpeedWhoeverPublishes() {
        beCalm();
        pace.spend(10_000, TimeUnit.MILLISECONDS.toNanos(50), nowNs);
        assertFalse(pace.mayRead(nowNs), "it rests");
        pace.want(100_000, nowNs);
        assertTrue(pace.mayRead(nowNs));
        assertEquals(4096, pace.batch(4096));
        long beganNs = nowNs;
        assertEquals(100_000, hurry(100_000, 4096, SLOW_PUBLISH));
        assertEquals(100_000 * 1e9 / HIGHEST, nowNs - beganNs, TimeUnit.MILLISECONDS.toNanos(25));
        assertEquals(1, pace.reads(4), "it is over");
    }

    @Test
    void aLargeBacklogIsNotHurriedForAPart() {
        beCalm();
        pace.want(Pace.MOST_HURRIED + 1, nowNs);
        assertEquals(1, pace.reads(4));
        pace.want(Pace.MOST_HURRIED, nowNs);
        assertEquals(4, pace.reads(4));
    }

    @Test
    void manySmallOnesAreHurriedForLessThanAHundredthOfTheTime() {
        beCalm();
        long[] hurriedIn = new long[300];
        for (long beganNs = nowNs; nowNs - beganNs < TimeUnit.SECONDS.toNanos(hurriedIn.length); ) {
            int second = (int) TimeUnit.NANOSECONDS.toSeconds(nowNs - beganNs);
            hurriedIn[second] += hurry(2_000, 400, CALM);
        }
        long window = 0;
        long most = 0;
        for (int second = 0; second < hurriedIn.length; second++) {
            window += hurriedIn[second] - (second < 100 ? 0 : hurriedIn[second - 100]);
            most = Math.max(most, window);
        }
        // At 150,000 a second, which is slow, it is a second.
        assertTrue(most >= Pace.MOST_HURRIED && most <= 150_000, most + " in 100 s");
        long later = 0;
        for (int second = 200; second < hurriedIn.length; second++) {
            later += hurriedIn[second];
        }
        assertEquals(Pace.MOST_HURRIED / 5, later, 2_500);
    }

    @Test
    void waitingInAHurryCostsNothing() {
        beCalm();
        for (int i = 0; i < 100; i++) {
            pace.want(100_000, nowNs);
            assertEquals(4, pace.reads(4), "nothing was read yet");
            nowNs += TimeUnit.MINUTES.toNanos(1);
        }
        assertEquals(100_000, hurry(100_000, 400, CALM));
    }

    @Test
    void whatIsFeltOfAHurryDoesNotMakeItSlowerAfterwards() {
        beCalm();
        read(40, CALM);
        assertEquals(HIGHEST, pace.perSecond());
        assertEquals(100_000, hurry(100_000, 400, SLOW_PUBLISH));
        readUntilLook(SLOW_PUBLISH);
        readUntilLook(CALM);
        assertEquals(HIGHEST, pace.perSecond());
    }

    @Test
    void whereNobodyPublishesHurriesAreSavedForLater() {
        read(40, Pace.Felt.NOTHING);
        for (int i = 0; i < 1000; i++) {
            pace.want(1000, nowNs);
            pace.spend(1000, 0, nowNs);
            nowNs += 1_000_000;
        }
        pace.want(0, nowNs);
        readUntilLook(CALM);
        assertEquals(Pace.MOST_HURRIED, hurry(Pace.MOST_HURRIED, 400, SLOW_PUBLISH));
    }

    @Test
    void whatIsAllowedAtMostIsNotExceededInAHurry() {
        Pace slow = new Pace(Pace.LOWEST_PER_SECOND, 0);
        slow.look(CALM);
        slow.want(1000, 0);
        assertEquals(1, slow.reads(4), "there is no speed to be won");
    }
}
