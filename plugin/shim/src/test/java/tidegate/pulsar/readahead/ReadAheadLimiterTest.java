package tidegate.pulsar.readahead;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** Tests the speed of reading ahead by the latency of live traffic; a look each 50 ms, as the thread does. */
class ReadAheadLimiterTest {
    private static final long LOOK_NS = TimeUnit.MILLISECONDS.toNanos(50);
    private static final long HIGHEST = 400_000;
    private static final ReadAheadLimiter.Felt CALM = new ReadAheadLimiter.Felt(2, 0.1);
    private static final ReadAheadLimiter.Felt SLOW_PUBLISH = new ReadAheadLimiter.Felt(9, 0.1);
    private static final ReadAheadLimiter.Felt SLOW_DISPATCH = new ReadAheadLimiter.Felt(2, 8);

    private long nowNs = -5;
    private final ReadAheadLimiter limiter = new ReadAheadLimiter(HIGHEST, nowNs);

    /** Reads all that may be read until the next look; returns how many entries that were. */
    private long readUntilLook(ReadAheadLimiter.Felt felt) {
        long read = 0;
        for (long endNs = nowNs + LOOK_NS; nowNs < endNs; nowNs += 1_000_000) {
            if (limiter.mayRead(nowNs)) {
                int batch = limiter.batch(4096);
                limiter.spend(batch, 0, nowNs);
                read += batch;
            }
        }
        limiter.look(felt);
        return read;
    }

    private void beCalm() {
        for (int i = 0; i < 20; i++) {
            limiter.look(CALM);
        }
    }

    private void read(int looks, ReadAheadLimiter.Felt felt) {
        for (int i = 0; i < looks; i++) {
            readUntilLook(felt);
        }
    }

    @Test
    void readsAsFastAsIsAllowedWhileNobodyFeelsIt() {
        beCalm();
        read(40, CALM);
        assertEquals(HIGHEST, limiter.perSecond());
        long read = 0;
        for (int i = 0; i < 20; i++) {
            read += readUntilLook(CALM);
        }
        assertEquals(HIGHEST, read, 0.05 * HIGHEST);
    }

    @Test
    void goesUpWhereThereIsNoLiveTraffic() {
        read(40, ReadAheadLimiter.Felt.NOTHING);
        assertEquals(HIGHEST, limiter.perSecond());
    }

    @Test
    void backsOffWhenPublishingOrDispatchingGetsSlower() {
        for (ReadAheadLimiter.Felt slow : new ReadAheadLimiter.Felt[] {SLOW_PUBLISH, SLOW_DISPATCH}) {
            beCalm();
            read(40, CALM);
            read(8, slow);
            assertTrue(limiter.perSecond() < HIGHEST / 2, limiter.perSecond() + " a second");
            read(150, CALM);
            assertEquals(HIGHEST, limiter.perSecond(), "it comes back");
        }
    }

    @Test
    void beginsSlowlyAndInSmallPiecesWhereSomebodyPublishes() {
        read(40, ReadAheadLimiter.Felt.NOTHING);
        assertEquals(HIGHEST, limiter.perSecond());
        assertEquals(4096, limiter.batch(4096));
        assertEquals(4, limiter.reads(4));
        // Between two passes, or while one goes on.
        limiter.look(CALM);
        long first = limiter.perSecond();
        assertTrue(first < HIGHEST / 2, first + " a second");
        assertTrue(limiter.batch(4096) <= first / 100, limiter.batch(4096) + " at once");
        assertEquals(1, limiter.reads(4));
        read(40, ReadAheadLimiter.Felt.NOTHING);
        assertEquals(HIGHEST, limiter.perSecond());
        readUntilLook(CALM);
        assertEquals(first, limiter.perSecond());
    }

    @Test
    void aPublisherThatPausesIsNotForgottenAtOnce() {
        beCalm();
        readUntilLook(CALM);
        readUntilLook(ReadAheadLimiter.Felt.NOTHING);
        assertEquals(1, limiter.reads(4));
    }

    @Test
    void whatWasFeltIsApproachedCarefullyAndNotForEver() {
        beCalm();
        read(40, CALM);
        while (limiter.perSecond() == HIGHEST) {
            readUntilLook(SLOW_PUBLISH);
        }
        int quick = 0;
        for (; limiter.perSecond() < HIGHEST * 3 / 4; quick++) {
            readUntilLook(CALM);
        }
        int careful = 0;
        for (; limiter.perSecond() < HIGHEST; careful++) {
            readUntilLook(CALM);
        }
        assertTrue(careful > 5 * quick, careful + " looks after " + quick);
    }

    @Test
    void dispatchersMayWaitWhileNobodyPublishes() {
        beCalm();
        read(40, new ReadAheadLimiter.Felt(Double.NaN, 80));
        assertEquals(HIGHEST, limiter.perSecond());
        read(10, new ReadAheadLimiter.Felt(2, 80));
        assertTrue(limiter.perSecond() < HIGHEST / 2, limiter.perSecond() + " a second");
    }

    @Test
    void neverStarvesHoweverSlowLiveTrafficIs() {
        beCalm();
        read(100, new ReadAheadLimiter.Felt(10_000, 10_000));
        assertTrue(limiter.perSecond() >= ReadAheadLimiter.LOWEST_PER_SECOND, limiter.perSecond() + " a second");
        long read = 0;
        for (int i = 0; i < 20; i++) {
            read += readUntilLook(new ReadAheadLimiter.Felt(10_000, 10_000));
        }
        assertTrue(read >= ReadAheadLimiter.LOWEST_PER_SECOND * 0.9, read + " in a second");
    }

    @Test
    void whatIsSlowWithoutItIsNoReasonToWait() {
        beCalm();
        // Something else makes publishing slow, and stays.
        read(400, SLOW_PUBLISH);
        assertEquals(HIGHEST, limiter.perSecond());
    }

    @Test
    void slowerMeansSmallerBatches() {
        read(40, ReadAheadLimiter.Felt.NOTHING);
        int large = limiter.batch(4096);
        assertEquals(100, limiter.batch(100));
        beCalm();
        read(15, SLOW_PUBLISH);
        assertTrue(limiter.batch(4096) < large / 2, limiter.batch(4096) + " after " + large);
    }

    @Test
    void whatWasNotUsedIsNotSavedUp() {
        readUntilLook(CALM);
        nowNs += TimeUnit.SECONDS.toNanos(10);
        assertTrue(readUntilLook(CALM) <= HIGHEST / 10);
    }

    /** At a speed that keeps nothing waiting. */
    private ReadAheadLimiter fast() {
        ReadAheadLimiter fast = new ReadAheadLimiter(10_000_000, nowNs);
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
        ReadAheadLimiter fast = fast();
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
            ReadAheadLimiter slow = new ReadAheadLimiter(HIGHEST, nowNs);
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
            assertTrue(perSecond >= ReadAheadLimiter.LOWEST_PER_SECOND * 0.9,
                    perSecond + " a second, pieces of " + tookMs + " ms");
        }
    }

    @Test
    void besideLiveTrafficPiecesStaySmallHoweverFastItIs() {
        ReadAheadLimiter fast = fast();
        assertTrue(fast.batch(4096) <= 512, fast.batch(4096) + " at once");
    }

    @Test
    void aSpeedThatIsNotMadeUseOfDoesNotRise() {
        limiter.look(CALM);
        long first = limiter.perSecond();
        for (int i = 0; i < 20; i++) {
            nowNs += LOOK_NS;
            // The storage gives no more than that.
            limiter.spend(512, LOOK_NS / 4, nowNs);
            limiter.look(CALM);
        }
        assertEquals(first, limiter.perSecond());
        read(3, SLOW_PUBLISH);
        assertTrue(limiter.perSecond() < first, "what is felt makes it slower at once");
    }

    @Test
    void whereNobodyPublishesNobodyNeedsARest() {
        read(40, ReadAheadLimiter.Felt.NOTHING);
        nowNs += TimeUnit.SECONDS.toNanos(1);
        limiter.spend(1, TimeUnit.MINUTES.toNanos(1), nowNs);
        assertTrue(limiter.mayRead(nowNs));
    }

    @Test
    void restsForASecondAtMost() {
        limiter.spend(Long.MAX_VALUE / 1000, 0, nowNs);
        assertTrue(limiter.mayRead(nowNs + TimeUnit.SECONDS.toNanos(1)));
    }

    @Test
    void keepsToALowerSpeedThanItWouldBackOffTo() {
        ReadAheadLimiter slow = new ReadAheadLimiter(1000, 0);
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
    private long hurry(long entries, int perMs, ReadAheadLimiter.Felt felt) {
        long hurried = 0;
        long left = entries;
        for (long ms = 0; left > 0 && ms < 600_000; ms++) {
            limiter.want(left, nowNs);
            if (limiter.mayRead(nowNs)) {
                int batch = (int) Math.min(left, limiter.batch(perMs));
                hurried += limiter.reads(4) == 4 ? batch : 0;
                limiter.spend(batch, 0, nowNs);
                left -= batch;
            }
            nowNs += 1_000_000;
            if (ms % 50 == 49) {
                limiter.look(felt);
            }
        }
        limiter.want(0, nowNs);
        return hurried;
    }

    @Test
    void aSmallBacklogIsReadAtFullSpeedWhoeverPublishes() {
        beCalm();
        limiter.spend(10_000, TimeUnit.MILLISECONDS.toNanos(50), nowNs);
        assertFalse(limiter.mayRead(nowNs), "it rests");
        limiter.want(100_000, nowNs);
        assertTrue(limiter.mayRead(nowNs));
        assertEquals(4096, limiter.batch(4096));
        long beganNs = nowNs;
        assertEquals(100_000, hurry(100_000, 4096, SLOW_PUBLISH));
        assertEquals(100_000 * 1e9 / HIGHEST, nowNs - beganNs, TimeUnit.MILLISECONDS.toNanos(25));
        assertEquals(1, limiter.reads(4), "it is over");
    }

    @Test
    void aLargeBacklogIsNotHurriedForAPart() {
        beCalm();
        limiter.want(ReadAheadLimiter.MOST_HURRIED + 1, nowNs);
        assertEquals(1, limiter.reads(4));
        limiter.want(ReadAheadLimiter.MOST_HURRIED, nowNs);
        assertEquals(4, limiter.reads(4));
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
        assertTrue(most >= ReadAheadLimiter.MOST_HURRIED && most <= 150_000, most + " in 100 s");
        long later = 0;
        for (int second = 200; second < hurriedIn.length; second++) {
            later += hurriedIn[second];
        }
        assertEquals(ReadAheadLimiter.MOST_HURRIED / 5, later, 2_500);
    }

    @Test
    void waitingInAHurryCostsNothing() {
        beCalm();
        for (int i = 0; i < 100; i++) {
            limiter.want(100_000, nowNs);
            assertEquals(4, limiter.reads(4), "nothing was read yet");
            nowNs += TimeUnit.MINUTES.toNanos(1);
        }
        assertEquals(100_000, hurry(100_000, 400, CALM));
    }

    @Test
    void whatIsFeltOfAHurryDoesNotMakeItSlowerAfterwards() {
        beCalm();
        read(40, CALM);
        assertEquals(HIGHEST, limiter.perSecond());
        assertEquals(100_000, hurry(100_000, 400, SLOW_PUBLISH));
        readUntilLook(SLOW_PUBLISH);
        readUntilLook(CALM);
        assertEquals(HIGHEST, limiter.perSecond());
    }

    @Test
    void whereNobodyPublishesHurriesAreSavedForLater() {
        read(40, ReadAheadLimiter.Felt.NOTHING);
        for (int i = 0; i < 1000; i++) {
            limiter.want(1000, nowNs);
            limiter.spend(1000, 0, nowNs);
            nowNs += 1_000_000;
        }
        limiter.want(0, nowNs);
        readUntilLook(CALM);
        assertEquals(ReadAheadLimiter.MOST_HURRIED, hurry(ReadAheadLimiter.MOST_HURRIED, 400, SLOW_PUBLISH));
    }

    @Test
    void whatIsAllowedAtMostIsNotExceededInAHurry() {
        ReadAheadLimiter slow = new ReadAheadLimiter(ReadAheadLimiter.LOWEST_PER_SECOND, 0);
        slow.look(CALM);
        slow.want(1000, 0);
        assertEquals(1, slow.reads(4), "there is no speed to be won");
    }
}
