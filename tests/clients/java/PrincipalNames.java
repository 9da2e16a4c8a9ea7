import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** Reads lines "name TAB DER of a name in hex" or "rule TAB rules TAB name"; prints the JDK's and Kafka's answers, as hex of UTF-8. */
public class PrincipalNames {
    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] parts = line.split("\t", -1);
            String answer;
            try {
                answer = parts[0].equals("name")
                    ? new X500Principal(HexFormat.of().parseHex(parts[1])).getName()
                    : SslPrincipalMapper.fromRules(text(parts[1])).getName(text(parts[2]));
                System.out.println("= " + HexFormat.of().formatHex(answer.getBytes(StandardCharsets.UTF_8)));
            } catch (Exception error) {
                System.out.println("! " + error.getClass().getSimpleName());
            }
        }
    }

    private static String text(String hex) {
        return new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_8);
    }
}
