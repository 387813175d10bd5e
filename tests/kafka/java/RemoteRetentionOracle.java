import org.apache.kafka.common.*;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.utils.*;
import org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataCache;
import org.apache.kafka.server.log.remote.storage.*;
import org.apache.kafka.server.common.OffsetAndEpoch;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.*;
import org.apache.kafka.storage.internals.epoch.*;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import java.io.File;
import java.io.InputStream;
import java.lang.reflect.*;
import java.nio.file.Files;
import java.util.*;
import java.util.concurrent.CompletableFuture;

/**
 * Kafka's own retention of remote segments on one partition directory, with a clock that is given:
 * `retain DIR now=MS logStart=OFFSET segments=START:END:SIZE:MAXTS:STATE:EPOCH-OFFSET.EPOCH-OFFSET;... [SETTING=VALUE]`.
 *
 * Serves commands on stdin as KafkaOracle does: a line each, words split by tabs, each answer ended by a line ".". Segments are told by their place in the list.
 */
public class RemoteRetentionOracle {
    static final TopicIdPartition PARTITION = new TopicIdPartition(new Uuid(1, 2), new TopicPartition("orders", 0));
    static RemoteLogMetadataCache cache;
    static UnifiedLog log;
    static long logStart;
    static final List<Long> deleted = new ArrayList<>();

    /** Calls a method of the cache, which is for its package alone. */
    @SuppressWarnings("unchecked")
    static <T> T ask(String name, Object... arguments) {
        try {
            for (Method method : RemoteLogMetadataCache.class.getDeclaredMethods()) {
                if (method.getName().equals(name) && method.getParameterCount() == arguments.length) {
                    method.setAccessible(true);
                    return (T) method.invoke(cache, arguments);
                }
            }
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e.getCause() == null ? e : e.getCause());
        }
        throw new IllegalStateException("no " + name);
    }

    public static class Metadata implements RemoteLogMetadataManager {
        public void configure(Map<String, ?> configs) { }
        public void close() { }
        public CompletableFuture<Void> addRemoteLogSegmentMetadata(RemoteLogSegmentMetadata m) { throw new UnsupportedOperationException(); }
        public CompletableFuture<Void> updateRemoteLogSegmentMetadata(RemoteLogSegmentMetadataUpdate u) throws RemoteStorageException {
            try {
                ask("updateRemoteLogSegmentMetadata", u);
            } catch (IllegalStateException e) {  // a segment of two epochs is deleted twice; the topic's reader warns of that, and goes on
                if (!(e.getCause() instanceof RemoteResourceNotFoundException)) throw e;
            }
            return CompletableFuture.completedFuture(null);
        }
        public Optional<RemoteLogSegmentMetadata> remoteLogSegmentMetadata(TopicIdPartition tp, int epoch, long offset) { return Optional.empty(); }
        public Optional<Long> highestOffsetForEpoch(TopicIdPartition tp, int epoch) { return ask("highestOffsetForEpoch", epoch); }
        public CompletableFuture<Void> putRemotePartitionDeleteMetadata(RemotePartitionDeleteMetadata m) { throw new UnsupportedOperationException(); }
        public Iterator<RemoteLogSegmentMetadata> listRemoteLogSegments(TopicIdPartition tp) { return ask("listAllRemoteLogSegments"); }
        public Iterator<RemoteLogSegmentMetadata> listRemoteLogSegments(TopicIdPartition tp, int epoch) throws RemoteStorageException { return ask("listRemoteLogSegments", epoch); }
        public void onPartitionLeadershipChanges(Set<TopicIdPartition> a, Set<TopicIdPartition> b) { }
        public void onStopPartitions(Set<TopicIdPartition> a) { }
        public long remoteLogSize(TopicIdPartition tp, int epoch) { return 0; }
    }

    public static class Storage implements RemoteStorageManager {
        public void configure(Map<String, ?> configs) { }
        public void close() { }
        public Optional<RemoteLogSegmentMetadata.CustomMetadata> copyLogSegmentData(RemoteLogSegmentMetadata m, LogSegmentData d) { return Optional.empty(); }
        public InputStream fetchLogSegment(RemoteLogSegmentMetadata m, int start) { return InputStream.nullInputStream(); }
        public InputStream fetchLogSegment(RemoteLogSegmentMetadata m, int start, int end) { return InputStream.nullInputStream(); }
        public InputStream fetchIndex(RemoteLogSegmentMetadata m, IndexType type) { return InputStream.nullInputStream(); }
        public void deleteLogSegmentData(RemoteLogSegmentMetadata m) { deleted.add(m.remoteLogSegmentId().id().getLeastSignificantBits()); }
    }

    public static void main(String[] args) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        MockTime time = new MockTime(0, 0, 0);
        RemoteLogManager manager = manager(time);
        Scanner in = new Scanner(System.in);
        while (in.hasNextLine()) {
            String line = in.nextLine().trim();
            if (line.isEmpty()) continue;
            try {
                run(line.split("\t"), scheduler, time, manager);
            } catch (Throwable thrown) {
                Throwable t = thrown instanceof InvocationTargetException ? thrown.getCause() : thrown;
                System.out.println("{\"error\":\"" + (t + " at " + t.getStackTrace()[0]).replace("\\", "/").replace("\"", "'").replace("\n", " ") + "\"}");
            }
            System.out.println(".");
            System.out.flush();
        }
        System.exit(0);
    }

    static RemoteLogManager manager(Time time) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("remote.log.storage.system.enable", "true");
        settings.put("remote.log.storage.manager.class.name", Storage.class.getName());
        settings.put("remote.log.metadata.manager.class.name", Metadata.class.getName());
        settings.put("remote.log.metadata.manager.listener.name", "PLAINTEXT");
        RemoteLogManagerConfig config = new RemoteLogManagerConfig(new AbstractConfig(RemoteLogManagerConfig.configDef(), settings));
        String folder = Files.createTempDirectory("oracle").toString();
        return new RemoteLogManager(config, 1, folder, "cluster", time, tp -> Optional.of(log), (tp, offset) -> logStart = offset, new BrokerTopicStats(true), new Metrics(), Optional.empty());
    }

    static void run(String[] words, KafkaScheduler scheduler, MockTime time, RemoteLogManager manager) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (String word : words) {
            int at = word.indexOf('=');
            if (at > 0) options.put(word.substring(0, at), word.substring(at + 1));
        }
        Properties settings = new Properties();
        settings.put("remote.storage.enable", "true");
        options.forEach((name, value) -> { if (name.contains(".")) settings.put(name, value); });
        time.setCurrentTimeMs(Long.parseLong(options.get("now")));
        log = UnifiedLog.create(new File(words[1]).getAbsoluteFile(), new LogConfig(settings), Long.parseLong(options.get("logStart")), 0, scheduler, new BrokerTopicStats(), time,
            900000, new ProducerStateManagerConfig(Integer.MAX_VALUE, false), 600000, new LogDirFailureChannel(1), true, Optional.empty(), new java.util.concurrent.ConcurrentHashMap<>(), true, LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
        Constructor<RemoteLogMetadataCache> empty = RemoteLogMetadataCache.class.getDeclaredConstructor();
        empty.setAccessible(true);
        cache = empty.newInstance();
        ask("markInitialized");
        deleted.clear();
        logStart = -1;
        long number = 0;
        for (String text : options.get("segments").split(";")) add(text.split(":"), number++);
        Method highest = RemoteLogManager.class.getDeclaredMethod("findHighestRemoteOffset", TopicIdPartition.class, UnifiedLog.class);
        highest.setAccessible(true);
        long copied = ((OffsetAndEpoch) highest.invoke(manager, PARTITION, log)).offset();
        log.updateHighestOffsetInRemoteStorage(copied);
        Class<?> kind = Class.forName("org.apache.kafka.server.log.remote.storage.RemoteLogManager$RLMExpirationTask");
        Constructor<?> make = kind.getDeclaredConstructor(RemoteLogManager.class, TopicIdPartition.class);
        make.setAccessible(true);
        Method clean = kind.getDeclaredMethod("cleanupExpiredRemoteLogSegments");
        clean.setAccessible(true);
        StringJoiner epochs = new StringJoiner(",");
        for (EpochEntry entry : log.leaderEpochCache().epochEntries()) epochs.add("[" + entry.epoch() + "," + entry.startOffset() + "]");
        long local = log.onlyLocalLogSegmentsSize(), start = log.logStartOffset(), end = log.logEndOffset();
        clean.invoke(make.newInstance(manager, PARTITION));
        System.out.println("{\"deleted\":" + deleted + ",\"newStart\":" + logStart + ",\"logStart\":" + start + ",\"logEnd\":" + end + ",\"local\":" + local + ",\"copied\":" + copied + ",\"epochs\":[" + epochs + "]}");
        log.close();
    }

    static void add(String[] parts, long number) throws Exception {
        NavigableMap<Integer, Long> epochs = new TreeMap<>();
        for (String epoch : parts[5].split("\\.")) epochs.put(Integer.parseInt(epoch.split("-")[0]), Long.parseLong(epoch.split("-")[1]));
        RemoteLogSegmentId id = new RemoteLogSegmentId(PARTITION, new Uuid(1, number));
        ask("addCopyInProgressSegment", new RemoteLogSegmentMetadata(id, Long.parseLong(parts[0]), Long.parseLong(parts[1]), Long.parseLong(parts[3]), 1, 0, Integer.parseInt(parts[2]), epochs));
        int state = Integer.parseInt(parts[4]);
        for (RemoteLogSegmentState next : List.of(RemoteLogSegmentState.COPY_SEGMENT_FINISHED, RemoteLogSegmentState.DELETE_SEGMENT_STARTED))
            if (state >= next.id()) ask("updateRemoteLogSegmentMetadata", new RemoteLogSegmentMetadataUpdate(id, 0, Optional.empty(), next, 1));
    }
}
