package tidegate.pulsar.gate;

import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * An operator's rules for the delayed messages of a subscription: levels to which delays are rounded up, a quota of waiting
 * messages, and the use of an index log.
 *
 * <p>They are properties of the topic and of its namespace: {@code tidegate.levels} and {@code tidegate.quota} for all
 * subscriptions, {@code tidegate.quota[audit-*]} for those with a fitting name. The topic's come first; within one place the
 * longest fitting pattern counts. {@code none} ends the search without a rule.
 *
 * <p>Example: the namespace has {@code tidegate.levels=1m,1h}, the topic {@code tidegate.levels[audit-*]=none}. A delay of 90
 * s becomes 1 h for the subscription {@code orders}, and stays 90 s for {@code audit-1}.
 *
 * <p>Invariant: a rounded time is never before the message's own.
 *
 * @param levelsMs ascending; empty if delays stay as they are
 * @param quota most messages that may wait, or {@link #NO_QUOTA}
 * @param indexLog false if the subscription must have no index log, where the broker keeps them
 */
public record DelayPolicy(List<Long> levelsMs, long quota, boolean indexLog) {
    public static final long NO_QUOTA = 0;
    public static final DelayPolicy NONE = new DelayPolicy(List.of(), NO_QUOTA, true);
    /** The prefix of our properties' names. */
    public static final String PREFIX = "tidegate.";
    static final String LEVELS = PREFIX + "levels";
    static final String QUOTA = PREFIX + "quota";
    static final String INDEX_LOG = PREFIX + "index_log";
    /** RocketMQ's 18. */
    private static final String ROCKETMQ = "rocketmq";
    private static final List<String> OF_ROCKETMQ = List.of("1s", "5s", "10s", "30s", "1m", "2m", "3m", "4m", "5m", "6m", "7m",
            "8m", "9m", "10m", "20m", "30m", "1h", "2h");
    private static final String NOTHING = "none";
    private static final int MAX_LEVELS = 64;
    private static final long MAX_LEVEL_MS = TimeUnit.DAYS.toMillis(366);
    private static final long MAX_QUOTA = 1_000_000_000_000L;
    private static final int MAX_TEXT = 1_000;
    private static final Pattern DURATION = Pattern.compile("([0-9]{1,12})(ms|s|m|h|d)");
    private static final Pattern NUMBER = Pattern.compile("[0-9]{1,13}");

    public DelayPolicy {
        levelsMs = List.copyOf(levelsMs);
    }

    /**
     * The rules in {@code places}, each from the first place that has it. {@code unreadable} gets each invalid rule, as
     * NAME=VALUE; messages then leave at their own times, without a quota, and the broker's setting of index logs counts.
     */
    public static DelayPolicy of(List<Map<String, String>> places, String subscription, Consumer<String> unreadable) {
        List<Long> levels = rule(places, LEVELS, subscription, DelayPolicy::levels, List.of(), unreadable);
        long quota = rule(places, QUOTA, subscription, DelayPolicy::quota, NO_QUOTA, unreadable);
        boolean indexLog = rule(places, INDEX_LOG, subscription, DelayPolicy::isOn, true, unreadable);
        return new DelayPolicy(levels, quota, indexLog);
    }

    private static <T> T rule(List<Map<String, String>> places, String name, String subscription, Function<String, T> read,
            T otherwise, Consumer<String> unreadable) {
        for (Map<String, String> place : places) {
            String key = key(place, name, subscription);
            if (key != null) {
                String text = place.get(key).strip();
                try {
                    return text.equals(NOTHING) ? otherwise : read.apply(text);
                } catch (IllegalArgumentException e) {
                    unreadable.accept(key + "=" + text.substring(0, Math.min(text.length(), MAX_TEXT)));
                    return otherwise;
                }
            }
        }
        return otherwise;
    }

    /** The property of that name with the longest fitting pattern; null without one. */
    private static String key(Map<String, String> place, String name, String subscription) {
        String found = null;
        for (String key : place.keySet()) {
            boolean fits = key.equals(name) || key.startsWith(name + "[") && key.endsWith("]")
                    && fits(key.substring(name.length() + 1, key.length() - 1), subscription);
            // Of two of one length the alphabetically first, so that each owner chooses the same.
            if (fits && (found == null || key.length() > found.length()
                    || key.length() == found.length() && key.compareTo(found) < 0)) {
                found = key;
            }
        }
        return found;
    }

    /**
     * True if the name fits a pattern in which {@code *} is anything. Places each part between stars at its first match: a
     * regular expression would try all places, under the dispatcher's lock.
     */
    static boolean fits(String pattern, String name) {
        String[] parts = pattern.split("\\*", -1);
        if (parts.length == 1) {
            return pattern.equals(name);
        }
        int at = parts[0].length();
        String last = parts[parts.length - 1];
        int end = name.length() - last.length();
        if (at > end || !name.startsWith(parts[0]) || !name.endsWith(last)) {
            return false;
        }
        for (int part = 1; part < parts.length - 1; part++) {
            int found = name.indexOf(parts[part], at);
            if (found < 0 || found + parts[part].length() > end) {
                return false;
            }
            at = found + parts[part].length();
        }
        return true;
    }

    private static List<Long> levels(String text) {
        List<String> words = text.equals(ROCKETMQ) ? OF_ROCKETMQ : List.of(text.split(",", -1));
        List<Long> levels = words.stream().map(String::strip).map(DelayPolicy::durationMs).sorted().distinct().toList();
        if (levels.size() > MAX_LEVELS) {
            throw new IllegalArgumentException("more than " + MAX_LEVELS + " levels");
        }
        return levels;
    }

    private static long durationMs(String text) {
        Matcher matcher = DURATION.matcher(text);
        if (!matcher.matches()) {
            throw new IllegalArgumentException("no duration: " + text);
        }
        TimeUnit unit = switch (matcher.group(2)) {
            case "ms" -> TimeUnit.MILLISECONDS;
            case "s" -> TimeUnit.SECONDS;
            case "m" -> TimeUnit.MINUTES;
            case "h" -> TimeUnit.HOURS;
            default -> TimeUnit.DAYS;
        };
        long durationMs = unit.toMillis(Long.parseLong(matcher.group(1)));
        if (durationMs < 1 || durationMs > MAX_LEVEL_MS) {
            throw new IllegalArgumentException("no level: " + text);
        }
        return durationMs;
    }

    private static long quota(String text) {
        long quota = NUMBER.matcher(text).matches() ? Long.parseLong(text) : 0;
        if (quota < 1 || quota > MAX_QUOTA) {
            throw new IllegalArgumentException("no quota: " + text);
        }
        return quota;
    }

    private static boolean isOn(String text) {
        return switch (text) {
            case "on" -> true;
            case "off" -> false;
            default -> throw new IllegalArgumentException("neither on nor off: " + text);
        };
    }

    public boolean hasLevels() {
        return !levelsMs.isEmpty();
    }

    /**
     * The time at which a message of that own time may leave: now and the lowest level as long as its remaining delay; its
     * own time if it is due or waits longer than the highest level.
     */
    public long roundUp(long ownMs, long nowMs) {
        long delayMs = ownMs - nowMs;
        if (delayMs <= 0 || levelsMs.isEmpty() || delayMs > levelsMs.get(levelsMs.size() - 1)) {
            return ownMs;
        }
        int found = Collections.binarySearch(levelsMs, delayMs);
        return nowMs + levelsMs.get(found >= 0 ? found : -found - 1);
    }

    public boolean isOver(long waiting) {
        return quota != NO_QUOTA && waiting > quota;
    }

    /** True if a tenth of the quota, at least one message, is free; always without a quota. */
    public boolean hasRoom(long waiting) {
        return quota == NO_QUOTA || waiting <= quota - Math.max(1, quota / 10);
    }
}
