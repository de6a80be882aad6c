package tidegate.pulsar.position;

import java.util.Iterator;
import java.util.Map;
import java.util.NavigableMap;
import java.util.TreeMap;
import tidegate.pulsar.wire.Records;

/**
 * A time for each of many positions, in ms since the epoch: 16 bytes an entry, and as much again free.
 *
 * <p>A ledger is a table of entry ids and times with linear probing. It is at most three quarters full, so each probe meets a
 * free slot; a removal moves later entries of the row back and leaves no marks. Not thread-safe.
 */
public final class MovedTimes {
    /** The time of an absent position. */
    public static final long NONE = -1;

    @FunctionalInterface
    public interface Visitor {
        void visit(long ledgerId, long entryId, long timeMs);
    }

    @FunctionalInterface
    interface Test {
        boolean passes(long ledgerId, long entryId, long timeMs);
    }

    private final NavigableMap<Long, Table> ledgers = new TreeMap<>();
    private long size;

    public boolean isEmpty() {
        return size == 0;
    }

    public long size() {
        return size;
    }

    /** The position's time, or {@link #NONE}. */
    public long get(long ledgerId, long entryId) {
        if (size == 0) {
            return NONE;
        }
        Table table = ledgers.get(ledgerId);
        return table == null ? NONE : table.get(entryId);
    }

    public void put(long ledgerId, long entryId, long timeMs) {
        if (ledgers.computeIfAbsent(ledgerId, id -> new Table()).put(entryId, timeMs)) {
            size++;
        }
    }

    /** Removes the position; returns its time, or {@link #NONE} if absent. */
    public long remove(long ledgerId, long entryId) {
        if (size == 0) {
            return NONE;
        }
        Table table = ledgers.get(ledgerId);
        long timeMs = table == null ? NONE : table.remove(entryId);
        if (timeMs != NONE) {
            size--;
            if (table.count == 0) {
                ledgers.remove(ledgerId);
            }
        }
        return timeMs;
    }

    /** Visits all, ledgers ascending; the visitor must not change the table. */
    public void forEach(Visitor visitor) {
        ledgers.forEach((ledgerId, table) -> table.forEach((entryId, timeMs) -> visitor.visit(ledgerId, entryId, timeMs)));
    }

    /** Removes and visits those that pass, {@code max} at most; true if no others pass. */
    boolean take(int max, Test test, Visitor visitor) {
        Records taken = new Records();
        boolean all = true;
        for (Map.Entry<Long, Table> ledger : ledgers.entrySet()) {
            if (!ledger.getValue().collect(ledger.getKey(), max, test, taken)) {
                all = false;
                break;
            }
        }
        for (int i = 0; i < taken.size(); i++) {
            remove(taken.ledgerId(i), taken.entryId(i));
            visitor.visit(taken.ledgerId(i), taken.entryId(i), taken.deliverAtMs(i));
        }
        return all;
    }

    /** Removes and visits everything up to and including the position. */
    void takeUpTo(long ledgerId, long entryId, Visitor visitor) {
        Iterator<Map.Entry<Long, Table>> below = ledgers.headMap(ledgerId, false).entrySet().iterator();
        while (below.hasNext()) {
            Map.Entry<Long, Table> whole = below.next();
            whole.getValue().forEach((entry, timeMs) -> visitor.visit(whole.getKey(), entry, timeMs));
            size -= whole.getValue().count;
            below.remove();
        }
        Table table = ledgers.get(ledgerId);
        if (table != null) {
            MovedTimes taken = new MovedTimes();
            table.forEach((entry, timeMs) -> {
                if (entry <= entryId) {
                    taken.put(ledgerId, entry, timeMs);
                }
            });
            taken.forEach((ledger, entry, timeMs) -> {
                remove(ledger, entry);
                visitor.visit(ledger, entry, timeMs);
            });
        }
    }

    public void clear() {
        ledgers.clear();
        size = 0;
    }

    long memoryBytes() {
        return ledgers.values().stream().mapToLong(table -> 2L * Long.BYTES * table.keys.length).sum();
    }

    /** @throws IllegalStateException if the size is not the number of entries */
    void check() {
        long[] counted = {0};
        forEach((ledgerId, entryId, timeMs) -> counted[0] += get(ledgerId, entryId) == timeMs ? 1 : 0);
        if (counted[0] != size) {
            throw new IllegalStateException(size + " times, and " + counted[0] + " are found");
        }
    }

    private interface EntryVisitor {
        void visit(long entryId, long timeMs);
    }

    private static final class Table {
        private static final long FREE = -1;
        private static final int FIRST_SLOTS = 8;

        private long[] keys = free(FIRST_SLOTS);
        private long[] times = new long[FIRST_SLOTS];
        private int count;

        private static long[] free(int slots) {
            long[] keys = new long[slots];
            java.util.Arrays.fill(keys, FREE);
            return keys;
        }

        /** Hashes the entry id: neighbours often move together, and would grow into one row. */
        private int slot(long entryId) {
            return (int) (entryId * 0x9E3779B97F4A7C15L >>> 32) & keys.length - 1;
        }

        private int find(long entryId) {
            int at = slot(entryId);
            while (keys[at] != FREE && keys[at] != entryId) {
                at = at + 1 & keys.length - 1;
            }
            return at;
        }

        long get(long entryId) {
            int at = find(entryId);
            return keys[at] == FREE ? NONE : times[at];
        }

        /** Sets a time; true if the entry is new. */
        boolean put(long entryId, long timeMs) {
            int at = find(entryId);
            boolean isNew = keys[at] == FREE;
            keys[at] = entryId;
            times[at] = timeMs;
            if (isNew && ++count > keys.length / 4 * 3) {
                resize(keys.length * 2);
            }
            return isNew;
        }

        long remove(long entryId) {
            int hole = find(entryId);
            if (keys[hole] == FREE) {
                return NONE;
            }
            long timeMs = times[hole];
            for (int at = hole + 1 & keys.length - 1; keys[at] != FREE; at = at + 1 & keys.length - 1) {
                int wanted = slot(keys[at]);
                boolean mayMove = hole <= at ? wanted <= hole || wanted > at : wanted <= hole && wanted > at;
                if (mayMove) {
                    keys[hole] = keys[at];
                    times[hole] = times[at];
                    hole = at;
                }
            }
            keys[hole] = FREE;
            count--;
            if (keys.length > FIRST_SLOTS && count < keys.length / 8) {
                resize(keys.length / 2);
            }
            return timeMs;
        }

        private void resize(int slots) {
            long[] oldKeys = keys;
            long[] oldTimes = times;
            keys = free(slots);
            times = new long[slots];
            for (int i = 0; i < oldKeys.length; i++) {
                if (oldKeys[i] != FREE) {
                    int at = find(oldKeys[i]);
                    keys[at] = oldKeys[i];
                    times[at] = oldTimes[i];
                }
            }
        }

        /** Adds those that pass, while there are fewer than {@code max}; false if another one passes. */
        boolean collect(long ledgerId, int max, Test test, Records into) {
            for (int i = 0; i < keys.length; i++) {
                if (keys[i] != FREE && test.passes(ledgerId, keys[i], times[i])) {
                    if (into.size() == max) {
                        return false;
                    }
                    into.add(ledgerId, keys[i], times[i]);
                }
            }
            return true;
        }

        void forEach(EntryVisitor visitor) {
            for (int i = 0; i < keys.length; i++) {
                if (keys[i] != FREE) {
                    visitor.visit(keys[i], times[i]);
                }
            }
        }
    }
}
