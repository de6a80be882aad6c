#!/usr/bin/env bash
# BookKeeper 4.18.2 (Java): Maven collects no dependencies of bookkeeper-server, for the pom of its parent is not there.
#
# Needs:   Java 17, Maven.
# Does:    copies bookkeeper-server alone, and the pom of its parent, in 4.17.2 and 4.18.2, from the repository that
#          Maven uses here. pulsar-broker 5.0.1 depends on bookkeeper-server 4.18.2.
# Expected: both, in both versions: the pom of 4.18.2 names org.apache.bookkeeper:bookkeeper:4.18.2 as its parent.
# Seen:    the jars and the parent of 4.17.2 come; of the parent of 4.18.2 Maven says "Could not find artifact", and a
#          project that has bookkeeper-server 4.18.2 as a dependency fails: "Failed to read artifact descriptor".
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
copy() {
    if mvn -U -B dependency:copy "-Dartifact=org.apache.bookkeeper:$1" -DoutputDirectory=. >log 2>&1; then
        echo "$1 there"
    else
        echo "$1 $(grep -o 'Could not find artifact' log | head -n 1)"
    fi
}
seen=$(for version in 4.17.2 4.18.2; do
    copy "bookkeeper-server:$version"
    copy "bookkeeper:$version:pom"
done)
cat >pom.xml <<'XML'
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>find</groupId>
  <artifactId>find</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.bookkeeper</groupId>
      <artifactId>bookkeeper-server</artifactId>
      <version>4.18.2</version>
    </dependency>
  </dependencies>
</project>
XML
mvn -U -B dependency:resolve >log 2>&1 && project=resolved ||
    project=$(grep -o 'Failed to read artifact descriptor for org.apache.bookkeeper:bookkeeper-server' log | head -n 1)
echo "$seen"
echo "project: $project"
[ "$seen" = "bookkeeper-server:4.17.2 there
bookkeeper:4.17.2:pom there
bookkeeper-server:4.18.2 there
bookkeeper:4.18.2:pom Could not find artifact" ] && [[ $project == Failed* ]]
