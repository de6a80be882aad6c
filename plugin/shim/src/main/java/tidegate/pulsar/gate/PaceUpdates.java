package tidegate.pulsar.gate;

import tidegate.pulsar.wire.Frame;
import tidegate.pulsar.wire.FrameCodec;
import tidegate.pulsar.wire.ReleasePace;

/**
 * The pace known to the daemon, and its need of news: after a former tracker has written a pace, or one was stored for a
 * closed stream.
 *
 * <p>Invariant: the last PACED on a stream has {@link #told}; without one everything leaves as it comes. Guarded by the
 * tracker's lock.
 */
final class PaceUpdates {
    private final Pacer pacer;
    private ReleasePace told = ReleasePace.NONE;
    /** The daemon knows PACED. */
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

    /** The frame with the pace in force, to go out next. */
    Frame.Paced take() {
        told = pacer.pace();
        return frame("");
    }

    /** Notes a PACED that has gone out, perhaps of a moment ago. */
    void sent(ReleasePace pace) {
        told = pace;
    }

    Frame.Paced frame(String why) {
        return new Frame.Paced(pacer.pace(), pacer.heldBack(), why);
    }
}
