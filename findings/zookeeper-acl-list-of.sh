#!/usr/bin/env bash
# ZooKeeper 3.9.5 (Java): a list of access rights made by List.of throws a NullPointerException, before anything is sent.
#
# Needs:   Java 17, Maven.
# Does:    setACL("/a", rights, -1) with the same rights in List.of and in Collections.singletonList, without a server.
# Expected: the same: the rights are right, and nobody listens (KeeperException).
# Seen:    NullPointerException with List.of: the client asks the list whether it contains null, at which such a list
#          throws.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
for jar in org.apache.zookeeper:zookeeper:3.9.5 org.apache.zookeeper:zookeeper-jute:3.9.5 org.slf4j:slf4j-api:2.0.13 \
    io.netty:netty-handler:4.1.128.Final; do
    mvn -q -B dependency:copy "-Dartifact=$jar" -DoutputDirectory=.
done
cat >Rights.java <<'JAVA'
import java.util.Collections;
import java.util.List;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.ACL;

public class Rights {
    public static void main(String[] arguments) throws Exception {
        var right = new ACL(ZooDefs.Perms.READ, ZooDefs.Ids.ANYONE_ID_UNSAFE);
        var store = new ZooKeeper("127.0.0.1:1", 1_000, event -> {});
        for (List<ACL> rights : List.of(Collections.singletonList(right), List.of(right))) {
            try {
                store.setACL("/a", rights, -1);
            } catch (Exception e) {
                System.out.println(e.getClass().getSimpleName());
            }
        }
        System.exit(0);
    }
}
JAVA
seen=$(java -cp '*' Rights.java 2>log)
echo "$seen"
[ "$seen" = "ConnectionLossException
NullPointerException" ]
