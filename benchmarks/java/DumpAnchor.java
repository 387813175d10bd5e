import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;

/** kafka-dump-log in a warm JVM: "FILE" runs it with deep iteration, its output goes nowhere; answers "1 NANOSECONDS". */
public class DumpAnchor {
    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        PrintStream nowhere = new PrintStream(OutputStream.nullOutputStream());
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String file; (file = commands.readLine()) != null; ) {
            System.setOut(nowhere);
            long began = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
            scala.Console.withOut(nowhere, new Dump(file));
            long nanos = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() - began;
            System.setOut(answers);
            answers.println("1 " + nanos);
            answers.flush();
        }
    }

    /** Scala's println has its own idea of where the output goes. */
    record Dump(String file) implements scala.Function0<Object> {
        public Object apply() {
            kafka.tools.DumpLogSegments.main(new String[] {"--deep-iteration", "--files", file});
            return null;
        }
    }
}
