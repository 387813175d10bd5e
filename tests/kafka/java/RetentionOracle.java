import org.apache.kafka.common.utils.*;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.*;
import org.apache.kafka.storage.internals.epoch.*;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import java.io.File;
import java.util.*;

/**
 * Kafka's own retention on one partition directory, with a clock that is given: `retain DIR now=MS hw=OFFSET [logStart=0] [clean=true] [SETTING=VALUE]`.
 *
 * Serves commands on stdin as KafkaOracle does: a line each, words split by tabs, each answer ended by a line ".". The answer is the log as it is afterwards.
 */
public class RetentionOracle {
    public static void main(String[] args) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        Scanner in = new Scanner(System.in);
        while (in.hasNextLine()) {
            String line = in.nextLine().trim();
            if (line.isEmpty()) continue;
            try {
                run(line.split("\t"), scheduler);
            } catch (Throwable t) {
                System.out.println("{\"error\":\"" + t.toString().replace("\\", "/").replace("\"", "'").replace("\n", " ") + "\"}");
            }
            System.out.println(".");
            System.out.flush();
        }
        scheduler.shutdown();
    }

    static void run(String[] words, KafkaScheduler scheduler) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (String word : words) {
            int at = word.indexOf('=');
            if (at > 0) options.put(word.substring(0, at), word.substring(at + 1));
        }
        Properties settings = new Properties();
        settings.put("file.delete.delay.ms", "0");
        options.forEach((name, value) -> { if (name.contains(".")) settings.put(name, value); });
        File dir = new File(words[1]).getAbsoluteFile();
        Time time = new MockTime(0, Long.parseLong(options.get("now")), 0);
        UnifiedLog log = UnifiedLog.create(dir, new LogConfig(settings), Long.parseLong(options.getOrDefault("logStart", "0")), 0, scheduler, new BrokerTopicStats(), time,
            900000, new ProducerStateManagerConfig(Integer.MAX_VALUE, false), 600000, new LogDirFailureChannel(1), Boolean.parseBoolean(options.getOrDefault("clean", "true")), Optional.empty());
        log.updateHighWatermark(Long.parseLong(options.get("hw")));
        int deleted = log.deleteOldSegments();
        StringJoiner segments = new StringJoiner(","), epochs = new StringJoiner(",");
        for (LogSegment segment : log.logSegments()) segments.add("[" + segment.baseOffset() + "," + segment.size() + "]");
        for (EpochEntry entry : log.leaderEpochCache().epochEntries()) epochs.add("[" + entry.epoch() + "," + entry.startOffset() + "]");
        System.out.println("{\"deleted\":" + deleted + ",\"logStart\":" + log.logStartOffset() + ",\"logEnd\":" + log.logEndOffset() + ",\"segments\":[" + segments + "],\"epochs\":[" + epochs + "]}");
        log.close();
        for (int i = 0; i < 200 && dir.list((d, n) -> n.endsWith(".deleted")).length > 0; i++) Thread.sleep(5);  // the scheduler deletes them, soon
    }
}
