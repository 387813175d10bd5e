import org.apache.kafka.common.utils.*;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.*;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.*;
import java.util.concurrent.*;

/**
 * One round of Kafka's own log cleaner over partition directories, which it changes.
 *
 * A line on stdin is `THREADS NOW_MS DIR DIR ...`: each thread has a cleaner of its own, with the broker's default buffer for
 * keys, as a broker with so many cleaner threads has. The answer is a line with the offsets that were covered, and nanoseconds:
 * of this thread's work where there is one thread, else of the wall clock.
 */
public final class CompactAnchor {
    private static final ThreadMXBean CLOCK = ManagementFactory.getThreadMXBean();
    private static final int DEDUPE_BYTES = 128 << 20;

    public static void main(String[] args) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        Map<Integer, Cleaner> cleaners = new ConcurrentHashMap<>();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split(" ");
            int threads = Integer.parseInt(words[0]);
            long now = Long.parseLong(words[1]);
            List<UnifiedLog> logs = new ArrayList<>();
            for (int i = 2; i < words.length; i++) logs.add(open(new File(words[i]), now, scheduler));
            for (int i = 0; i < threads; i++) cleaners.computeIfAbsent(i, CompactAnchor::cleaner);
            long offsets = 0, nanos;
            if (threads == 1) {
                long began = CLOCK.getCurrentThreadCpuTime();
                for (UnifiedLog log : logs) offsets += clean(cleaners.get(0), log, now);
                nanos = CLOCK.getCurrentThreadCpuTime() - began;
            } else {
                Queue<UnifiedLog> waiting = new ConcurrentLinkedQueue<>(logs);
                ExecutorService pool = Executors.newFixedThreadPool(threads);
                long began = System.nanoTime();
                List<Future<Long>> done = new ArrayList<>();
                for (int i = 0; i < threads; i++) {
                    Cleaner cleaner = cleaners.get(i);
                    done.add(pool.submit(() -> {
                        long sum = 0;
                        for (UnifiedLog log = waiting.poll(); log != null; log = waiting.poll()) sum += clean(cleaner, log, now);
                        return sum;
                    }));
                }
                for (Future<Long> one : done) offsets += one.get();
                nanos = System.nanoTime() - began;
                pool.shutdown();
            }
            for (UnifiedLog log : logs) log.close();
            System.out.println(offsets + " " + nanos);
        }
        scheduler.shutdown();
    }

    private static Cleaner cleaner(int id) {
        try {
            return new Cleaner(id, new SkimpyOffsetMap(DEDUPE_BYTES), 512 << 10, 2 << 20, 0.9,
                new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "cleaned", "bytes", Time.SYSTEM), Time.SYSTEM, tp -> { });
        } catch (Exception e) {
            throw new RuntimeException(e);
        }
    }

    private static long clean(Cleaner cleaner, UnifiedLog log, long now) throws Exception {
        long end = Math.min(log.lastStableOffset(), log.activeSegment().baseOffset());
        for (long dirty = 0; dirty < end; ) dirty = cleaner.doClean(new LogToClean(log, dirty, end, false), now).getKey();
        return end;
    }

    private static UnifiedLog open(File dir, long now, KafkaScheduler scheduler) throws Exception {
        Properties p = new Properties();
        p.put("cleanup.policy", "compact");
        p.put("file.delete.delay.ms", "0");
        UnifiedLog log = UnifiedLog.create(dir, new LogConfig(p), 0, Long.MAX_VALUE, scheduler, new BrokerTopicStats(),
            new MockTime(0, now, 0), 900000, new ProducerStateManagerConfig(86400000, false), 600000,
            new LogDirFailureChannel(1), true, Optional.empty());
        log.updateHighWatermark(log.logEndOffset());
        return log;
    }
}
