package tidegate.pulsar;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.Arrays;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;
import org.apache.pulsar.broker.delayed.BucketDelayedDeliveryTrackerFactory;
import org.apache.pulsar.broker.delayed.DelayedDeliveryTracker;
import org.apache.pulsar.broker.service.persistent.AbstractPersistentDispatcherMultipleConsumers;
import org.apache.pulsar.common.policies.data.DelayedDeliveryPolicies;
import org.junit.jupiter.api.Test;

/** The Pulsar on the class path, and factories that lack some of the methods it calls. */
class PulsarInterfacesTest {
    /** As of a future Pulsar: it asks for trackers in a way that nobody knows yet. */
    public static class ComingFactory extends BucketDelayedDeliveryTrackerFactory {
        public CompletableFuture<DelayedDeliveryTracker> newTrackerInBulk(AbstractPersistentDispatcherMultipleConsumers dispatcher,
                int count) {
            return CompletableFuture.completedFuture(null);
        }

        @Override
        public DelayedDeliveryTracker newTracker(AbstractPersistentDispatcherMultipleConsumers dispatcher) {
            return null;
        }

        protected final void cannotBeOverridden() {}

        static void isNobodysToOverride() {}

        void isOfThePackage() {}
    }

    /** Has one of the methods that make trackers, not the other. */
    public static final class HalfAFactory extends ComingFactory {
        @Override
        public DelayedDeliveryTracker newTracker(AbstractPersistentDispatcherMultipleConsumers dispatcher) {
            return null;
        }
    }

    interface Looked {
        int read();

        default int readLater() {
            return read();
        }
    }

    private static class Reader implements Looked {
        @Override
        public int read() {
            return 1;
        }
    }

    @Test
    void thePulsarThatItWasCompiledAgainstCallsNothingElse() {
        assertDoesNotThrow(() -> PulsarInterfaces.check(TrackerFactory.class, Tracker.class, "of the tests"));
    }

    /** With a fixed delay by policy, which PIP-437 proposes, there would be more: nothing here knows of that. */
    @Test
    void theDelayHasNoPolicyThatNobodyReviewed() {
        Set<String> policies = Arrays.stream(DelayedDeliveryPolicies.class.getMethods())
                .filter(one -> !Modifier.isStatic(one.getModifiers()))
                .map(Method::getName)
                .collect(Collectors.toSet());
        assertEquals(Set.of("isActive", "getTickTime", "getMaxDeliveryDelayInMillis"), policies);
    }

    @Test
    void aMethodThatIsOnlyInheritedIsMissing() {
        Set<String> missing = PulsarInterfaces.missing(ComingFactory.class, TrackerFactory.class, Set.of());
        assertEquals(Set.of("ComingFactory.newTrackerInBulk(AbstractPersistentDispatcherMultipleConsumers, int)"), missing);
    }

    @Test
    void aFactoryThatLacksAMethodIsFound() {
        Set<String> missing = PulsarInterfaces.missing(ComingFactory.class, HalfAFactory.class, Set.of());
        assertTrue(missing.contains("ComingFactory.newTrackerInBulk(AbstractPersistentDispatcherMultipleConsumers, int)"),
                missing.toString());
        assertTrue(missing.stream().noneMatch(name -> name.contains("newTracker(")), missing.toString());
    }

    @Test
    void aDefaultMethodOfAnInterfaceCountsUnlessItWasReviewed() {
        assertEquals(Set.of("Looked.readLater()"), PulsarInterfaces.missing(Looked.class, Reader.class, Set.of()));
        assertEquals(Set.of(), PulsarInterfaces.missing(Looked.class, Reader.class, Set.of("readLater()")));
    }

    /** As Netty 4.2's TimerTask has got a method that 4.1's has not. */
    private interface Timed extends io.netty.util.TimerTask, Iterable<String> {}

    @Test
    void whatOthersThanPulsarDeclareDoesNotCount() {
        assertEquals(Set.of(), PulsarInterfaces.missing(Timed.class, Reader.class, Set.of()));
    }

    @Test
    void noSettingAllowsWhatIsMissing() {
        Properties properties = new Properties();
        properties.setProperty("tidegateAllowUnknownVersion", "true");
        assertDoesNotThrow(() -> ShimConfig.checkVersion(properties, "9.0.0"));
        String refusal = assertThrows(ShimConfigException.class, () -> PulsarInterfaces.refuse(
                PulsarInterfaces.missing(ComingFactory.class, TrackerFactory.class, Set.of()), "9.0.0")).getMessage();
        assertTrue(refusal.contains("9.0.0") && refusal.contains("newTrackerInBulk") && refusal.contains("no setting allows it"),
                refusal);
        assertEquals(-1, refusal.indexOf('\n'));
    }
}
