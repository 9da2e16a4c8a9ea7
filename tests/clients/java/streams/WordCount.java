import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts the words of the topic {@code lines} at exactly_once_v2, and writes each new count to {@code counts}: {@code WordCount SERVERS
 * STATE_DIRECTORY}. Prints {@code RUNNING} when it has its partitions. Ends when it is killed, in order at SIGTERM, or with 1 after an
 * error that Kafka Streams does not recover from.
 */
public final class WordCount {
    public static void main(String[] args) {
        Properties settings = new Properties();
        settings.putAll(Map.of(
            "application.id", "word-count", "bootstrap.servers", args[0], "state.dir", args[1],
            "processing.guarantee", "exactly_once_v2", "replication.factor", "1", "num.stream.threads", "2",
            "default.key.serde", Serdes.StringSerde.class, "default.value.serde", Serdes.StringSerde.class));
        settings.putAll(Map.of(
            "commit.interval.ms", "100", "session.timeout.ms", "6000", "heartbeat.interval.ms", "500",
            // No transaction of a slow machine is to time out. An instance that was killed has the same ids in the same directory: as soon as
            // it runs again, it aborts what it left open.
            "transaction.timeout.ms", "60000", "auto.offset.reset", "earliest", "statestore.cache.max.bytes", "0"));
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("lines")
            .flatMapValues(line -> List.of(line.split(" ")))
            .groupBy((key, word) -> word)
            .count()
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to("counts", Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.setStateListener((now, before) -> {
            System.out.println(now);
            if (now == KafkaStreams.State.ERROR) {
                Runtime.getRuntime().halt(1);
            }
        });
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
