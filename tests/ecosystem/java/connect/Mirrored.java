import java.time.Duration;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.connect.mirror.MirrorClient;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/** Prints, as key=value lines, what MirrorMaker's own client finds in a cluster: SERVERS SOURCE-ALIAS GROUP. */
public class Mirrored {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> properties = Map.of("bootstrap.servers", arguments[0]);
        String source = arguments[1];
        try (MirrorClient client = new MirrorClient(properties)) {
            System.out.println("upstream=" + new TreeSet<>(client.upstreamClusters()));
            System.out.println("hops=" + client.replicationHops(source));
            System.out.println("heartbeats=" + new TreeSet<>(client.heartbeatTopics()));
            System.out.println("checkpoints=" + new TreeSet<>(client.checkpointTopics()));
            System.out.println("remote=" + new TreeSet<>(client.remoteTopics(source)));
        }
        TreeMap<String, Long> offsets = new TreeMap<>();
        RemoteClusterUtils.translateOffsets(properties, source, arguments[2], Duration.ofSeconds(30))
            .forEach((partition, offset) -> offsets.put(partition.toString(), offset.offset()));
        System.out.println("offsets=" + offsets);
    }
}
