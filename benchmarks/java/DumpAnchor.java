import org.apache.kafka.tools.DumpLogSegments;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;

/**
 * kafka-dump-log with deep iteration in a warm JVM; what it prints goes nowhere.
 *
 * A line on stdin is a segment file. The answer is a line with 1, and the nanoseconds that this thread was at work.
 */
public final class DumpAnchor {
    private static final ThreadMXBean CLOCK = ManagementFactory.getThreadMXBean();

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(new PrintStream(OutputStream.nullOutputStream()));
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String file = commands.readLine(); file != null; file = commands.readLine()) {
            long began = CLOCK.getCurrentThreadCpuTime();
            DumpLogSegments.main(new String[] {"--deep-iteration", "--files", file});
            answers.println("1 " + (CLOCK.getCurrentThreadCpuTime() - began));
            answers.flush();
        }
    }
}
