import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.*;

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/**
 * Iterates the records of a segment file with Kafka's own classes, CRC checked, and says how long it took.
 *
 * A line on stdin is a command, `file PATH` (through FileRecords, as the broker's cleaner and tools do) or `fetched PATH`
 * (the file in pieces through MemoryRecords, as a consumer does with what it fetched). The answer is a line with the records,
 * and the nanoseconds that this thread was at work.
 */
public final class DecodeAnchor {
    private static final ThreadMXBean CLOCK = ManagementFactory.getThreadMXBean();
    private static final int PIECE = 8 << 20;
    private static final BufferSupplier BUFFERS = BufferSupplier.create();
    private static ByteBuffer piece = ByteBuffer.allocate(PIECE);
    private static long touched;

    public static void main(String[] args) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            int space = line.indexOf(' ');
            File file = new File(line.substring(space + 1));
            long began = CLOCK.getCurrentThreadCpuTime();
            long records = line.startsWith("fetched ") ? throughFetched(file.toPath()) : throughFile(file);
            long nanos = CLOCK.getCurrentThreadCpuTime() - began;
            System.out.println(records + " " + nanos);
        }
        if (touched == 42) System.err.println(touched);  // so that no compiler may drop the work
    }

    private static long throughFile(File file) throws Exception {
        long records = 0;
        try (FileRecords log = FileRecords.open(file, false)) {
            for (RecordBatch batch : log.batches()) {
                batch.ensureValid();
                records += iterate(batch);
            }
        }
        return records;
    }

    private static long throughFetched(Path path) throws Exception {
        long records = 0;
        long position = 0;
        try (FileChannel channel = FileChannel.open(path, StandardOpenOption.READ)) {
            long size = channel.size();
            while (position < size) {
                piece.clear();
                piece.limit((int) Math.min(piece.capacity(), size - position));
                while (piece.hasRemaining() && channel.read(piece, position + piece.position()) > 0) { }
                piece.flip();
                int used = 0;
                for (MutableRecordBatch batch : MemoryRecords.readableRecords(piece.duplicate()).batches()) {
                    batch.ensureValid();
                    records += iterate(batch);
                    used += batch.sizeInBytes();
                }
                if (used == 0) piece = ByteBuffer.allocate(2 * piece.capacity());
                position += used;
            }
        }
        return records;
    }

    private static long iterate(RecordBatch batch) {
        long records = 0;
        long bytes = 0;
        try (CloseableIterator<Record> iterator = batch.streamingIterator(BUFFERS)) {
            while (iterator.hasNext()) {
                Record record = iterator.next();
                bytes += record.keySize() + record.valueSize() + record.offset() + record.timestamp();
                records++;
            }
        }
        touched += bytes;
        return records;
    }
}
