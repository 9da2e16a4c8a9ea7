import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.streams.tests.SmokeTestDriver;
import org.apache.kafka.streams.tests.SmokeTestUtil.VerificationResult;

/**
 * The driver of the smoke test of Kafka Streams with amounts of the caller's choice. {@code Smoke create SERVERS PARTITIONS} makes its
 * topics; {@code Smoke drive SERVERS KEYS RECORDS SECONDS} writes so many records for each key in so many seconds, and ends with 0 if the
 * results of exactly-once processing are right.
 */
public final class Smoke {
    public static void main(String[] args) throws Exception {
        if (args[0].equals("create")) {
            List<NewTopic> topics = new ArrayList<>();
            for (String topic : SmokeTestDriver.topics()) {
                topics.add(new NewTopic(topic, Integer.parseInt(args[2]), (short) 1));
            }
            try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[1]))) {
                admin.createTopics(topics).all().get();
            }
            return;
        }
        int records = Integer.parseInt(args[3]);
        Map<String, Set<Integer>> written =
            SmokeTestDriver.generate(args[1], Integer.parseInt(args[2]), records, Duration.ofSeconds(Integer.parseInt(args[4])));
        System.out.println("GENERATED");
        VerificationResult result = SmokeTestDriver.verify(args[1], written, records, true);
        System.out.println(result.result());
        System.exit(result.passed() ? 0 : 1);
    }
}
