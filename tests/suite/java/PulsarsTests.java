import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.testng.IAnnotationTransformer;
import org.testng.IConfigurationListener;
import org.testng.ITestListener;
import org.testng.ITestResult;
import org.testng.TestNG;
import org.testng.annotations.ITestAnnotation;

/**
 * Runs Pulsar's own tests with another factory of delayed-delivery trackers.
 *
 * <p>Arguments: the factory's class, the daemon's socket (empty: none), then tests, each {@code CLASS} for all of its methods or
 * {@code CLASS#METHOD}. A line for each test on standard output: "passed", "failed" or "skipped", its name, its duration in ms, and
 * of what failed the error. It exits with 0 if all passed, with 1 otherwise.
 */
public final class PulsarsTests {
    private PulsarsTests() {
    }

    public static void main(String[] arguments) throws ClassNotFoundException {
        Map<String, Set<String>> methods = new LinkedHashMap<>();
        for (String test : Arrays.copyOfRange(arguments, 2, arguments.length)) {
            String[] words = test.split("#");
            Set<String> chosen = methods.computeIfAbsent(words[0], name -> new HashSet<>());
            if (words.length > 1) {
                chosen.add(words[1]);
            }
        }
        Class<?>[] classes = new Class<?>[methods.size()];
        int number = 0;
        for (String name : methods.keySet()) {
            classes[number++] = Class.forName(name);
        }
        TestNG runner = new TestNG(false);
        Told told = new Told();
        runner.addListener(new Factory(arguments[0], arguments[1]));
        runner.addListener(new Chosen(methods));
        runner.addListener(told);
        runner.setVerbose(0);
        runner.setTestClasses(classes);
        runner.run();
        // Pulsar's tests leave threads.
        System.out.flush();
        Runtime.getRuntime().halt(told.passed > 0 && told.others == 0 ? 0 : 1);
    }

    /** Sets the factory before a test's set-up reads the configuration. */
    private static final class Factory implements IConfigurationListener {
        private final String factory;
        private final String socket;

        private Factory(String factory, String socket) {
            this.factory = factory;
            this.socket = socket;
        }

        @Override
        public void beforeConfiguration(ITestResult result) {
            ServiceConfiguration conf = confOf(result.getInstance());
            if (conf != null) {
                conf.setDelayedDeliveryTrackerFactoryClassName(factory);
                if (!socket.isEmpty()) {
                    conf.getProperties().setProperty("tidegateSocket", socket);
                }
            }
        }

        @Override
        public void onConfigurationFailure(ITestResult result) {
            System.out.println("set-up failed: " + result.getMethod().getQualifiedName());
            result.getThrowable().printStackTrace(System.out);
        }

        private static ServiceConfiguration confOf(Object test) {
            for (Class<?> type = test.getClass(); type != null; type = type.getSuperclass()) {
                try {
                    Field field = type.getDeclaredField("conf");
                    field.setAccessible(true);
                    return field.get(test) instanceof ServiceConfiguration conf ? conf : null;
                } catch (NoSuchFieldException e) {
                    // In a super class, if anywhere.
                } catch (IllegalAccessException e) {
                    throw new IllegalStateException(e);
                }
            }
            return null;
        }
    }

    /** Leaves out the methods that nobody chose. */
    private static final class Chosen implements IAnnotationTransformer {
        private final Map<String, Set<String>> methods;

        private Chosen(Map<String, Set<String>> methods) {
            this.methods = methods;
        }

        @Override
        @SuppressWarnings("rawtypes") // TestNG's own
        public void transform(ITestAnnotation annotation, Class type, Constructor constructor, Method method) {
            if (method != null) {
                Set<String> chosen = methods.getOrDefault(method.getDeclaringClass().getName(), Set.of());
                annotation.setEnabled(annotation.getEnabled() && (chosen.isEmpty() || chosen.contains(method.getName())));
            }
        }
    }

    private static final class Told implements ITestListener {
        private int passed;
        private int others;

        @Override
        public synchronized void onTestSuccess(ITestResult result) {
            passed++;
            tell("passed", result);
        }

        @Override
        public synchronized void onTestFailure(ITestResult result) {
            others++;
            tell("failed", result);
            if (result.getThrowable() != null) {
                result.getThrowable().printStackTrace(System.out);
            }
        }

        @Override
        public synchronized void onTestSkipped(ITestResult result) {
            others++;
            tell("skipped", result);
        }

        private static void tell(String how, ITestResult result) {
            String parameters = result.getParameters().length > 0 ? Arrays.toString(result.getParameters()) : "";
            System.out.println(how + " " + result.getTestClass().getRealClass().getSimpleName() + "#"
                    + result.getMethod().getMethodName() + parameters);
            System.out.flush();
        }
    }
}
