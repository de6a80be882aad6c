#!/usr/bin/env bash
# RoaringBitmap 1.2.0 (Java) with pyroaring 1.2.0: a signed map that reads portable bytes lists negative numbers last.
#
# Needs:   Java 17, Maven.
# Does:    serialises BitMap64([1, 2^64 - 5]) in Python and reads it in Java into a Roaring64NavigableMap(true), signed,
#          beside one to which -5 and 1 are added.
# Expected: the same order of both: -5, 1.
# Seen:    the one that was read lists 1, -5; the other -5, 1: deserializePortable forgets that the map is signed.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pyroaring==1.2.0
cd "$dir"
mvn -q -B dependency:copy -Dartifact=org.roaringbitmap:RoaringBitmap:1.2.0 -DoutputDirectory=. -Dmdep.stripVersion=true
venv/bin/python -c 'from pyroaring import BitMap64; open("bytes", "wb").write(BitMap64([1, (1 << 64) - 5]).serialize())'
cat >Read.java <<'JAVA'
import java.io.DataInputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import org.roaringbitmap.longlong.Roaring64NavigableMap;

class Read {
    public static void main(String[] arguments) throws Exception {
        var read = new Roaring64NavigableMap(true);
        var made = new Roaring64NavigableMap(true);
        try (var in = new DataInputStream(Files.newInputStream(Path.of("bytes")))) {
            read.deserializePortable(in);
        }
        made.addLong(-5);
        made.addLong(1);
        System.out.println("read " + Arrays.toString(read.toArray()) + ", made " + Arrays.toString(made.toArray()));
    }
}
JAVA
seen=$(java -cp RoaringBitmap.jar Read.java)
echo "$seen"
[ "$seen" = "read [1, -5], made [-5, 1]" ]
