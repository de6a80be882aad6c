package tidegate.pulsar.web;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.util.HashMap;
import java.util.Map;

/**
 * Permits of each role among the requests under way, so that none can take them all.
 *
 * <p>Without authentication nobody can tell one client from another, and one bound for all would only lower their total: the
 * empty role has none.
 */
final class RolePermits {
    static final int MAX_PER_ROLE = 8;

    /** Permits taken, by role; bounded by the requests under way. */
    @GuardedBy("this")
    private final Map<String, Integer> held = new HashMap<>();

    /** Takes a permit, if the role may have one more. */
    synchronized boolean tryTake(String role) {
        if (role.isEmpty()) {
            return true;
        }
        int taken = held.getOrDefault(role, 0);
        if (taken >= MAX_PER_ROLE) {
            return false;
        }
        held.put(role, taken + 1);
        return true;
    }

    /** Gives back a permit that was taken. */
    synchronized void giveBack(String role) {
        held.computeIfPresent(role, (name, taken) -> taken > 1 ? taken - 1 : null);
    }
}
