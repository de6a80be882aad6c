import com.sun.management.OperatingSystemMXBean;
import io.netty.util.internal.PlatformDependent;
import java.io.IOException;
import java.lang.management.BufferPoolMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;

/** This JVM's use of resources: processor time, memory by the kernel's count, and memory by purpose. */
final class Usage {
    private static final OperatingSystemMXBean SYSTEM =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private Usage() {
    }

    /** Processor seconds of the whole process, with the collector's and the compiler's threads. */
    static double cpuSeconds() {
        return SYSTEM.getProcessCpuTime() / 1e9;
    }

    static long residentBytes() throws IOException {
        return status("VmRSS:");
    }

    /** Begin anew with the highest resident memory. */
    static void forgetPeak() throws IOException {
        Files.writeString(Path.of("/proc/self/clear_refs"), "5");
    }

    static long peakResidentBytes() throws IOException {
        return status("VmHWM:");
    }

    /** Bytes of objects still referenced: collects garbage first. */
    static long heapBytes() {
        System.gc();
        return ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed();
    }

    /** Bytes outside the heap: direct buffers, and netty's allocations for Pulsar's priority queues. */
    static long directBytes() {
        long direct = Math.max(0, PlatformDependent.usedDirectMemory());
        for (BufferPoolMXBean pool : ManagementFactory.getPlatformMXBeans(BufferPoolMXBean.class)) {
            if (pool.getName().equals("direct")) {
                direct += pool.getMemoryUsed();
            }
        }
        return direct;
    }

    private static long status(String field) throws IOException {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith(field)) {
                return Long.parseLong(line.substring(field.length()).replace("kB", "").trim()) * 1024;
            }
        }
        throw new IOException("the kernel does not tell " + field);
    }
}
