import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;

/** Prints every public configuration key of the Kafka on the class path: scope, name, type, default, importance. */
public class KafkaKeys {
    public static void main(String[] arguments) throws Exception {
        Object keys;
        try {
            keys = Class.forName("org.apache.kafka.server.config.AbstractKafkaConfig").getField("CONFIG_DEF").get(null);
        } catch (NoSuchFieldException none) {
            keys = Class.forName("kafka.server.KafkaConfig").getMethod("configDef").invoke(null);
        }
        print("broker", (ConfigDef) keys);
        print("topic", (ConfigDef) Class.forName("org.apache.kafka.storage.internals.log.LogConfig")
            .getMethod("configDefCopy").invoke(null));
    }

    private static void print(String scope, ConfigDef keys) {
        for (Map.Entry<String, ConfigDef.ConfigKey> entry : keys.configKeys().entrySet()) {
            ConfigDef.ConfigKey key = entry.getValue();
            if (key.internalConfig) continue;
            String value = !key.hasDefault() || key.defaultValue == null ? "\u0000"
                : ConfigDef.convertToString(key.defaultValue, key.type);
            System.out.println(String.join("\t", scope, key.name, key.type.name(), value, key.importance.name()));
        }
    }
}
