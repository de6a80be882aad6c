import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.ACL;

/**
 * Has writes of metadata refused, while reads go on.
 *
 * <p>Argument: where ZooKeeper listens (host:port). It says "ready", and "done" after each line of standard input:
 *
 * <ul>
 *   <li>{@code refuse PATH}: nobody may write the node any more;
 *   <li>{@code allow PATH}: everybody may again;
 *   <li>{@code put PATH TEXT}: the node, made if it is missing, has that text. Pulsar 5 reads the phase of its change to another
 *       metadata store from such a node.
 * </ul>
 */
public final class MetadataRefusal {
    private static final int SESSION_TIMEOUT_MS = 30_000;
    /** ZooKeeper looks for null in it, at which a list of {@code List.of} throws. */
    private static final List<ACL> NOT_WRITABLE =
            Collections.singletonList(new ACL(ZooDefs.Perms.ALL & ~ZooDefs.Perms.WRITE, ZooDefs.Ids.ANYONE_ID_UNSAFE));
    private static final int ANY_VERSION = -1;

    private MetadataRefusal() {
    }

    public static void main(String[] arguments) throws Exception {
        CountDownLatch connected = new CountDownLatch(1);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (ZooKeeper store = new ZooKeeper(arguments[0], SESSION_TIMEOUT_MS, event -> connected.countDown())) {
            connected.await();
            System.out.println("ready");
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                String[] words = line.split(" ", 3);
                switch (words[0]) {
                    case "refuse" -> store.setACL(words[1], NOT_WRITABLE, ANY_VERSION);
                    case "allow" -> store.setACL(words[1], ZooDefs.Ids.OPEN_ACL_UNSAFE, ANY_VERSION);
                    case "put" -> put(store, words[1], words[2].getBytes(StandardCharsets.UTF_8));
                    default -> throw new IllegalArgumentException(line);
                }
                System.out.println("done");
            }
        }
    }

    private static void put(ZooKeeper store, String path, byte[] text) throws KeeperException, InterruptedException {
        try {
            store.setData(path, text, ANY_VERSION);
        } catch (KeeperException.NoNodeException e) {
            store.create(path, text, ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        }
    }
}
