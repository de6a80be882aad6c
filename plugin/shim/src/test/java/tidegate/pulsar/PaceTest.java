package tidegate.pulsar;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

class PaceTest {
    @Test
    void restsForWhatIsLeftOfTheTime() {
        Pace pace = new Pace(1000);
        assertEquals(100_000_000, pace.restNs(100, 0));
        assertEquals(40_000_000, pace.restNs(100, 60_000_000));
        assertEquals(0, pace.restNs(100, 200_000_000));
        assertEquals(0, pace.restNs(0, 5));
    }
}
