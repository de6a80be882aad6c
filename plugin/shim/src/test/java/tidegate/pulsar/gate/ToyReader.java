package tidegate.pulsar.gate;

import java.util.ArrayDeque;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.random.RandomGenerator;
import tidegate.pulsar.wire.Position;

/** The toy broker's topic as it is read beside its dispatcher: answers come late, some are short, some never come right. */
public final class ToyReader implements TopicReader {
    private final ToyBroker broker;
    private final RandomGenerator random;
    private final Queue<Runnable> asked = new ArrayDeque<>();
    public boolean allowed = true;
    /** Of 100 answers this many are failures. */
    public int failures;
    boolean hangs;
    /** Ledgers up to this one are not where it reads: offloaded, or trimmed. */
    public long elsewhere = -1;
    /** Nothing after it may be read. */
    public Position visible = new Position(Long.MAX_VALUE, Long.MAX_VALUE);
    /** Entries brought in all reads together. */
    public int read;
    public int unclosed;
    private int unanswered;

    ToyReader(ToyBroker broker, RandomGenerator random) {
        this.broker = broker;
        this.random = random;
    }

    /** BookKeeper answers some of what it was asked. */
    void answerSome() {
        for (int i = random.nextInt(4); i >= 0 && !asked.isEmpty() && !hangs; i--) {
            asked.poll().run();
        }
    }

    @Override
    public boolean isAllowed() {
        return allowed && !broker.isClosed() && broker.hasConsumers();
    }

    @Override
    public Position readPosition() {
        return broker.readPosition();
    }

    @Override
    public long unreadEntries() {
        return broker.log.tailMap(broker.readPosition(), true).size();
    }

    @Override
    public long unacknowledgedEntries() {
        return broker.log.keySet().stream().filter(position -> !broker.isDeleted(position.ledgerId(), position.entryId())).count();
    }

    @Override
    public Position lastReadable() {
        Position last = broker.log.isEmpty() ? new Position(-1, -1) : broker.log.lastKey();
        return last.compareTo(visible) < 0 ? last : visible;
    }

    @Override
    public Long ledgerFrom(long ledgerId) {
        Position first = broker.log.ceilingKey(new Position(ledgerId, -1));
        return first == null ? null : first.ledgerId();
    }

    @Override
    public CompletableFuture<Long> lastEntry(long ledgerId) {
        return later(() -> ledgerId <= elsewhere ? -1 : broker.log.lowerKey(new Position(ledgerId + 1, -1)).entryId());
    }

    @Override
    public CompletableFuture<Batch> read(long ledgerId, long firstEntryId, int maxEntries) {
        int count = 1 + random.nextInt(maxEntries);
        unanswered++;
        CompletableFuture<Batch> answer = later(() -> {
            read += count;
            unclosed++;
            return new ToyBatch(ledgerId, firstEntryId, count);
        });
        answer.whenComplete((batch, error) -> unanswered--);
        return answer;
    }

    /** Reads that were asked for, or whose entries are still there. */
    public int underWay() {
        return unanswered + unclosed;
    }

    private <T> CompletableFuture<T> later(java.util.function.Supplier<T> answer) {
        CompletableFuture<T> future = new CompletableFuture<>();
        asked.add(() -> {
            if (random.nextInt(100) < failures) {
                future.completeExceptionally(new IllegalStateException("the ledger is gone"));
            } else {
                future.complete(answer.get());
            }
        });
        return future;
    }

    @Override
    public void close() {
        // Nothing is open.
    }

    private final class ToyBatch implements Batch {
        private final long ledgerId;
        private final long first;
        private final int count;

        ToyBatch(long ledgerId, long first, int count) {
            this.ledgerId = ledgerId;
            this.first = first;
            this.count = count;
        }

        @Override
        public int size() {
            return count;
        }

        @Override
        public long sizeBytes() {
            return 100L * count;
        }

        @Override
        public void forEachDelayed(Outbox.EntryVisitor visitor) {
            for (long entryId = first; entryId < first + count; entryId++) {
                Long deliverAtMs = broker.log.get(new Position(ledgerId, entryId));
                if (deliverAtMs != null && deliverAtMs >= 0) {
                    visitor.visit(ledgerId, entryId, deliverAtMs);
                }
            }
        }

        @Override
        public void close() {
            unclosed--;
        }
    }
}
