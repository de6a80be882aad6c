#!/usr/bin/env bash
# Error Prone 2.42.0 (Java): a constructor may touch the guarded fields of any object without their lock.
#
# Needs:   Java 17, Maven.
# Does:    compiles two classes that count up a @GuardedBy field of another object without its lock: one in a method, one
#          in a constructor.
# Expected: two errors. A constructor's own object is known to nobody yet, but the other one is.
# Seen:    one error, of the method.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>findings</groupId>
  <artifactId>guarded</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>com.google.errorprone</groupId>
      <artifactId>error_prone_core</artifactId>
      <version>2.42.0</version>
    </dependency>
  </dependencies>
</project>
XML
mvn -q -B dependency:copy-dependencies -DoutputDirectory=jars
cat >Guarded.java <<'JAVA'
import com.google.errorprone.annotations.concurrent.GuardedBy;

class Guarded {
    final Object lock = new Object();
    @GuardedBy("lock")
    int count;
}

class InMethod {
    void touch(Guarded other) {
        other.count++;
    }
}

class InConstructor {
    InConstructor(Guarded other) {
        other.count++;
    }
}
JAVA
options=()
for package in api code file main model parser processing tree util; do
    options+=("-J--add-exports=jdk.compiler/com.sun.tools.javac.$package=ALL-UNNAMED")
done
for package in code comp; do
    options+=("-J--add-opens=jdk.compiler/com.sun.tools.javac.$package=ALL-UNNAMED")
done
seen=$(javac "${options[@]}" -XDcompilePolicy=simple -XDaddTypeAnnotationsToSymbol=true --should-stop=ifError=FLOW \
    -processorpath "$(printf '%s:' jars/*.jar)" -cp 'jars/*' -d classes \
    '-Xplugin:ErrorProne -XepDisableAllChecks -Xep:GuardedBy:ERROR' Guarded.java 2>&1 || true)
echo "$seen"
[ "$(grep -c '\[GuardedBy\]' <<<"$seen")" = 1 ] && grep -q 'Guarded.java:11: error' <<<"$seen"
