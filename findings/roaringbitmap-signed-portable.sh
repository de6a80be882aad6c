#!/usr/bin/env bash
# RoaringBitmap 1.2.0 (Java) with pyroaring 1.2.0: serializePortable of a signed map cannot be read elsewhere.
#
# Needs:   Java 17, Maven.
# Does:    writes a Roaring64NavigableMap(true), signed, of -5 and 1, and an unsigned one of the same 64 bits each, with
#          serializePortable, and reads both in Python as a BitMap64.
# Expected: both are read; portable is the format that all languages share.
# Seen:    the unsigned one is read as 1 and 2^64 - 5; the signed one is refused, "Could not deserialize bitmap": its
#          parts are in signed order, where the format wants them in unsigned order.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pyroaring==1.2.0
cd "$dir"
mvn -q -B dependency:copy -Dartifact=org.roaringbitmap:RoaringBitmap:1.2.0 -DoutputDirectory=. -Dmdep.stripVersion=true
cat >Write.java <<'JAVA'
import java.io.DataOutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import org.roaringbitmap.longlong.Roaring64NavigableMap;

class Write {
    public static void main(String[] arguments) throws Exception {
        for (var signed : new boolean[] {true, false}) {
            var map = new Roaring64NavigableMap(signed);
            map.addLong(-5);
            map.addLong(1);
            try (var out = new DataOutputStream(Files.newOutputStream(Path.of(signed ? "signed" : "unsigned")))) {
                map.serializePortable(out);
            }
        }
    }
}
JAVA
java -cp RoaringBitmap.jar Write.java
venv/bin/python - <<'PYTHON'
import sys
from pathlib import Path

from pyroaring import BitMap64

seen = []
for name in ("signed", "unsigned"):
    try:
        seen.append(list(BitMap64.deserialize(Path(name).read_bytes())))
    except ValueError as error:
        seen.append(str(error))
print(f"signed: {seen[0]}; unsigned: {seen[1]}")
sys.exit(seen != ["Could not deserialize bitmap", [1, 2**64 - 5]])
PYTHON
