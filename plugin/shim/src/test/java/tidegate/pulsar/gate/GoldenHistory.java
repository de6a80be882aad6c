package tidegate.pulsar.gate;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/**
 * A history of the simulator, as docs/simulation.md describes the file: a world's settings and the steps that happen in it. The
 * kept ones are in tests/testdata/sim; {@code -Dtidegate.histories=DIR} names another folder, such as build/sim.
 */
record GoldenHistory(String name, Map<String, Object> config, List<Step> steps) {
    private static final Path DIRECTORY = Path.of(System.getProperty("tidegate.histories",
            System.getProperty("tidegate.frames", "../../tests/testdata/frames") + "/../sim"));
    private static final long FORMAT = 1;

    /** An action, the time since the step before, and its arguments. */
    record Step(long afterMs, String action, Map<String, Object> arguments) {
        int number(String argument) {
            return number(argument, 0);
        }

        int number(String argument, int otherwise) {
            return arguments.get(argument) instanceof Long number ? Math.toIntExact(number) : otherwise;
        }

        /** The seed of the step's own choices. */
        long luck() {
            return arguments.get("luck") instanceof Long luck ? luck : 0;
        }

        /** Another step, triggered by this one. */
        Step then() {
            Map<String, Object> then = object(arguments.get("then"));
            return new Step(0, (String) then.get("do"), then);
        }

        List<Long> numbers(String argument) {
            return ((List<?>) arguments.get(argument)).stream().map(Long.class::cast).toList();
        }
    }

    static List<Path> files() {
        try (Stream<Path> files = Files.list(DIRECTORY)) {
            return files.filter(file -> file.toString().endsWith(".json")).sorted().toList();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    static GoldenHistory read(Path file) throws IOException {
        Map<String, Object> history = object(new Json(Files.readString(file)).read());
        if (!Long.valueOf(FORMAT).equals(history.get("format"))) {
            throw new IllegalArgumentException(file + " is of format " + history.get("format") + ", this reads " + FORMAT);
        }
        List<Step> steps = new ArrayList<>();
        for (Object each : (List<?>) history.get("steps")) {
            Map<String, Object> step = object(each);
            steps.add(new Step((Long) step.get("after_ms"), (String) step.get("do"), step));
        }
        return new GoldenHistory(file.getFileName().toString(), object(history.get("config")), steps);
    }

    long setting(String name, long otherwise) {
        return config.get(name) instanceof Long number ? number : otherwise;
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> object(Object value) {
        return (Map<String, Object>) value;
    }

    /** JSON without fractions, as histories have none. */
    private static final class Json {
        private final String text;
        private int at;

        Json(String text) {
            this.text = text;
        }

        Object read() {
            return switch (next()) {
                case '{' -> readObject();
                case '[' -> readList();
                case '"' -> readString();
                case 't' -> readWord("true", true);
                case 'f' -> readWord("false", false);
                case 'n' -> readWord("null", null);
                default -> readNumber();
            };
        }

        private char next() {
            while (Character.isWhitespace(text.charAt(at))) {
                at++;
            }
            return text.charAt(at);
        }

        private void expect(char wanted) {
            if (next() != wanted) {
                throw new IllegalArgumentException("no " + wanted + " at character " + at);
            }
            at++;
        }

        /** True if there is another element before {@code end}; if not, passes {@code end}. */
        private boolean more(boolean first, char end) {
            if (next() == end) {
                at++;
                return false;
            }
            if (!first) {
                expect(',');
            }
            return true;
        }

        private Map<String, Object> readObject() {
            Map<String, Object> object = new LinkedHashMap<>();
            expect('{');
            while (more(object.isEmpty(), '}')) {
                next();
                String key = readString();
                expect(':');
                object.put(key, read());
            }
            return object;
        }

        private List<Object> readList() {
            List<Object> list = new ArrayList<>();
            expect('[');
            while (more(list.isEmpty(), ']')) {
                list.add(read());
            }
            return list;
        }

        private String readString() {
            StringBuilder string = new StringBuilder();
            for (at++; text.charAt(at) != '"'; at++) {
                if (text.charAt(at) == '\\') {
                    at++;
                }
                string.append(text.charAt(at));
            }
            at++;
            return string.toString();
        }

        private Object readWord(String word, Object value) {
            if (!text.startsWith(word, at)) {
                throw new IllegalArgumentException("no value at character " + at);
            }
            at += word.length();
            return value;
        }

        private Long readNumber() {
            int from = at;
            while (at < text.length() && "+-.eE0123456789".indexOf(text.charAt(at)) >= 0) {
                at++;
            }
            return Long.valueOf(text.substring(from, at));
        }
    }
}
