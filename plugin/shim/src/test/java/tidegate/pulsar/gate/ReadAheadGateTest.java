package tidegate.pulsar.gate;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

/** Tickets: entries read under an old one are refused. */
class ReadAheadGateTest {
    private final ReadAheadGate gate = new ReadAheadGate();

    @Test
    void aTicketOfBeforeEverythingWasForgottenIsNotValid() {
        gate.open();
        long before = gate.begin();
        assertTrue(gate.isValid(before));
        gate.renew();
        assertFalse(gate.isValid(before));
        assertTrue(gate.isValid(gate.begin()));
        assertFalse(gate.isValid(ReadAheadGate.NO_TICKET));
        gate.check();
    }
}
