import java.io.IOException;
import java.util.concurrent.CountDownLatch;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

/**
 * Writes a node of ZooKeeper again and again, unchanged: only its version changes.
 *
 * <p>Arguments: ZooKeeper's address (host:port), the node's path. It says "ready" and begins with the first byte on standard
 * input, says "writing" and goes on until standard input ends. It never overwrites others' data.
 */
public final class MetadataWriter {
    private static final int SESSION_TIMEOUT_MS = 30_000;
    private static final long PAUSE_MS = 1;

    private static volatile boolean ended;

    private MetadataWriter() {
    }

    public static void main(String[] arguments) throws Exception {
        CountDownLatch connected = new CountDownLatch(1);
        try (ZooKeeper store = new ZooKeeper(arguments[0], SESSION_TIMEOUT_MS, event -> connected.countDown())) {
            connected.await();
            System.out.println("ready");
            if (System.in.read() < 0) {
                return;
            }
            Thread end = new Thread(MetadataWriter::waitForEnd);
            end.setDaemon(true);
            end.start();
            write(store, arguments[1]);
            System.out.println("writing");
            while (!ended) {
                write(store, arguments[1]);
                Thread.sleep(PAUSE_MS);
            }
        }
    }

    private static void write(ZooKeeper store, String path) throws KeeperException, InterruptedException {
        Stat stat = new Stat();
        byte[] there = store.getData(path, false, stat);
        try {
            store.setData(path, there, stat.getVersion());
        } catch (KeeperException.BadVersionException e) {
            // Another has just written it, which is as good.
        }
    }

    private static void waitForEnd() {
        try {
            while (System.in.read() >= 0) {
                // The input does not matter.
            }
        } catch (IOException e) {
            // Then nobody can end it any more, either.
        }
        ended = true;
    }
}
