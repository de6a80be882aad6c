#!/usr/bin/env bash
# RoaringBitmap 1.2.0 (Java) with pyroaring 1.2.0: Roaring64NavigableMap.deserialize reads a BitMap64 as empty.
#
# Needs:   Java 17, Maven.
# Does:    serialises BitMap64([1, 2, 2^40]) in Python, reads it in Java by deserialize and by deserializePortable.
# Expected: the three numbers, or an error: deserialize has a format of its own, Java's older one.
# Seen:    deserialize returns an empty map and no error; deserializePortable returns the three.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pyroaring==1.2.0
cd "$dir"
mvn -q -B dependency:copy -Dartifact=org.roaringbitmap:RoaringBitmap:1.2.0 -DoutputDirectory=. -Dmdep.stripVersion=true
venv/bin/python -c 'from pyroaring import BitMap64; open("bytes", "wb").write(BitMap64([1, 2, 1 << 40]).serialize())'
cat >Read.java <<'JAVA'
import java.io.DataInputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import org.roaringbitmap.longlong.Roaring64NavigableMap;

class Read {
    public static void main(String[] arguments) throws Exception {
        var legacy = new Roaring64NavigableMap();
        var portable = new Roaring64NavigableMap();
        try (var in = new DataInputStream(Files.newInputStream(Path.of("bytes")))) {
            legacy.deserialize(in);
        }
        try (var in = new DataInputStream(Files.newInputStream(Path.of("bytes")))) {
            portable.deserializePortable(in);
        }
        System.out.println("deserialize: " + legacy + ", deserializePortable: " + portable);
    }
}
JAVA
seen=$(java -cp RoaringBitmap.jar Read.java)
echo "$seen"
[ "$seen" = "deserialize: {}, deserializePortable: {1,2,1099511627776}" ]
