package tidegate.pulsar.wire;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** Reads tests/testdata/frames: hex pairs, comments from {@code #} on. */
final class GoldenFrames {
    private static final Path DIRECTORY = Path.of(System.getProperty("tidegate.frames", "../../tests/testdata/frames"));

    private GoldenFrames() {}

    static ByteBuffer read(String name) {
        String hex = lines(name).map(line -> line.split("#", 2)[0]).collect(Collectors.joining());
        return ByteBuffer.wrap(HexFormat.of().parseHex(hex.replaceAll("\\s", "")));
    }

    /** The code after {@code # error}, or -1 if the frame names none. */
    static int errorCode(String name) {
        return lines(name).filter(line -> line.startsWith("# error "))
                .mapToInt(line -> Integer.parseInt(line.substring("# error ".length()).trim()))
                .findFirst().orElse(-1);
    }

    static List<String> names(String prefix) {
        try (Stream<Path> files = Files.list(DIRECTORY)) {
            return files.map(file -> file.getFileName().toString())
                    .filter(name -> name.startsWith(prefix) && name.endsWith(".hex")).sorted().toList();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static Stream<String> lines(String name) {
        try {
            return Files.readAllLines(DIRECTORY.resolve(name)).stream();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
