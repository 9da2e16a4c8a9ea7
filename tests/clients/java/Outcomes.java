import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * What becomes of each record that Kafka's Java producer sends. Input: one line of JSON {"properties": {...}, "records": [{"topic",
 * "key", "value", "timestamp"}, ...]}, all of which go out in one batch; output: a line for each record, {"offset"} or {"error",
 * "message"}. A transactional producer (with "transactional.id" among the properties) initialises its transactions first; if that
 * fails, the error is the only line.
 */
public final class Outcomes {
    public static void main(String[] none) throws Exception {
        ObjectMapper json = new ObjectMapper();
        JsonNode input = json.readTree(new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)).readLine());
        Map<String, Object> properties = new HashMap<>();
        input.get("properties").fields().forEachRemaining(each -> properties.put(each.getKey(), each.getValue().asText()));
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
            if (properties.containsKey("transactional.id")) {
                try {
                    producer.initTransactions();
                } catch (KafkaException error) {
                    System.out.println(json.writeValueAsString(line(json, error)));
                    return;
                }
            }
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode record : input.get("records")) {
                sent.add(producer.send(new ProducerRecord<>(record.get("topic").asText(), 0,
                    record.hasNonNull("timestamp") ? record.get("timestamp").asLong() : null,
                    record.hasNonNull("key") ? record.get("key").asText() : null, record.get("value").asText())));
            }
            producer.flush();
            for (Future<RecordMetadata> future : sent) {
                ObjectNode line;
                try {
                    line = json.createObjectNode().put("offset", future.get().offset());
                } catch (ExecutionException error) {
                    line = line(json, error.getCause());
                }
                System.out.println(json.writeValueAsString(line));
            }
        }
    }

    private static ObjectNode line(ObjectMapper json, Throwable error) {
        return json.createObjectNode().put("error", error.getClass().getSimpleName()).put("message", error.getMessage());
    }
}
