import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

/**
 * Kafka's Java client before 0.11 under the tests' contract (tests/clients/contract.py): {@code java OldRecords write|read}.
 *
 * <p>What a version has not (timestamps before 0.10, a consumer before 0.9) is looked for when it runs.
 */
public final class OldRecords {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    private final BufferedWriter out = new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8));
    private final JsonNode settings;
    private final long deadlineNanos;

    private OldRecords() throws IOException {
        settings = JSON.readTree(in.readLine());
        deadlineNanos = System.nanoTime() + TimeUnit.SECONDS.toNanos(settings.get("timeout_s").asLong());
    }

    public static void main(String[] args) throws Exception {
        OldRecords records = new OldRecords();
        if (args[0].equals("write")) {
            records.write();
        } else {
            records.read();
        }
        records.out.flush();
        System.exit(0);
    }

    private void write() throws Exception {
        Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode fields = JSON.readTree(line);
            String codec = fields.get("codec").asText();
            if (!producers.containsKey(codec)) {
                producers.put(codec, producer(codec));
            }
            sent.add(producers.get(codec).send(record(fields)));
        }
        for (Future<RecordMetadata> future : sent) {
            RecordMetadata metadata = future.get(deadlineNanos - System.nanoTime(), TimeUnit.NANOSECONDS);
            ObjectNode line = JSON.createObjectNode();
            line.put("topic", metadata.topic()).put("partition", metadata.partition()).put("offset", metadata.offset());
            print(line);
        }
        for (KafkaProducer<byte[], byte[]> producer : producers.values()) {
            producer.close();
        }
    }

    @SuppressWarnings("unchecked")
    private static ProducerRecord<byte[], byte[]> record(JsonNode fields) throws Exception {
        String topic = fields.get("topic").asText();
        Integer partition = fields.get("partition").asInt();
        byte[] key = bytes(fields.get("key"));
        byte[] value = bytes(fields.get("value"));
        for (Constructor<?> made : ProducerRecord.class.getConstructors()) {
            if (made.getParameterTypes().length == 5) {
                return (ProducerRecord<byte[], byte[]>) made.newInstance(topic, partition, fields.get("timestamp").asLong(), key, value);
            }
        }
        return new ProducerRecord<>(topic, partition, key, value);
    }

    private Map<String, Object> properties() {
        Map<String, Object> properties = new HashMap<>();
        properties.put("bootstrap.servers", settings.get("bootstrap_servers").asText());
        properties.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        properties.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        return properties;
    }

    private KafkaProducer<byte[], byte[]> producer(String codec) {
        Map<String, Object> properties = properties();
        properties.put("compression.type", codec);
        properties.put("acks", "all");
        properties.put("linger.ms", settings.get("linger_ms").asInt());
        properties.put("batch.size", settings.get("batch_bytes").asInt());
        return new KafkaProducer<>(properties);
    }

    /** By reflection throughout: 0.9 takes a list where 0.10 takes a collection. */
    private void read() throws Exception {
        Map<TopicPartition, Long> next = new HashMap<>();
        Map<TopicPartition, Long> end = new HashMap<>();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode span = JSON.readTree(line);
            TopicPartition partition = new TopicPartition(span.get("topic").asText(), span.get("partition").asInt());
            next.put(partition, span.get("start").asLong());
            end.put(partition, span.get("end").asLong());
        }
        Map<String, Object> properties = properties();
        properties.put("group.id", "unused");
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "none");
        properties.put("fetch.max.wait.ms", "20");
        Class<?> kind = Class.forName("org.apache.kafka.clients.consumer.KafkaConsumer");
        Object consumer = kind.getConstructor(Map.class).newInstance(properties);
        method(kind, "assign", 1).invoke(consumer, new ArrayList<>(next.keySet()));
        for (Map.Entry<TopicPartition, Long> each : next.entrySet()) {
            kind.getMethod("seek", TopicPartition.class, long.class).invoke(consumer, each.getKey(), each.getValue());
        }
        Method poll = kind.getMethod("poll", long.class);
        while (!done(next, end)) {
            if (System.nanoTime() > deadlineNanos) {
                throw new IllegalStateException("not all records arrived; next offsets: " + next);
            }
            for (Object record : (Iterable<?>) poll.invoke(consumer, 100L)) {
                TopicPartition partition = new TopicPartition((String) get(record, "topic"), (Integer) get(record, "partition"));
                long offset = (Long) get(record, "offset");
                if (offset < end.get(partition)) {
                    next.put(partition, offset + 1);
                    print(line(record, partition, offset));
                }
            }
        }
    }

    private static boolean done(Map<TopicPartition, Long> next, Map<TopicPartition, Long> end) {
        for (Map.Entry<TopicPartition, Long> each : next.entrySet()) {
            if (each.getValue() < end.get(each.getKey())) {
                return false;
            }
        }
        return true;
    }

    private static Method method(Class<?> kind, String name, int parameters) {
        for (Method method : kind.getMethods()) {
            if (method.getName().equals(name) && method.getParameterTypes().length == parameters) {
                return method;
            }
        }
        throw new IllegalStateException("no method " + name);
    }

    private static Object get(Object record, String name) throws Exception {
        return record.getClass().getMethod(name).invoke(record);
    }

    private static ObjectNode line(Object record, TopicPartition partition, long offset) throws Exception {
        ObjectNode line = JSON.createObjectNode();
        line.put("topic", partition.topic()).put("partition", partition.partition()).put("offset", offset);
        line.put("key", (byte[]) get(record, "key")).put("value", (byte[]) get(record, "value"));
        try {
            line.put("timestamp", (Long) get(record, "timestamp"));
        } catch (NoSuchMethodException before010) {
            line.putNull("timestamp");
        }
        line.putArray("headers");
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
