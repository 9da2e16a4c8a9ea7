{{/* The files of the ConfigMap: one server.properties for each broker, and client.properties for commands. */}}

{{/* A value of `config` as text. Helm reads numbers as floats. */}}
{{- define "odradek.value" -}}
{{- if kindIs "float64" . -}}
{{- if eq (floor .) . }}{{ int64 . }}{{ else }}{{ toString . }}{{ end -}}
{{- else -}}
{{- toString . | replace "\\" "\\\\" | replace "\n" "\\n" | replace "\r" "\\r" -}}
{{- end -}}
{{- end -}}

{{/* Numbers of replicas that apply if `config` does not set them, as JSON. */}}
{{- define "odradek.defaults" -}}
{{- $replicas := min 3 (int .Values.brokers) -}}
{{- $inSync := ternary 2 1 (ge (int .Values.brokers) 3) -}}
{{- dict "default.replication.factor" $replicas "offsets.topic.replication.factor" $replicas
  "transaction.state.log.replication.factor" $replicas "min.insync.replicas" $inSync "transaction.state.log.min.isr" $inSync | toJson -}}
{{- end -}}

{{/* `${secrets:/run/odradek/secrets/NAME:KEY}`; (list name key) */}}
{{- define "odradek.secretReference" -}}
{{- printf "${secrets:/run/odradek/secrets/%s:%s}" (index . 0) (index . 1) -}}
{{- end -}}

{{- define "odradek.providers" -}}
config.providers=secrets,env
config.providers.secrets.class=org.apache.kafka.common.config.provider.DirectoryConfigProvider
config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
config.providers.env.param.allowlist.pattern=ODRADEK_.*
{{- end -}}

{{- define "odradek.keystores" -}}
{{- with include "odradek.keystoreKey" . }}
ssl.keystore.location=/run/odradek/tls/{{ . }}
{{- else }}
ssl.keystore.type=PEM
ssl.keystore.key=${secrets:/run/odradek/tls:tls.key}
ssl.keystore.certificate.chain=${secrets:/run/odradek/tls:tls.crt}
{{- end }}
ssl.truststore.type=PEM
ssl.truststore.location=/run/odradek/tls/{{ .Values.tls.caKey }}
{{- end -}}

{{/* The login of brokerUser. */}}
{{- define "odradek.login" -}}
{{- $secret := include "odradek.userSecret" (list . .Values.brokerUser) | fromJson -}}
org.apache.kafka.common.security.scram.ScramLoginModule required username="{{ .Values.brokerUser }}" password="{{ include "odradek.secretReference" (list $secret.name $secret.key) }}";
{{- end -}}

{{/* (list root id): server.properties of broker `id`. */}}
{{- define "odradek.properties" -}}
{{- $root := index . 0 -}}{{- $id := index . 1 -}}
{{- with $root -}}
{{- $listeners := include "odradek.listeners" . | fromJsonArray -}}
{{- $fullname := include "odradek.fullname" . -}}
{{- $open := list -}}{{- $advertised := list -}}{{- $protocols := list -}}
{{- $inside := printf "%s-%v.%s.%s.svc.%s" $fullname $id (include "odradek.headless" .) .Release.Namespace .Values.clusterDomain -}}
{{- range $listeners -}}
{{- $open = append $open (printf "%s://:%v" .name .port) -}}
{{- $protocols = append $protocols (printf "%s:%s" .name .protocol) -}}
{{- if eq .name "EXTERNAL" -}}
{{- $port := .port -}}
{{- if eq $root.Values.external.type "NodePort" -}}
{{- $port = add (int $root.Values.external.firstNodePort) (sub (int $id) (int $root.Values.nodeIdBase)) -}}
{{- end -}}
{{- $advertised = append $advertised (printf "EXTERNAL://%s:%v" (include "odradek.externalHost" (list $root $id)) $port) -}}
{{- else -}}
{{- $advertised = append $advertised (printf "%s://%s:%v" .name $inside .port) -}}
{{- end -}}
{{- end -}}
# Made by the chart. Change the values of the release instead.
{{ include "odradek.providers" . }}
node.id={{ $id }}
{{- with include "odradek.zookeeper" . }}
zookeeper.connect={{ . }}
{{- end }}
log.dirs=/var/lib/odradek/data
listeners={{ join "," $open }}
advertised.listeners={{ join "," $advertised }}
listener.security.protocol.map={{ join "," $protocols }}
inter.broker.listener.name=BROKERS
metrics.listener=:{{ .Values.metrics.port }}
{{- with .Values.metrics.passwordSecret }}
{{- if .name }}
metrics.listener.password.file=/run/odradek/metrics/{{ .fileKey }}
{{- end }}
{{- end }}
num.network.threads={{ .Values.workers }}
{{- if ne .Values.rack.from "none" }}
broker.rack={{ if eq .Values.rack.from "node" }}${secrets:/run/odradek/rack:zone}{{ else }}${env:ODRADEK_RACK}{{ end }}
{{- end }}
{{- if include "odradek.usesTls" . }}
{{- include "odradek.keystores" . }}
{{- range $listeners }}
{{- if eq .protocol "SSL" }}
listener.name.{{ lower .name }}.ssl.client.auth={{ ternary "required" $root.Values.tls.clientAuth (eq .name "BROKERS") }}
{{- end }}
{{- end }}
{{- end }}
{{- if include "odradek.usesSasl" . }}
sasl.enabled.mechanisms=SCRAM-SHA-512
sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512
{{- if hasPrefix "SASL" .Values.listeners.brokers.protocol }}
listener.name.brokers.scram-sha-512.sasl.jaas.config={{ include "odradek.login" . }}
{{- end }}
{{- end }}
{{- if .Values.authorizer.enabled }}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
{{- $superUsers := .Values.authorizer.superUsers }}
{{- with .Values.brokerUser }}{{ $superUsers = prepend $superUsers (printf "User:%s" .) }}{{ end }}
super.users={{ include "odradek.value" (join ";" $superUsers) }}
{{- end }}
{{- $settings := merge (deepCopy .Values.config) (include "odradek.defaults" . | fromJson) }}
{{- range $key := keys $settings | sortAlpha }}
{{ $key }}={{ include "odradek.value" (get $settings $key) }}
{{- end }}
{{- range .Values.configFromSecrets }}
{{ .key }}={{ include "odradek.secretReference" (list .secret .secretKey) }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* For `odradek ... --command-config` in the pods. */}}
{{- define "odradek.clientProperties" -}}
{{- $protocol := .Values.listeners.clients.protocol -}}
# Made by the chart, for commands in the pods.
{{ include "odradek.providers" . }}
security.protocol={{ $protocol }}
{{- if hasSuffix "SSL" $protocol }}
{{- if and (eq $protocol "SSL") (ne .Values.tls.clientAuth "none") }}
{{- include "odradek.keystores" . }}
{{- else }}
ssl.truststore.type=PEM
ssl.truststore.location=/run/odradek/tls/{{ .Values.tls.caKey }}
{{- end }}
{{- end }}
{{- if hasPrefix "SASL" $protocol }}
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config={{ include "odradek.login" . }}
{{- end }}
{{- end -}}

{{/* The user of the load, and the file for its command: client.properties with this user's login. */}}
{{- define "odradek.loadUser" -}}{{ .Values.load.user | default .Values.brokerUser }}{{- end -}}
{{- define "odradek.loadProperties" -}}
{{- include "odradek.clientProperties" (dict "Values" (merge (dict "brokerUser" (include "odradek.loadUser" .)) .Values)) -}}
{{- end -}}

{{/* What all pods share: a change restarts the brokers. More brokers alone change nothing here, unless external.hosts names them. */}}
{{- define "odradek.checksum" -}}
{{- printf "%s\n%s\n%v" (include "odradek.properties" (list . (int .Values.nodeIdBase))) (include "odradek.clientProperties" .)
  (ternary .Values.external.hosts list .Values.external.enabled) | sha256sum -}}
{{- end -}}

{{/* For the Job that writes the users: only what concerns ZooKeeper, so that it needs no other Secrets. */}}
{{- define "odradek.zookeeperProperties" -}}
{{ include "odradek.providers" . }}
zookeeper.connect={{ include "odradek.zookeeper" . }}
{{- range $key := keys .Values.config | sortAlpha }}
{{- if regexMatch "^(odradek\\.)?zookeeper\\." $key }}
{{ $key }}={{ include "odradek.value" (get $.Values.config $key) }}
{{- end }}
{{- end }}
{{- range .Values.configFromSecrets }}
{{- if regexMatch "^(odradek\\.)?zookeeper\\." .key }}
{{ .key }}={{ include "odradek.secretReference" (list .secret .secretKey) }}
{{- end }}
{{- end }}
{{- end -}}
