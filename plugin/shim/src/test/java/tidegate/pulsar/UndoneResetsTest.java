package tidegate.pulsar;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

/** Which loaded cursors are a reset's; what is done about them is tried on a real broker, tests/broker/test_35_resets.py. */
class UndoneResetsTest {
    private static boolean isUndone(boolean wasSealed, boolean isSealed, boolean hasBacklog, boolean mayHaveAcknowledgements) {
        return new UndoneResets.Loaded(wasSealed, isSealed, hasBacklog, mayHaveAcknowledgements).isUndone();
    }

    @Test
    void theSealThatWasThereIsGone() {
        assertTrue(isUndone(true, false, true, true));
        assertFalse(isUndone(true, true, true, true), "it is there");
    }

    @Test
    void aCursorFromBeforeItsFirstSealKeepsItsAcknowledgements() {
        assertFalse(isUndone(false, false, true, true));
    }

    @Test
    void whatHasNothingToTakeBackIsLeftAlone() {
        assertFalse(isUndone(true, false, true, false), "nothing is acknowledged beyond its position");
        assertFalse(isUndone(true, false, false, true), "there is nothing to read");
    }
}
