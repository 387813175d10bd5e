import java.io.File;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.Optional;
import java.util.Properties;
import java.util.Scanner;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** Kafka's own log loader: `load DIR` opens a partition after a crash, from offset 0 on; prints the log's end and nanoseconds of the thread. */
public class LoadAnchor {
    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        Scanner in = new Scanner(System.in);
        while (in.hasNextLine()) {
            File dir = new File(in.nextLine().split(" ", 2)[1]);
            Properties settings = new Properties();
            settings.put("segment.bytes", String.valueOf(1 << 30));
            long began = threads.getCurrentThreadCpuTime();
            UnifiedLog log = UnifiedLog.create(dir, new LogConfig(settings), 0L, 0L, scheduler, new BrokerTopicStats(), Time.SYSTEM, 900000,
                new ProducerStateManagerConfig(86400000, false), 600000, new LogDirFailureChannel(1), false, Optional.empty());
            long spent = threads.getCurrentThreadCpuTime() - began;
            out.println(log.logEndOffset() + " " + spent);
            out.flush();
            log.close();
        }
        scheduler.shutdown();
    }
}
