import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Kafka's Java client of any version from 0.11 under the contract of tests/clients/transactions.py: {@code java Transactions SERVERS}.
 * What differs between the versions is called by reflection.
 */
public final class Transactions {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long PATIENCE_MS = 90_000;

    private final String servers;
    private final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();

    private Transactions(String servers) {
        this.servers = servers;
    }

    public static void main(String[] args) throws Exception {
        Transactions transactions = new Transactions(args[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                transactions.run(JSON.readTree(line), answer);
            } catch (Exception error) {
                Throwable cause = error instanceof InvocationTargetException || error instanceof java.util.concurrent.ExecutionException
                    ? error.getCause() : error;
                answer.put("error", cause.getClass().getSimpleName() + ": " + cause.getMessage());
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
        Runtime.getRuntime().halt(0); // without waiting for transactions that a test left open
    }

    private void run(JsonNode command, ObjectNode answer) throws Exception {
        KafkaProducer<String, String> producer = producers.get(command.path("instance").asText());
        switch (command.get("do").asText()) {
            case "open": open(command); break;
            case "begin": producer.beginTransaction(); break;
            case "write": write(producer, command); break;
            case "offsets": sendOffsets(producer, command); break;
            case "commit": producer.commitTransaction(); break;
            case "abort": producer.abortTransaction(); break;
            case "close": close(producers.remove(command.get("instance").asText())); break;
            case "read": read(command, answer.putArray("values")); break;
            default: throw new IllegalArgumentException(command.toString());
        }
    }

    private void open(JsonNode command) {
        Map<String, Object> properties = new HashMap<>();
        properties.put("bootstrap.servers", servers);
        properties.put("transactional.id", command.get("transactional_id").asText());
        properties.put("transaction.timeout.ms", command.get("timeout_ms").asInt());
        properties.put("request.timeout.ms", command.get("request_timeout_ms").asInt());
        properties.put("delivery.timeout.ms", 120_000); // unknown before 2.1, which only says so
        properties.put("max.block.ms", PATIENCE_MS);
        properties.put("enable.idempotence", true);
        properties.put("retries", Integer.MAX_VALUE);
        properties.put("acks", "all");
        properties.put("max.in.flight.requests.per.connection", 1);
        KafkaProducer<String, String> producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
        producers.put(command.get("instance").asText(), producer);
        producer.initTransactions();
    }

    private void write(KafkaProducer<String, String> producer, JsonNode command) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode value : command.get("values")) {
            sent.add(producer.send(new ProducerRecord<>(
                command.get("topic").asText(), command.get("partition").asInt(), null, value.asText())));
        }
        producer.flush();
        for (Future<RecordMetadata> future : sent) {
            future.get();
        }
    }

    private void sendOffsets(KafkaProducer<String, String> producer, JsonNode command) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        offsets.put(new TopicPartition(command.get("topic").asText(), command.get("partition").asInt()),
            new OffsetAndMetadata(command.get("offset").asLong()));
        String group = command.get("group").asText();
        try {
            Class<?> metadata = Class.forName("org.apache.kafka.clients.consumer.ConsumerGroupMetadata");
            producer.getClass().getMethod("sendOffsetsToTransaction", Map.class, metadata)
                .invoke(producer, offsets, metadata.getConstructor(String.class).newInstance(group));
        } catch (ClassNotFoundException | NoSuchMethodException before25) {
            producer.getClass().getMethod("sendOffsetsToTransaction", Map.class, String.class).invoke(producer, offsets, group);
        }
    }

    private static void close(KafkaProducer<String, String> producer) throws Exception {
        try {
            Class<?> duration = Class.forName("java.time.Duration");
            producer.getClass().getMethod("close", duration).invoke(producer, java.time.Duration.ZERO);
        } catch (NoSuchMethodException before20) {
            producer.getClass().getMethod("close", long.class, java.util.concurrent.TimeUnit.class)
                .invoke(producer, 0L, java.util.concurrent.TimeUnit.MILLISECONDS);
        }
    }

    private void read(JsonNode command, ArrayNode values) throws Exception {
        Map<String, Object> properties = new HashMap<>();
        properties.put("bootstrap.servers", servers);
        properties.put("isolation.level", "read_committed");
        properties.put("enable.auto.commit", false);
        properties.put("auto.offset.reset", "earliest");
        properties.put("group.id", "not-joined");
        properties.put("fetch.max.wait.ms", 20);
        String last = command.get("last").asText();
        Map<TopicPartition, ArrayNode> found = new HashMap<>();
        for (int number = 0; number < command.get("partitions").asInt(); number++) {
            found.put(new TopicPartition(command.get("topic").asText(), number), values.addArray());
        }
        Set<TopicPartition> left = new HashSet<>(found.keySet());
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        try (KafkaConsumer<String, String> consumer =
                 new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(found.keySet());
            while (!left.isEmpty()) {
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException("not read to the end: " + left + " " + found);
                }
                for (ConsumerRecord<String, String> record : poll(consumer)) {
                    TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                    if (record.value().equals(last)) {
                        left.remove(partition);
                    } else {
                        found.get(partition).add(record.value());
                    }
                }
            }
        }
    }

    @SuppressWarnings("unchecked")
    private static ConsumerRecords<String, String> poll(KafkaConsumer<String, String> consumer) throws Exception {
        try {
            return (ConsumerRecords<String, String>) consumer.getClass().getMethod("poll", java.time.Duration.class)
                .invoke(consumer, java.time.Duration.ofMillis(100));
        } catch (NoSuchMethodException before20) {
            return (ConsumerRecords<String, String>) consumer.getClass().getMethod("poll", long.class).invoke(consumer, 100L);
        }
    }
}
