import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main methods of Kafka's tools, one after the other, in one JVM: a line of JSON [class, argument, ...] in, a line of
 * JSON {code, out, err} out. What a tool registered to run at the end of its process runs at the end of its main.
 */
public class Tools {
    /** A tool's call of Exit, which ends it and not this process. */
    private static final class Ended extends Error {
        Ended() {
            super("ended", null, false, false);
        }
    }

    /** What the tool ended with: its first call of Exit, since some catch what is thrown there and call again. */
    private static Integer ended;

    public static void main(String[] none) throws Exception {
        ObjectMapper json = new ObjectMapper();
        PrintStream answers = System.out;
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Deque<Runnable> hooks = new ArrayDeque<>();
        Exit.setExitProcedure((code, message) -> end(code, message));
        Exit.setHaltProcedure((code, message) -> end(code, message));
        Exit.setShutdownHookAdder((name, hook) -> hooks.push(hook));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] command = json.readValue(line, String[].class);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            PrintStream outPrinter = new PrintStream(out, true, StandardCharsets.UTF_8);
            PrintStream errPrinter = new PrintStream(err, true, StandardCharsets.UTF_8);
            System.setOut(outPrinter);
            System.setErr(errPrinter);
            ended = null;
            int code = run(command);
            System.setOut(outPrinter);
            while (!hooks.isEmpty()) {
                hooks.pop().run();
            }
            outPrinter.flush();
            errPrinter.flush();
            answers.println(json.writeValueAsString(Map.of(
                "code", code,
                "out", out.toString(StandardCharsets.UTF_8),
                "err", err.toString(StandardCharsets.UTF_8))));
            answers.flush();
        }
    }

    private static void end(int code, String message) {
        if (ended == null) {
            if (message != null) {
                System.err.println(message);
            }
            ended = code;
            System.setOut(new PrintStream(OutputStream.nullOutputStream()));
            System.setErr(System.out);
        }
        throw new Ended();
    }

    private static int run(String[] command) throws ReflectiveOperationException {
        String[] arguments = java.util.Arrays.copyOfRange(command, 1, command.length);
        try {
            Class.forName(command[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException failed) {
            if (ended == null) {
                failed.getCause().printStackTrace();
                return 1;
            }
        }
        return ended == null ? 0 : ended;
    }
}
