import java.lang.reflect.Method;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.streams.tests.SmokeTestDriver;

/**
 * The driver of the smoke test of Kafka Streams with amounts of the caller's choice. {@code Smoke create SERVERS PARTITIONS} makes its
 * topics; {@code Smoke drive SERVERS KEYS RECORDS SECONDS} writes so many records for each key in so many seconds, waits for the end of its
 * input and until the application has processed everything, and ends with 0 if the results of exactly-once processing are right.
 */
public final class Smoke {
    private static final String APPLICATION = "SmokeTest";

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
        System.in.readAllBytes();
        awaitProcessed(args[1]);
        System.out.println("PROCESSED");
        // Kafka 4.3 has a fourth parameter: whether to expect results of exactly-once processing
        Method verify = Arrays.stream(SmokeTestDriver.class.getMethods()).filter(each -> each.getName().equals("verify")).findFirst().get();
        Object result =
            verify.getParameterCount() == 4 ? verify.invoke(null, args[1], written, records, true) : verify.invoke(null, args[1], written, records);
        System.out.println(result.getClass().getMethod("result").invoke(result));
        System.exit((Boolean) result.getClass().getMethod("passed").invoke(result) ? 0 : 1);
    }

    /**
     * Wait until all that the application reads is processed. The verification of 4.3 compares the end of each output partition with an
     * earlier look at its high watermark, and fails if a transaction ends between the two.
     */
    private static void awaitProcessed(String servers) throws Exception {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", servers, "isolation.level", "read_committed", "enable.auto.commit", "false",
            "key.deserializer", ByteArrayDeserializer.class, "value.deserializer", ByteArrayDeserializer.class);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers));
             KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            while (!processed(admin, consumer)) {
                consumer.poll(Duration.ofMillis(200));
            }
        }
    }

    private static boolean processed(Admin admin, KafkaConsumer<byte[], byte[]> consumer) throws Exception {
        // Positions first: what a record of a partition causes in another one is there before the record's own position is committed.
        Map<TopicPartition, OffsetAndMetadata> positions = admin.listConsumerGroupOffsets(APPLICATION).partitionsToOffsetAndMetadata().get();
        Set<String> topics = new TreeSet<>(Set.of("data"));
        positions.keySet().forEach(partition -> topics.add(partition.topic()));
        Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
        for (TopicDescription topic : admin.describeTopics(topics).allTopicNames().get().values()) {
            topic.partitions().forEach(each -> asked.put(new TopicPartition(topic.name(), each.partition()), OffsetSpec.latest()));
        }
        Map<TopicPartition, ListOffsetsResultInfo> ends = admin.listOffsets(asked).all().get();
        // Markers and aborted records may follow the last record that the application has read; nothing committed may.
        consumer.assign(asked.keySet());
        asked.keySet().forEach(partition -> {
            OffsetAndMetadata position = positions.get(partition);
            consumer.seek(partition, position == null ? 0 : position.offset());
        });
        for (int polls = 0; polls < 10; polls++) {
            if (!consumer.poll(Duration.ofMillis(200)).isEmpty()) {
                return false;
            }
            if (asked.keySet().stream().allMatch(partition -> consumer.position(partition) >= ends.get(partition).offset())) {
                return true;
            }
        }
        return false;
    }
}
