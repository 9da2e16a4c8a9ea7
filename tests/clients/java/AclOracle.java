import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * Kafka's own authorizer. Each line of the input is a JSON document with "super", "default", "acls" and "questions" (of which a null
 * name asks for the type of resources); its answer is a line with 1 (allowed) or 0 (denied) for each question.
 */
public final class AclOracle {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(answers(json.readTree(line)));
            System.out.flush();
        }
    }

    private static String answers(JsonNode document) throws Exception {
        Map<String, String> config = new HashMap<>();
        config.put("super.users", document.get("super").asText());
        config.put("allow.everyone.if.no.acl.found", document.get("default").asText());
        config.put("node.id", "1");
        StringBuilder answers = new StringBuilder();
        try (StandardAuthorizer authorizer = new StandardAuthorizer()) {
            authorizer.configure(config);
            authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
            Map<Uuid, StandardAcl> acls = new HashMap<>();
            for (JsonNode acl : document.get("acls")) {
                acls.put(Uuid.randomUuid(), new StandardAcl(
                    ResourceType.fromCode((byte) acl.get(0).asInt()), acl.get(2).asText(),
                    PatternType.fromCode((byte) acl.get(1).asInt()), acl.get(3).asText(), acl.get(4).asText(),
                    AclOperation.fromCode((byte) acl.get(5).asInt()), AclPermissionType.fromCode((byte) acl.get(6).asInt())));
            }
            authorizer.loadSnapshot(acls);
            authorizer.completeInitialLoad();
            for (JsonNode question : document.get("questions")) {
                AuthorizableRequestContext client = client(question.get(0).asText(), question.get(1).asText());
                AclOperation operation = AclOperation.fromCode((byte) question.get(2).asInt());
                ResourceType type = ResourceType.fromCode((byte) question.get(3).asInt());
                AuthorizationResult result;
                if (question.get(4).isNull()) {
                    result = authorizer.authorizeByResourceType(client, operation, type);
                } else {
                    ResourcePattern resource = new ResourcePattern(type, question.get(4).asText(), PatternType.LITERAL);
                    result = authorizer.authorize(client, List.of(new Action(operation, resource, 1, false, false))).get(0);
                }
                answers.append(result == AuthorizationResult.ALLOWED ? '1' : '0');
            }
        }
        return answers.toString();
    }

    private static AuthorizableRequestContext client(String principal, String host) throws Exception {
        KafkaPrincipal parsed = SecurityUtils.parseKafkaPrincipal(principal);
        InetAddress address = InetAddress.getByName(host);
        return new AuthorizableRequestContext() {
            @Override public String listenerName() { return "PLAINTEXT"; }
            @Override public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
            @Override public KafkaPrincipal principal() { return parsed; }
            @Override public InetAddress clientAddress() { return address; }
            @Override public int requestType() { return 0; }
            @Override public int requestVersion() { return 0; }
            @Override public String clientId() { return "oracle"; }
            @Override public int correlationId() { return 1; }
        };
    }
}
