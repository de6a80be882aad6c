package tidegate.pulsar.web;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.util.HashMap;
import java.util.Map;

/**
 * Limits each role's requests under way, so that none can take all places. The empty role, without authentication, has no
 * limit: one bound for all would only lower their total.
 */
final class RolePermits {
    static final int MAX_PER_ROLE = 8;

    /** Permits taken, by role; bounded by the requests under way. */
    @GuardedBy("this")
    private final Map<String, Integer> held = new HashMap<>();

    /** Takes a permit if the role may have one more. */
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

    /** Returns a permit. */
    synchronized void giveBack(String role) {
        held.computeIfPresent(role, (name, taken) -> taken > 1 ? taken - 1 : null);
    }
}
