package tidegate.pulsar.link;

import java.io.IOException;
import java.nio.channels.SocketChannel;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.UserPrincipal;
import java.nio.file.attribute.UserPrincipalLookupService;
import java.util.List;
import java.util.Set;
import jdk.net.ExtendedSocketOptions;

/**
 * Identifies the user whose process listens at a Unix domain socket. In a directory open to everybody, as {@code /tmp},
 * anybody can listen at the daemon's path while the daemon does not, learn every position, and answer wrongly.
 */
public final class SocketPeer {
    private static final String ROOT = "0";
    private static final Path STATUS = Path.of("/proc/self/status");

    /** The listener is not a trusted user. */
    static final class UntrustedException extends IOException {
        private static final long serialVersionUID = 1L;

        UntrustedException(String message) {
            super(message);
        }
    }

    public interface Trust {
        Set<UserPrincipal> users() throws IOException;
    }

    private final Trust trust;
    /** Null until known: a system that looks users up elsewhere may not answer at first. */
    private Set<UserPrincipal> users;

    public SocketPeer(Trust trust) {
        this.trust = trust;
    }

    /** This process's own user, as the daemon itself demands of brokers, and root who may do anything. */
    public static Set<UserPrincipal> ownUserAndRoot() throws IOException {
        // In a container the user often has a number and no name; looking it up gives that user.
        UserPrincipalLookupService lookup = FileSystems.getDefault().getUserPrincipalLookupService();
        UserPrincipal own = lookup.lookupPrincipalByName(effectiveUid(Files.readAllLines(STATUS)));
        UserPrincipal root = lookup.lookupPrincipalByName(ROOT);
        return own.equals(root) ? Set.of(root) : Set.of(own, root);
    }

    /** The effective user of a process on Linux, in the second column of "Uid:"; the file's owner may differ. */
    static String effectiveUid(List<String> status) throws IOException {
        for (String line : status) {
            String[] columns = line.split("\\s+");
            if (columns.length > 2 && columns[0].equals("Uid:")) {
                return columns[2];
            }
        }
        throw new IOException("the system does not tell this broker's user: " + STATUS + " has no line with Uid");
    }

    /** Throws {@code UntrustedException}, which names the listener, or {@code IOException} if unknown. */
    public void check(SocketChannel channel) throws IOException {
        UserPrincipal user = channel.getOption(ExtendedSocketOptions.SO_PEERCRED).user();
        if (users == null) {
            users = trust.users();
        }
        if (!users.contains(user)) {
            throw new UntrustedException("the process there is of the user " + user.getName() + ", and not of this broker's. Run"
                    + " the daemon as the broker's user, with a socket in a directory that is nobody else's");
        }
    }
}
