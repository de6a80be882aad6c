package tidegate.pulsar.web;

import java.util.HashMap;
import java.util.Map;

/**
 * The places that each role holds among the requests under way, so that none can take them all.
 *
 * <p>Without authentication nobody can tell one client from another, and one bound for all would only lower what they can do
 * together: the empty role has none.
 */
final class RolePlaces {
    static final int MAX_PER_ROLE = 8;

    /** Places by role; bounded by the requests under way. */
    private final Map<String, Integer> held = new HashMap<>();

    /** Takes a place, if the role may have one more. */
    synchronized boolean tryTake(String role) {
        if (role.isEmpty()) {
            return true;
        }
        int places = held.getOrDefault(role, 0);
        if (places >= MAX_PER_ROLE) {
            return false;
        }
        held.put(role, places + 1);
        return true;
    }

    /** Gives back a place that was taken. */
    synchronized void giveBack(String role) {
        held.computeIfPresent(role, (name, places) -> places > 1 ? places - 1 : null);
    }
}
