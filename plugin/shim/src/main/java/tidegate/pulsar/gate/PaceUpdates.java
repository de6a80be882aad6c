package tidegate.pulsar.gate;

import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.FrameCodec;
import tidegate.pulsar.wire.ReleasePace;

/**
 * The pace known to the daemon, and whether it needs an update: after a former tracker has written a pace, or one was stored
 * for a closed stream.
 *
 * <p>Invariant: {@link #told} is the last PACED on the stream; without one, entries leave as they come. Guarded by the
 * tracker's lock.
 */
final class PaceUpdates {
    private final Pacer pacer;
    private ReleasePace told = ReleasePace.NONE;
    private boolean takesPaces;

    PaceUpdates(Pacer pacer) {
        this.pacer = pacer;
    }

    /** Notes a new stream: its daemon knows of no pace. */
    void opened(int version) {
        told = ReleasePace.NONE;
        takesPaces = version >= FrameCodec.VERSION_WITH_PACE;
    }

    /** True if the daemon believes another pace than the one in force. */
    boolean isDue() {
        return takesPaces && !told.equals(pacer.pace());
    }

    Frame.Paced take() {
        told = pacer.pace();
        return frame("");
    }

    /** Notes a PACED that has gone out, perhaps a moment ago. */
    void sent(ReleasePace pace) {
        told = pace;
    }

    Frame.Paced frame(String why) {
        return new Frame.Paced(pacer.pace(), pacer.heldBack(), why);
    }
}
