import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.Map;
import java.util.TreeMap;

/**
 * A cursor's properties in one file, which outlives a killed process as Pulsar's do.
 *
 * <p>Every change writes the whole file anew beside the old one, syncs it and renames it over the old one. Pulsar's Bucket
 * tracker keeps a property a bucket: a few hundred lines at most.
 */
final class CursorFile {
    private final Path path;
    private final Map<String, String> properties = new TreeMap<>();

    CursorFile(Path path) throws IOException {
        this.path = path;
        if (Files.exists(path)) {
            for (String line : Files.readAllLines(path)) {
                int middle = line.indexOf('=');
                properties.put(line.substring(0, middle), line.substring(middle + 1));
            }
        }
    }

    synchronized Map<String, String> all() {
        return Map.copyOf(properties);
    }

    synchronized void put(String key, String value) {
        properties.put(key, value);
        save();
    }

    synchronized void remove(String key) {
        if (properties.remove(key) != null) {
            save();
        }
    }

    private void save() {
        StringBuilder text = new StringBuilder();
        properties.forEach((key, value) -> text.append(key).append('=').append(value).append('\n'));
        try {
            replace(path, ByteBuffer.wrap(text.toString().getBytes(StandardCharsets.UTF_8)));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Write a file whole: it has either its old content or the new one, and the new one is on the disk. */
    static void replace(Path path, ByteBuffer... parts) throws IOException {
        Path fresh = path.resolveSibling(path.getFileName() + ".new");
        try (FileChannel file = FileChannel.open(fresh, StandardOpenOption.CREATE, StandardOpenOption.WRITE,
                StandardOpenOption.TRUNCATE_EXISTING)) {
            for (ByteBuffer part : parts) {
                while (part.hasRemaining()) {
                    file.write(part);
                }
            }
            file.force(true);
        }
        Files.move(fresh, path, StandardCopyOption.ATOMIC_MOVE);
        try (FileChannel folder = FileChannel.open(path.getParent(), StandardOpenOption.READ)) {
            folder.force(true);
        }
    }
}
