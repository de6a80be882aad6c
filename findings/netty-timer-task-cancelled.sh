#!/usr/bin/env bash
# Netty 4.2.19 (Java): a TimerTask with a method cancelled(Timeout) of its own has it called, which 4.1.128 never did.
#
# Needs:   Java 17, Maven.
# Does:    compiles against 4.1.128 a TimerTask that has a method cancelled(Timeout) of its own, and runs the same class
#          files on 4.1.128 and on 4.2.19: makes a timeout of an hour in a HashedWheelTimer, and cancels it.
# Expected: the same on both: cancelled() is a method that nobody calls.
# Seen:    0 calls on 4.1.128; 1 on 4.2.19, where TimerTask has a default method of that name.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
for version in 4.1.128.Final 4.2.19.Final; do
    mvn -q -B dependency:copy "-Dartifact=io.netty:netty-common:$version" -DoutputDirectory=.
done
cat >Cancel.java <<'JAVA'
import io.netty.util.HashedWheelTimer;
import io.netty.util.Timeout;
import io.netty.util.TimerTask;
import java.util.concurrent.TimeUnit;

public class Cancel {
    static class Task implements TimerTask {
        volatile int calls;

        public void run(Timeout timeout) {}

        public void cancelled(Timeout timeout) {
            calls++;
        }
    }

    public static void main(String[] arguments) throws Exception {
        var timer = new HashedWheelTimer();
        var task = new Task();
        var timeout = timer.newTimeout(task, 1, TimeUnit.HOURS);
        timeout.cancel();
        Thread.sleep(1000); // ten ticks
        timer.stop();
        System.out.println(timeout.isCancelled() + " " + task.calls);
    }
}
JAVA
javac -cp netty-common-4.1.128.Final.jar -d classes Cancel.java
seen=$(for version in 4.1.128.Final 4.2.19.Final; do
    echo "$version: $(java -cp "classes:netty-common-$version.jar" Cancel 2>log)"
done)
echo "$seen"
[ "$seen" = "4.1.128.Final: true 0
4.2.19.Final: true 1" ]
