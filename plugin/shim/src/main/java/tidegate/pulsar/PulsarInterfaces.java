package tidegate.pulsar;

import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.Arrays;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.pulsar.broker.delayed.BucketDelayedDeliveryTrackerFactory;
import org.apache.pulsar.broker.delayed.bucket.BucketDelayedDeliveryTracker;

/**
 * Compares the methods that the running Pulsar may call on a tracker and its factory with those that the shim implements.
 * Each must be implemented, or be on the list of reviewed harmless ones: an inherited one may create Pulsar's own tracker, or
 * answer from buckets that are empty here.
 */
final class PulsarInterfaces {
    /**
     * Of {@link BucketDelayedDeliveryTracker}, 4.0 to 5.0: getters, the timer that never starts, and the recovery of no
     * buckets.
     */
    private static final Set<String> HARMLESS = Set.of(
            "getCutoffTime()", "isDeliverAtTimeStrict()", "updateTimer()",
            "getLastMutableBucket()", "getSharedBucketPriorityQueue()", "getImmutableBuckets()",
            "getCtx()", "getIndex()", "getBucketsCount()", "getTotalSnapshotLengthBytes()",
            "recoverBucketSnapshot()", "recoverBucketSnapshotAsync(ScheduledExecutorService)");

    /** Foreign types, such as Netty's TimerTask, change in each patch release, and no dispatcher uses them. */
    private static final Set<String> OTHERS = Set.of("java.", "io.netty.");

    private PulsarInterfaces() {}

    /**
     * Refuses a Pulsar that could bypass the shim. No setting allows it: messages would silently not come.
     *
     * @param factory the shim's class, as {@code tracker}
     * @throws ShimConfigException if the running Pulsar can call a method that the shim does not implement
     */
    static void check(Class<?> factory, Class<?> tracker, String pulsarVersion) throws ShimConfigException {
        Set<String> missing = new TreeSet<>();
        try {
            missing.addAll(missing(BucketDelayedDeliveryTrackerFactory.class, factory, Set.of()));
            missing.addAll(missing(BucketDelayedDeliveryTracker.class, tracker, HARMLESS));
        } catch (LinkageError e) {
            throw new ShimConfigException("Tidegate's classes do not fit this Pulsar " + pulsarVersion + " (" + e
                    + "). Use a Tidegate for this version; no setting allows it");
        }
        refuse(missing, pulsarVersion);
    }

    /** @throws ShimConfigException if a method is missing */
    static void refuse(Set<String> missing, String pulsarVersion) throws ShimConfigException {
        if (!missing.isEmpty()) {
            throw new ShimConfigException("Pulsar " + pulsarVersion + " calls methods that this Tidegate does not implement: delayed"
                    + " messages would bypass it: " + String.join(", ", missing)
                    + ". Use a Tidegate for this version; no setting allows it");
        }
    }

    /**
     * The methods of {@code theirs} and its super types that others may call or override, and that {@code ours} only
     * inherits.
     */
    static Set<String> missing(Class<?> theirs, Class<?> ours, Set<String> harmless) {
        Set<String> implemented = Arrays.stream(ours.getDeclaredMethods()).map(PulsarInterfaces::signature)
                .collect(Collectors.toSet());
        Set<String> missing = new TreeSet<>();
        collect(theirs, implemented, harmless, missing);
        return missing;
    }

    private static void collect(Class<?> type, Set<String> implemented, Set<String> harmless, Set<String> missing) {
        if (type == null || OTHERS.stream().anyMatch(type.getName()::startsWith)) {
            return;
        }
        for (Method method : type.getDeclaredMethods()) {
            String signature = signature(method);
            if (isOpen(method) && !implemented.contains(signature) && !harmless.contains(signature)) {
                missing.add(type.getSimpleName() + "." + signature);
            }
        }
        collect(type.getSuperclass(), implemented, harmless, missing);
        for (Class<?> one : type.getInterfaces()) {
            collect(one, implemented, harmless, missing);
        }
    }

    private static boolean isOpen(Method method) {
        int modifiers = method.getModifiers();
        return (Modifier.isPublic(modifiers) || Modifier.isProtected(modifiers)) && !Modifier.isStatic(modifiers)
                && !Modifier.isFinal(modifiers) && !method.isSynthetic();
    }

    private static String signature(Method method) {
        return Arrays.stream(method.getParameterTypes()).map(Class::getSimpleName)
                .collect(Collectors.joining(", ", method.getName() + "(", ")"));
    }
}
