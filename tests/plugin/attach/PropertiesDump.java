import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.Properties;
import java.util.TreeMap;

/** Prints what java.util.Properties makes of each file 0, 1, 2 … of a directory: a line a file, keys and values in hex. */
public final class PropertiesDump {
    public static void main(String[] arguments) throws IOException {
        Path directory = Path.of(arguments[0]);
        StringBuilder out = new StringBuilder();
        for (int number = 0; Files.exists(directory.resolve(String.valueOf(number))); number++) {
            Properties properties = new Properties();
            try (InputStream in = Files.newInputStream(directory.resolve(String.valueOf(number)))) {
                properties.load(in);
            }
            new TreeMap<>(properties).forEach((key, value) ->
                out.append(hex(key)).append('=').append(hex(value)).append(' '));
            out.append('\n');
        }
        System.out.print(out);
    }

    private static String hex(Object text) {
        return HexFormat.of().formatHex(text.toString().getBytes(StandardCharsets.UTF_16BE));
    }
}
