import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.*;

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

/**
 * Builds batches with Kafka's MemoryRecordsBuilder and says how long it took.
 *
 * `load PATH` takes the records of a segment file into memory as arrays of bytes; `encode CODEC COUNT` builds batches of
 * COUNT of them, each into the same buffer, as a producer's buffer pool gives it. The answer is a line with the records,
 * the nanoseconds that this thread was at work, and the bytes of all batches.
 */
public final class EncodeAnchor {
    private static final ThreadMXBean CLOCK = ManagementFactory.getThreadMXBean();
    private static final List<byte[]> KEYS = new ArrayList<>();
    private static final List<byte[]> VALUES = new ArrayList<>();
    private static long[] timestamps = new long[0];

    public static void main(String[] args) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            long began = CLOCK.getCurrentThreadCpuTime();
            long bytes = 0;
            if (line.startsWith("load ")) {
                load(new File(line.substring(5)));
            } else {
                String[] words = line.split(" ");
                bytes = encode(Compression.of(words[1]).build(), Integer.parseInt(words[2]));
            }
            System.out.println(KEYS.size() + " " + (CLOCK.getCurrentThreadCpuTime() - began) + " " + bytes);
        }
    }

    private static void load(File file) throws Exception {
        List<Long> times = new ArrayList<>();
        try (FileRecords log = FileRecords.open(file, false)) {
            for (Record record : log.records()) {
                KEYS.add(Utils.toNullableArray(record.key()));
                VALUES.add(Utils.toNullableArray(record.value()));
                times.add(record.timestamp());
            }
        }
        timestamps = times.stream().mapToLong(Long::longValue).toArray();
    }

    private static long encode(Compression compression, int count) {
        long bytes = 0;
        ByteBuffer buffer = ByteBuffer.allocate(64 << 10);
        for (int start = 0; start < KEYS.size(); start += count) {
            int end = Math.min(start + count, KEYS.size());
            buffer.clear();
            ByteBufferOutputStream out = new ByteBufferOutputStream(buffer);
            MemoryRecordsBuilder builder = new MemoryRecordsBuilder(out, RecordBatch.MAGIC_VALUE_V2, compression,
                TimestampType.CREATE_TIME, start, RecordBatch.NO_TIMESTAMP, RecordBatch.NO_PRODUCER_ID,
                RecordBatch.NO_PRODUCER_EPOCH, RecordBatch.NO_SEQUENCE, false, false, 0, Integer.MAX_VALUE);
            for (int i = start; i < end; i++) builder.append(timestamps[i], KEYS.get(i), VALUES.get(i));
            bytes += builder.build().sizeInBytes();
            buffer = out.buffer();
        }
        return bytes;
    }
}
