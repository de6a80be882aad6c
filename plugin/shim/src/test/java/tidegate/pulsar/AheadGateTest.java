package tidegate.pulsar;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import tidegate.pulsar.TrackerHost.Position;

/** Tickets, and what of the gate's state cannot be. */
class AheadGateTest {
    private final AheadGate gate = new AheadGate();

    @Test
    void aTicketOfBeforeEverythingWasForgottenIsNotValid() {
        gate.open();
        long before = gate.begin();
        assertTrue(gate.isValid(before));
        gate.renew();
        assertFalse(gate.isValid(before));
        assertTrue(gate.isValid(gate.begin()));
        assertFalse(gate.isValid(AheadGate.NO_TICKET));
        gate.check();
    }

    @Test
    void whatIsStillToComeIsNotLeftToTheDispatcher() {
        gate.advance(new Position(7, 5), new Position(7, 4), 0);
        gate.check();
        gate.advance(new Position(7, 5), new Position(7, 5), 0);
        assertThrows(IllegalStateException.class, gate::check);
        gate.end();
        gate.check();
    }
}
