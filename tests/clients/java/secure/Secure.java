import java.io.FileInputStream;
import java.io.InputStream;
import java.time.Duration;
import java.util.Collections;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Kafka's Java client writes a record and reads it back: {@code java Secure SERVERS PROPERTIES TOPIC VALUE}. */
public final class Secure {
    private static final long PATIENCE_MS = 90_000;

    private Secure() {
    }

    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        try (InputStream file = new FileInputStream(args[1])) {
            properties.load(file);
        }
        properties.put("bootstrap.servers", args[0]);
        try {
            System.out.println("read " + writeAndRead(properties, args[2], args[3]));
        } catch (Exception error) {
            System.err.println(error);
            System.exit(1);
        }
    }

    private static String writeAndRead(Properties properties, String topic, String value) throws Exception {
        RecordMetadata written;
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
            written = producer.send(new ProducerRecord<>(topic, value)).get();
        }
        TopicPartition partition = new TopicPartition(written.topic(), written.partition());
        long end = System.currentTimeMillis() + PATIENCE_MS;
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(Collections.singleton(partition));
            consumer.seek(partition, written.offset());
            while (System.currentTimeMillis() < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    return record.value();
                }
            }
        }
        throw new IllegalStateException("no record within " + PATIENCE_MS + " ms");
    }
}
