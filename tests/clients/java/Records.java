import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Kafka's own Java client under the tests' contract (tests/clients/contract.py): {@code java Records write|read}. */
public final class Records {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    private final BufferedWriter out = new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8));
    private final JsonNode settings;
    private final long deadlineNanos;

    private Records() throws IOException {
        settings = JSON.readTree(in.readLine());
        deadlineNanos = System.nanoTime() + TimeUnit.SECONDS.toNanos(settings.get("timeout_s").asLong());
    }

    public static void main(String[] args) throws Exception {
        Records records = new Records();
        switch (args[0]) {
            case "write" -> records.write();
            case "read" -> records.read();
            default -> throw new IllegalArgumentException(args[0]);
        }
        records.out.flush();
    }

    private void write() throws Exception {
        Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode fields = JSON.readTree(line);
            List<Header> headers = new ArrayList<>();
            for (JsonNode pair : fields.get("headers")) {
                headers.add(new RecordHeader(pair.get(0).asText(), bytes(pair.get(1))));
            }
            JsonNode timestamp = fields.get("timestamp");
            sent.add(producers.computeIfAbsent(fields.get("codec").asText(), this::producer).send(new ProducerRecord<>(
                fields.get("topic").asText(), fields.get("partition").asInt(),
                timestamp.isNull() ? null : (Long) timestamp.asLong(), bytes(fields.get("key")), bytes(fields.get("value")), headers)));
        }
        producers.values().forEach(KafkaProducer::flush);
        for (Future<RecordMetadata> future : sent) {
            RecordMetadata metadata = future.get(deadlineNanos - System.nanoTime(), TimeUnit.NANOSECONDS);
            ObjectNode line = JSON.createObjectNode();
            line.put("topic", metadata.topic()).put("partition", metadata.partition()).put("offset", metadata.offset());
            print(line);
        }
        producers.values().forEach(KafkaProducer::close);
    }

    private KafkaProducer<byte[], byte[]> producer(String codec) {
        Map<String, Object> properties = new HashMap<>();
        properties.put("bootstrap.servers", settings.get("bootstrap_servers").asText());
        properties.put("compression.type", codec);
        properties.put("enable.idempotence", settings.get("idempotence").asBoolean());
        properties.put("acks", "all");
        properties.put("linger.ms", settings.get("linger_ms").asInt());
        properties.put("batch.size", settings.get("batch_bytes").asInt());
        properties.put("max.in.flight.requests.per.connection", settings.get("in_flight").asInt());
        return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private void read() throws Exception {
        Map<TopicPartition, Long> next = new HashMap<>();
        Map<TopicPartition, Long> end = new HashMap<>();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode span = JSON.readTree(line);
            TopicPartition partition = new TopicPartition(span.get("topic").asText(), span.get("partition").asInt());
            next.put(partition, span.get("start").asLong());
            end.put(partition, span.get("end").asLong());
        }
        Map<String, Object> properties = new HashMap<>();
        properties.put("bootstrap.servers", settings.get("bootstrap_servers").asText());
        properties.put("enable.auto.commit", false);
        properties.put("auto.offset.reset", "none");
        properties.put("fetch.max.wait.ms", 20);
        properties.put("max.poll.records", 5000);
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(next.keySet());
            next.forEach(consumer::seek);
            while (next.entrySet().stream().anyMatch(each -> each.getValue() < end.get(each.getKey()))) {
                if (System.nanoTime() > deadlineNanos) {
                    throw new IllegalStateException("not all records arrived; next offsets: " + next);
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                    if (record.offset() < end.get(partition)) {
                        next.put(partition, record.offset() + 1);
                        print(line(record));
                    }
                }
            }
        }
    }

    private static ObjectNode line(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode line = JSON.createObjectNode();
        line.put("topic", record.topic()).put("partition", record.partition()).put("offset", record.offset());
        line.put("timestamp", record.timestamp()).put("key", record.key()).put("value", record.value());
        ArrayNode headers = line.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(header.value());
        }
        return line;
    }

    private void print(ObjectNode line) throws IOException {
        out.write(JSON.writeValueAsString(line));
        out.write('\n');
    }

    private static byte[] bytes(JsonNode text) throws IOException {
        return text.isNull() ? null : text.binaryValue();
    }
}
