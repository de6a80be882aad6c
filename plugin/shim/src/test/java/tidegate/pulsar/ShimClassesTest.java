package tidegate.pulsar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.security.CodeSource;
import java.security.cert.Certificate;
import java.util.List;
import java.util.jar.JarEntry;
import java.util.jar.JarOutputStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class ShimClassesTest {
    @TempDir
    Path folder;

    @Test
    void theShimsOwnClassesOfAJarAreNamed() throws Exception {
        Path jar = folder.resolve("a shim.jar");
        try (JarOutputStream out = new JarOutputStream(Files.newOutputStream(jar))) {
            for (String name : List.of("META-INF/MANIFEST.MF", "tidegate/pulsar/Tracker.class",
                    "tidegate/pulsar/readahead/ReadAheadLimiter$1.class",
                    "tidegate/pulsar/notes.txt", "tidegate/other/Tracker.class", "org/slf4j/Logger.class")) {
                out.putNextEntry(new JarEntry(name));
            }
        }
        assertEquals(List.of("tidegate.pulsar.Tracker", "tidegate.pulsar.readahead.ReadAheadLimiter$1"), ShimClasses.names(source(jar)));
    }

    @Test
    void whatIsNotAJarNamesNone() throws Exception {
        assertEquals(List.of(), ShimClasses.names(source(folder)));
        assertEquals(List.of(), ShimClasses.names(null));
        assertEquals(List.of(), ShimClasses.names(new CodeSource(null, (Certificate[]) null)));
    }

    @Test
    void oneThatCannotBeLoadedKeepsNoneOfTheOthers() {
        ClassLoader loader = ShimClasses.class.getClassLoader();
        assertFalse(ShimClasses.isLoaded("tidegate.pulsar.NoSuchClass", loader));
        assertTrue(ShimClasses.isLoaded("tidegate.pulsar.readahead.ReadAheadLimiter", loader));
    }

    private static CodeSource source(Path path) throws Exception {
        return new CodeSource(path.toUri().toURL(), (Certificate[]) null);
    }
}
