package tidegate.pulsar;

import java.io.IOException;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.CodeSource;
import java.util.List;
import java.util.jar.JarFile;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Loads the shim's classes at the broker's start, so that a topic after a failover need not wait for them. */
final class ShimClasses {
    private static final Logger LOG = LoggerFactory.getLogger(ShimClasses.class);
    private static final String SUFFIX = ".class";

    private ShimClasses() {
    }

    /** Loads and verifies all classes. One that cannot be loaded now is loaded, or reported, when needed. */
    static void load() {
        ClassLoader loader = ShimClasses.class.getClassLoader();
        try {
            List<String> names = names(ShimClasses.class.getProtectionDomain().getCodeSource());
            long loaded = names.stream().filter(name -> isLoaded(name, loader)).count();
            LOG.info("{} of the shim's {} classes are loaded", loaded, names.size());
        } catch (IOException | URISyntaxException | RuntimeException e) {
            LOG.info("The shim's classes are loaded when they are needed, not now: {}", e.toString());
        }
    }

    static boolean isLoaded(String name, ClassLoader loader) {
        try {
            Class.forName(name, true, loader);
            return true;
        } catch (ClassNotFoundException | LinkageError e) {
            LOG.debug("{} cannot be loaded now", name, e);
            return false;
        }
    }

    /** The names of the classes in a jar; none for another source. */
    static List<String> names(CodeSource source) throws IOException, URISyntaxException {
        Path path = source == null || source.getLocation() == null ? null : Path.of(source.getLocation().toURI());
        if (path == null || !Files.isRegularFile(path)) {
            return List.of();
        }
        String folder = ShimClasses.class.getPackageName().replace('.', '/') + "/";
        try (JarFile jar = new JarFile(path.toFile())) {
            return jar.stream().map(entry -> entry.getName())
                    .filter(name -> name.startsWith(folder) && name.endsWith(SUFFIX))
                    .map(name -> name.substring(0, name.length() - SUFFIX.length()).replace('/', '.'))
                    .toList();
        }
    }
}
