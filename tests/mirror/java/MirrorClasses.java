package org.apache.kafka.connect.mirror; // for methods that only this package may call

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Runs MirrorMaker 2's classes for the tests: a line of words, which tabs separate, on standard input; a line on standard output.
 */
public class MirrorClasses {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = input.readLine()) != null; ) {
            String[] words = line.split("\t", -1);
            System.out.println(
                switch (words[0]) {
                    case "encode" -> encode(words);
                    case "decode" -> decode(words);
                    case "store" -> store(words);
                    case "offsets" -> offsets(words);
                    case "upstream" -> String.join(" ", new TreeSet<>(RemoteClusterUtils.upstreamClusters(client(words[1]))));
                    case "checkpoints" -> String.join(" ", new TreeSet<>(RemoteClusterUtils.checkpointTopics(client(words[1]))));
                    default -> throw new IllegalArgumentException(line);
                });
        }
    }

    private static String encode(String[] words) {
        return switch (words[1]) {
            case "sync" -> {
                var sync = new OffsetSync(partition(words, 2), Long.parseLong(words[4]), Long.parseLong(words[5]));
                yield hex(sync.recordKey(), sync.recordValue());
            }
            case "checkpoint" -> {
                var point =
                    new Checkpoint(words[2], partition(words, 3), Long.parseLong(words[5]), Long.parseLong(words[6]), words[7]);
                yield hex(point.recordKey(), point.recordValue());
            }
            case "heartbeat" -> {
                var heartbeat = new Heartbeat(words[2], words[3], Long.parseLong(words[4]));
                yield hex(heartbeat.recordKey(), heartbeat.recordValue());
            }
            default -> throw new IllegalArgumentException(words[1]);
        };
    }

    private static String decode(String[] words) {
        var record = record(words[2], words[3]);
        return switch (words[1]) {
            case "sync" -> {
                var sync = OffsetSync.deserializeRecord(record);
                yield place(sync.topicPartition()) + "\t" + sync.upstreamOffset() + "\t" + sync.downstreamOffset();
            }
            case "checkpoint" -> {
                var point = Checkpoint.deserializeRecord(record);
                yield point.consumerGroupId() + "\t" + place(point.topicPartition()) + "\t" + point.upstreamOffset() + "\t"
                    + point.downstreamOffset() + "\t" + point.metadata();
            }
            case "heartbeat" -> {
                var heartbeat = Heartbeat.deserializeRecord(record);
                yield heartbeat.sourceClusterAlias() + "\t" + heartbeat.targetClusterAlias() + "\t" + heartbeat.timestamp();
            }
            default -> throw new IllegalArgumentException(words[1]);
        };
    }

    /** "store TOPIC PARTITION OFFSETS KEY:VALUE ...": the translations of the offsets, after these syncs arrived. */
    private static String store(String[] words) {
        List<ConsumerRecord<byte[], byte[]>> syncs = new ArrayList<>();
        for (int at = 4; at < words.length; at++) {
            String[] parts = words[at].split(":");
            syncs.add(record(parts[0], parts[1]));
        }
        var store = new OffsetSyncStore() {
            @Override
            void backingStoreStart() {}

            @Override
            public void start(boolean readToEnd) {
                super.start(readToEnd);
                syncs.forEach(this::handleRecord);
            }
        };
        store.start(true);
        List<String> found = new ArrayList<>();
        for (String offset : words[3].split(" ")) {
            var translated = store.translateDownstream("group", partition(words, 1), Long.parseLong(offset));
            found.add(translated.isPresent() ? Long.toString(translated.getAsLong()) : "none");
        }
        return String.join(" ", found);
    }

    /** "offsets SERVERS ALIAS GROUP": what a client that moves its group here would seek to. */
    private static String offsets(String[] words) throws Exception {
        var translated = RemoteClusterUtils.translateOffsets(client(words[1]), words[2], words[3], Duration.ofSeconds(60));
        Map<String, Long> sorted = new TreeMap<>();
        translated.forEach((partition, offset) -> sorted.put(partition.toString(), offset.offset()));
        List<String> found = new ArrayList<>();
        sorted.forEach((name, offset) -> found.add(name + "=" + offset));
        return String.join(" ", found);
    }

    private static Map<String, Object> client(String servers) {
        return Map.of("bootstrap.servers", servers);
    }

    private static TopicPartition partition(String[] words, int at) {
        return new TopicPartition(words[at], Integer.parseInt(words[at + 1]));
    }

    private static String place(TopicPartition partition) {
        return partition.topic() + "\t" + partition.partition();
    }

    private static ConsumerRecord<byte[], byte[]> record(String key, String value) {
        return new ConsumerRecord<>("internal", 0, 0, HEX.parseHex(key), HEX.parseHex(value));
    }

    private static String hex(byte[] key, byte[] value) {
        return HEX.formatHex(key) + ":" + HEX.formatHex(value);
    }
}
