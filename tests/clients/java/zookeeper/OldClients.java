import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import kafka.api.FetchRequestBuilder;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.common.OffsetAndMetadata;
import kafka.common.OffsetMetadataAndError;
import kafka.common.TopicAndPartition;
import kafka.consumer.Blacklist;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.KafkaStream;
import kafka.consumer.Whitelist;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.OffsetCommitRequest;
import kafka.javaapi.OffsetFetchRequest;
import kafka.javaapi.OffsetRequest;
import kafka.javaapi.OffsetResponse;
import kafka.javaapi.PartitionMetadata;
import kafka.javaapi.TopicMetadata;
import kafka.javaapi.TopicMetadataRequest;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.javaapi.producer.Producer;
import kafka.message.MessageAndMetadata;
import kafka.message.MessageAndOffset;
import kafka.producer.KeyedMessage;
import kafka.producer.ProducerConfig;
import kafka.utils.VerifiableProperties;

/**
 * The clients of Kafka 0.8.2.2 that later versions do not contain: the high-level consumer, the SimpleConsumer and the old producer.
 *
 * <p>Reads a command per line of standard input, a JSON object whose field "do" names it, and prints one line for each:
 * {"result": ...} or {"error": TEXT}. Records are [topic, partition, offset, value].
 */
public final class OldClients {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int TIMEOUT_MS = 10_000;
    private static final int FETCH_BYTES = 1 << 20;

    private final Map<String, HighLevel> consumers = new HashMap<>();

    /** The keys of records are numbers of partitions. */
    public static final class ByKey implements kafka.producer.Partitioner {
        public ByKey(VerifiableProperties properties) {}

        @Override
        public int partition(Object key, int count) {
            return Integer.parseInt((String) key);
        }
    }

    /** A high-level consumer whose streams are read by a thread each. */
    private static final class HighLevel {
        private final ConsumerConnector connector;
        private final List<Object[]> records = Collections.synchronizedList(new ArrayList<>());

        private HighLevel(Properties properties, JsonNode command) {
            connector = Consumer.createJavaConsumerConnector(new ConsumerConfig(properties));
            List<KafkaStream<byte[], byte[]>> streams = new ArrayList<>();
            if (command.has("whitelist")) {
                streams.addAll(connector.createMessageStreamsByFilter(new Whitelist(command.get("whitelist").asText()), 1));
            } else if (command.has("blacklist")) {
                streams.addAll(connector.createMessageStreamsByFilter(new Blacklist(command.get("blacklist").asText()), 1));
            } else {
                Map<String, Integer> counts = new HashMap<>();
                command.get("topics").forEach(topic -> counts.put(topic.asText(), 1));
                connector.createMessageStreams(counts).values().forEach(streams::addAll);
            }
            for (KafkaStream<byte[], byte[]> stream : streams) {
                Thread thread = new Thread(() -> read(stream));
                thread.setDaemon(true);
                thread.start();
            }
        }

        private void read(KafkaStream<byte[], byte[]> stream) {
            for (MessageAndMetadata<byte[], byte[]> record : stream) {
                String value = new String(record.message(), StandardCharsets.UTF_8);
                records.add(new Object[] {record.topic(), record.partition(), record.offset(), value});
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        OldClients clients = new OldClients();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("result", JSON.valueToTree(clients.execute(JSON.readTree(line))));
            } catch (Exception error) {
                error.printStackTrace();
                answer.put("error", error.toString());
            }
            out.println(JSON.writeValueAsString(answer));
            out.flush();
        }
        System.exit(0);
    }

    private Object execute(JsonNode command) throws Exception {
        switch (command.get("do").asText()) {
            case "consume":
                consumers.put(command.get("name").asText(), new HighLevel(properties(command), command));
                return null;
            case "records":
                List<Object[]> records = consumers.get(command.get("name").asText()).records;
                synchronized (records) {
                    return new ArrayList<>(records);
                }
            case "commit":
                consumers.get(command.get("name").asText()).connector.commitOffsets(true);
                return null;
            case "stop":
                consumers.remove(command.get("name").asText()).connector.shutdown();
                return null;
            case "produce":
                return produce(command);
            case "leader":
                return leader(command);
            default:
                return simple(command);
        }
    }

    private static Properties properties(JsonNode command) {
        Properties properties = new Properties();
        command.get("properties").fields().forEachRemaining(entry -> properties.put(entry.getKey(), entry.getValue().asText()));
        return properties;
    }

    private static Object produce(JsonNode command) {
        Properties properties = properties(command);
        properties.put("serializer.class", "kafka.serializer.StringEncoder");
        properties.put("partitioner.class", ByKey.class.getName());
        Producer<String, String> producer = new Producer<>(new ProducerConfig(properties));
        try {
            List<KeyedMessage<String, String>> messages = new ArrayList<>();
            for (JsonNode value : command.get("values")) {
                String partition = command.get("partition").asText();
                messages.add(new KeyedMessage<>(command.get("topic").asText(), partition, value.asText()));
            }
            if (properties.get("producer.type").equals("async")) {
                messages.forEach(producer::send); // each goes into the queue; the producer's thread makes the batches
            } else {
                producer.send(messages);
            }
        } finally {
            producer.close();
        }
        return null;
    }

    /** What one broker answers to a TopicMetadataRequest: {"leader": id or -1, "host", "port", "replicas", "isr", "error"}. */
    private static Object leader(JsonNode command) {
        SimpleConsumer consumer = connect(command);
        try {
            TopicMetadataRequest request = new TopicMetadataRequest(Collections.singletonList(command.get("topic").asText()));
            for (TopicMetadata topic : consumer.send(request).topicsMetadata()) {
                for (PartitionMetadata partition : topic.partitionsMetadata()) {
                    if (partition.partitionId() == command.get("partition").asInt()) {
                        Map<String, Object> found = new LinkedHashMap<>();
                        found.put("leader", partition.leader() == null ? -1 : partition.leader().id());
                        found.put("host", partition.leader() == null ? "" : partition.leader().host());
                        found.put("port", partition.leader() == null ? -1 : partition.leader().port());
                        found.put("replicas", partition.replicas().size());
                        found.put("isr", partition.isr().size());
                        found.put("error", partition.errorCode());
                        return found;
                    }
                }
            }
            return null;
        } finally {
            consumer.close();
        }
    }

    private static SimpleConsumer connect(JsonNode command) {
        return new SimpleConsumer(command.get("host").asText(), command.get("port").asInt(), TIMEOUT_MS, 1 << 16, "simple");
    }

    /** Requests of the SimpleConsumer to one broker about one partition. */
    private static Object simple(JsonNode command) throws Exception {
        SimpleConsumer consumer = connect(command);
        TopicAndPartition partition = new TopicAndPartition(command.get("topic").asText(), command.get("partition").asInt());
        try {
            switch (command.get("do").asText()) {
                case "fetch":
                    return fetch(consumer, partition, command.get("offset").asLong());
                case "offsets":
                    PartitionOffsetRequestInfo info = new PartitionOffsetRequestInfo(command.get("time").asLong(), 1);
                    OffsetResponse offsets = consumer.getOffsetsBefore(
                            new OffsetRequest(Collections.singletonMap(partition, info), kafka.api.OffsetRequest.CurrentVersion(), "simple"));
                    return offsets.hasError()
                            ? Map.of("code", offsets.errorCode(partition.topic(), partition.partition()))
                            : Map.of("code", 0, "offsets", offsets.offsets(partition.topic(), partition.partition()));
                case "commit offset":
                    OffsetAndMetadata offset = new OffsetAndMetadata(command.get("offset").asLong(), "", -1L);
                    Map<TopicAndPartition, OffsetAndMetadata> commit = new LinkedHashMap<>(Map.of(partition, offset));
                    short version = (short) command.get("version").asInt();
                    return consumer.commitOffsets(new OffsetCommitRequest(group(command), commit, 0, "simple", version)).errors().get(partition);
                case "fetch offset":
                    OffsetMetadataAndError found = consumer.fetchOffsets(new OffsetFetchRequest(
                            group(command), Collections.singletonList(partition), (short) command.get("version").asInt(), 0, "simple"))
                            .offsets().get(partition);
                    return Map.of("code", found.error(), "offset", found.offset());
                default:
                    throw new IllegalArgumentException("unknown command " + command);
            }
        } finally {
            consumer.close();
        }
    }

    private static String group(JsonNode command) {
        return command.get("group").asText();
    }

    private static Object fetch(SimpleConsumer consumer, TopicAndPartition partition, long offset) {
        String topic = partition.topic();
        int number = partition.partition();
        FetchResponse response = consumer.fetch(
                new FetchRequestBuilder().clientId("simple").addFetch(topic, number, offset, FETCH_BYTES).build());
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("code", response.errorCode(topic, number));
        List<Object[]> records = new ArrayList<>();
        if (!response.hasError()) {
            for (Iterator<MessageAndOffset> each = response.messageSet(topic, number).iterator(); each.hasNext(); ) {
                MessageAndOffset record = each.next();
                ByteBuffer payload = record.message().payload();
                byte[] value = new byte[payload.remaining()];
                payload.get(value);
                records.add(new Object[] {topic, number, record.offset(), new String(value, StandardCharsets.UTF_8)});
            }
        }
        result.put("records", records);
        return result;
    }
}
