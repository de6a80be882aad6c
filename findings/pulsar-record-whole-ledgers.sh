#!/usr/bin/env bash
# Pulsar 5.0.1 (Java): a cursor's record leaves out the whole ledger that crosses managedLedgerMaxUnackedRangesToPersist.
#
# Needs:   Java 21 (of JAVA_HOME, if set), Maven.
# Does:    acknowledges every second entry of three ledgers, 75 of each, in the two sets of the package that a cursor
#          keeps (PositionRangeSet in 5.0, OpenLongPairRangeSet in 4.x), and asks both for a record of at most 100.
# Expected: the same from both, as from 4.0 to 4.2: as long as there is room, the next ledger is stored.
# Seen:    4.x's set gives two ledgers, 150 acknowledgements; 5.0's one, 75, and leaves 25 places empty. After an unload
#          the others come again.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
PATH=${JAVA_HOME:+$JAVA_HOME/bin:}$PATH
for jar in org.apache.pulsar:managed-ledger:5.0.1 org.apache.pulsar:pulsar-common:5.0.1 it.unimi.dsi:fastutil:8.5.19 \
    org.apache.commons:commons-lang3:3.20.0 com.google.guava:guava:33.7.1-jre org.roaringbitmap:RoaringBitmap:1.6.20 \
    io.github.merlimat.slog:slog:0.10.1 org.slf4j:slf4j-api:2.0.12; do
    mvn -q -B dependency:copy "-Dartifact=$jar" -DoutputDirectory=. 2>maven.log || { cat maven.log >&2; exit 1; }
done
mkdir -p org/apache/bookkeeper/mledger/impl
cat >org/apache/bookkeeper/mledger/impl/Records.java <<'JAVA'
package org.apache.bookkeeper.mledger.impl;

import java.util.TreeMap;
import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.PositionFactory;
import org.apache.pulsar.common.util.collections.LongPairRangeSet;
import org.apache.pulsar.common.util.collections.OpenLongPairRangeSet;

class Records {
    public static void main(String[] arguments) {
        tell("OpenLongPairRangeSet", new OpenLongPairRangeSet<Position>(PositionFactory::create));
        tell("PositionRangeSet", new PositionRangeSet(PositionFactory::create, false));
    }

    private static void tell(String name, LongPairRangeSet<Position> acknowledged) {
        for (long ledger = 1; ledger <= 3; ledger++) {
            for (long entry = 0; entry < 150; entry += 2) {
                acknowledged.addOpenClosed(ledger, entry - 1, ledger, entry);
            }
        }
        System.out.println(name + ": ledgers " + new TreeMap<>(acknowledged.toRanges(100)).keySet());
    }
}
JAVA
javac -cp "*" -d classes org/apache/bookkeeper/mledger/impl/Records.java
seen=$(java -cp "classes:*" org.apache.bookkeeper.mledger.impl.Records 2>/dev/null)
echo "$seen"
[ "$seen" = "OpenLongPairRangeSet: ledgers [1, 2]
PositionRangeSet: ledgers [1]" ]
