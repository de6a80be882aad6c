package tidegate.pulsar.wire;

/** Texts as JSON has them. */
public final class JsonText {
    private static final String HEX = "0123456789abcdef";

    private JsonText() {}

    /** Appends a text with its quotes, in ASCII: half a surrogate pair, as a name may have, has no UTF-8. */
    public static void quote(String value, StringBuilder out) {
        out.append('"');
        for (int i = 0; i < value.length(); i++) {
            char one = value.charAt(i);
            if (one == '"' || one == '\\') {
                out.append('\\').append(one);
            } else if (one < 0x20 || one > 0x7e) {
                out.append("\\u");
                for (int shift = 12; shift >= 0; shift -= 4) {
                    out.append(HEX.charAt(one >> shift & 0xf));
                }
            } else {
                out.append(one);
            }
        }
        out.append('"');
    }
}
