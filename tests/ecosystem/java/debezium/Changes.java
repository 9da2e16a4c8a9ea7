import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileReader;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringSerializer;

/** Writes the changes of a database to topics, as the properties of a file say: FILE. An error ends it with exit code 1. */
public class Changes {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (FileReader file = new FileReader(arguments[0])) {
            properties.load(file);
        }
        Properties settings = new Properties();
        settings.put("bootstrap.servers", properties.getProperty("bootstrap.servers"));
        KafkaProducer<String, String> producer =
            new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
            .using(properties)
            .notifying((events, committer) -> {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (ChangeEvent<String, String> event : events) {
                    sent.add(producer.send(new ProducerRecord<>(event.destination(), event.key(), event.value())));
                }
                try {
                    for (Future<RecordMetadata> future : sent) {
                        future.get();
                    }
                } catch (ExecutionException error) {
                    throw new IllegalStateException("a change was not written", error);
                }
                // only what is written is processed: offsets never pass records that the broker does not have
                for (ChangeEvent<String, String> event : events) {
                    committer.markProcessed(event);
                }
                committer.markBatchFinished();
            })
            .using((success, message, error) -> {
                if (!success) {
                    System.err.println("the engine ended: " + message);
                    if (error != null) {
                        error.printStackTrace();
                    }
                    Runtime.getRuntime().halt(1);
                }
            })
            .build();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                engine.close();
            } catch (Exception error) {
                error.printStackTrace();
            }
        }));
        engine.run();
    }
}
