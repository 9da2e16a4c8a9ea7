{{/*
Checks that a schema cannot express. Each failure is one sentence that names the value. `lookup` returns nothing for `helm template` and
for a dry run without the Kubernetes cluster: what depends on it is not checked then.
*/}}

{{- define "odradek.fail" -}}
{{- fail (printf "odradek: %s" .) -}}
{{- end -}}

{{- define "odradek.validate" -}}
{{- include "odradek.validateImage" . -}}
{{- include "odradek.validateCluster" . -}}
{{- include "odradek.validateConfig" . -}}
{{- include "odradek.validateListeners" . -}}
{{- include "odradek.validateExternal" . -}}
{{- include "odradek.validateSecurity" . -}}
{{- include "odradek.validateSecrets" . -}}
{{- include "odradek.validateMonitoring" . -}}
{{- include "odradek.validateUpgrade" . -}}
{{- end -}}

{{- define "odradek.validateImage" -}}
{{- if not .Values.image.repository -}}
{{- include "odradek.fail" "image.repository is empty: set it to the registry and name of the image that was built from deploy/image/Containerfile" -}}
{{- end -}}
{{- end -}}

{{- define "odradek.validateCluster" -}}
{{- $zookeeper := .Values.zookeeper -}}
{{- if and $zookeeper.enabled $zookeeper.connect -}}
{{- include "odradek.fail" (printf "zookeeper.connect is %s, but zookeeper.enabled=true installs another ZooKeeper: set zookeeper.enabled=false or remove zookeeper.connect" $zookeeper.connect) -}}
{{- end -}}
{{- if contains "/" $zookeeper.connect -}}
{{- include "odradek.fail" (printf "zookeeper.connect is %s: it must be host:port,... without a path; set zookeeper.chroot to the path" $zookeeper.connect) -}}
{{- end -}}
{{- if and (eq (include "odradek.metadataStore" .) "embedded") (gt (int .Values.brokers) 1) -}}
{{- include "odradek.fail" (printf "brokers is %d, but there is no ZooKeeper, which more than one broker needs: set zookeeper.enabled=true or zookeeper.connect, or brokers=1" (int .Values.brokers)) -}}
{{- end -}}
{{- if and $zookeeper.enabled (eq (mod (int $zookeeper.replicas) 2) 0) -}}
{{- include "odradek.fail" (printf "zookeeper.replicas is %d: it must be odd, because an even number of servers survives no more failures than one server less" (int $zookeeper.replicas)) -}}
{{- end -}}
{{- end -}}

{{/* Keys that the chart sets itself, with the values to use instead. */}}
{{- define "odradek.ownKeys" -}}
node.id: nodeIdBase
broker.id: nodeIdBase
broker.rack: rack
zookeeper.connect: zookeeper.connect and zookeeper.chroot
metadata.store: zookeeper
log.dir: storage
log.dirs: storage
listeners: listeners and external
advertised.listeners: listeners and external
listener.security.protocol.map: listeners and external
inter.broker.listener.name: listeners.brokers
security.inter.broker.protocol: listeners.brokers
metrics.listener: metrics.port
num.network.threads: workers
sasl.enabled.mechanisms: listeners
sasl.mechanism.inter.broker.protocol: listeners
authorizer.class.name: authorizer
super.users: authorizer.superUsers
ssl.keystore.location: tls
ssl.keystore.key: tls
ssl.keystore.certificate.chain: tls
ssl.keystore.type: tls
ssl.truststore.location: tls
ssl.truststore.type: tls
config.providers: configFromSecrets
metrics.listener.password.file: metrics.passwordSecret
{{- end -}}

{{/* The ordered stop of a broker, in milliseconds: attempts to move its leaderships, then the end of its processes. */}}
{{- define "odradek.stopMilliseconds" -}}
{{- $attempts := get .Values.config "controlled.shutdown.max.retries" | default 3 | int64 -}}
{{- $pause := get .Values.config "controlled.shutdown.retry.backoff.ms" | default 5000 | int64 -}}
{{- add (mul $attempts $pause) (get .Values.config "odradek.stop.timeout.ms" | default 30000 | int64) -}}
{{- end -}}

{{- define "odradek.validateConfig" -}}
{{- $stop := include "odradek.stopMilliseconds" . | int64 -}}
{{- if gt $stop (mul 1000 (int64 .Values.shutdown.stopSeconds)) -}}
{{- include "odradek.fail" (printf "shutdown.stopSeconds is %d, but odradek.stop.timeout.ms and the pauses of controlled.shutdown allow a stop %d s: Kubernetes would kill the broker before; set shutdown.stopSeconds to %d or more" (int .Values.shutdown.stopSeconds) (div $stop 1000) (add 1 (div $stop 1000))) -}}
{{- end -}}
{{- $known := .Files.Lines "files/broker-keys.txt" -}}
{{- $own := include "odradek.ownKeys" . | fromYaml -}}
{{- $names := keys .Values.config -}}
{{- range .Values.configFromSecrets -}}
{{- if has .key $names -}}
{{- include "odradek.fail" (printf "configFromSecrets and config both set %s: remove one of them" .key) -}}
{{- end -}}
{{- $names = append $names .key -}}
{{- end -}}
{{- range $name := $names | sortAlpha -}}
{{- if hasKey $own $name -}}
{{- include "odradek.fail" (printf "config sets %s, which the chart sets itself: use the value %s instead" $name (get $own $name)) -}}
{{- end -}}
{{- if hasPrefix "config.providers." $name -}}
{{- include "odradek.fail" (printf "config sets %s: the chart has a provider for Secrets; use the value configFromSecrets instead" $name) -}}
{{- end -}}
{{- $plain := $name -}}
{{- if hasPrefix "listener.name." $name -}}
{{- $rest := trimPrefix "listener.name." $name -}}
{{- $listener := regexFind "^[^.]+" $rest -}}
{{- if not (has $listener (list "brokers" "clients" "external" "metrics")) -}}
{{- include "odradek.fail" (printf "config sets %s, but there is no listener %s: the names are brokers, clients, external and metrics" $name $listener) -}}
{{- end -}}
{{- $plain = trimPrefix (printf "%s." $listener) $rest -}}
{{- $plain = regexReplaceAll "^(scram-sha-256|scram-sha-512|plain|oauthbearer)\\." $plain "" -}}
{{- end -}}
{{- if not (has $plain $known) -}}
{{- include "odradek.fail" (printf "config sets %s, which is not a key of a broker: docs/reference/configuration.md lists all keys" $name) -}}
{{- end -}}
{{- end -}}
{{- if and (include "odradek.metricsTls" .) (not (include "odradek.usesTls" .)) -}}
{{- include "odradek.fail" "config.metrics.listener.tls is true, but no listener has TLS, so there is no certificate: give listeners.clients.protocol or listeners.brokers.protocol TLS" -}}
{{- end -}}
{{- if eq (get .Values.config "listener.name.metrics.ssl.client.auth" | toString) "required" -}}
{{- include "odradek.fail" "config.listener.name.metrics.ssl.client.auth is required, but the probes of Kubernetes have no certificate: use requested" -}}
{{- end -}}
{{- range $name, $value := .Values.config -}}
{{- if kindIs "float64" $value -}}
{{- if or (ge $value 1e15) (le $value -1e15) -}}
{{- include "odradek.fail" (printf "config.%s has more than 15 digits, which Helm rounds: write the number in quotes" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $brokers := int .Values.brokers -}}
{{- $settings := merge (deepCopy .Values.config) (include "odradek.defaults" . | fromJson) -}}
{{- range $name := list "default.replication.factor" "offsets.topic.replication.factor" "transaction.state.log.replication.factor" -}}
{{- if gt (include "odradek.value" (get $settings $name) | int) $brokers -}}
{{- include "odradek.fail" (printf "config.%s is %s, more than brokers, which is %d: a partition cannot have more replicas than there are brokers" $name (include "odradek.value" (get $settings $name)) $brokers) -}}
{{- end -}}
{{- end -}}
{{- range $pair := list (list "min.insync.replicas" "default.replication.factor") (list "transaction.state.log.min.isr" "transaction.state.log.replication.factor") -}}
{{- $least := include "odradek.value" (get $settings (index $pair 0)) -}}{{- $replicas := include "odradek.value" (get $settings (index $pair 1)) -}}
{{- if gt (int $least) (int $replicas) -}}
{{- include "odradek.fail" (printf "config.%s is %s, more than %s, which is %s: no record would be accepted" (index $pair 0) $least (index $pair 1) $replicas) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "odradek.validateListeners" -}}
{{- $seen := dict (toString .Values.metrics.port) "metrics.port" -}}
{{- range include "odradek.listeners" . | fromJsonArray -}}
{{- $port := int .port | toString -}}
{{- if hasKey $seen $port -}}
{{- include "odradek.fail" (printf "%s and %s are both %s: each listener needs a port of its own" (get $seen $port) .value $port) -}}
{{- end -}}
{{- $_ := set $seen $port .value -}}
{{- end -}}
{{- end -}}

{{- define "odradek.validateExternal" -}}
{{- $external := .Values.external -}}
{{- if $external.enabled -}}
{{- $ways := list -}}
{{- if $external.hosts }}{{ $ways = append $ways "external.hosts" }}{{ end -}}
{{- if $external.hostTemplate }}{{ $ways = append $ways "external.hostTemplate" }}{{ end -}}
{{- if $external.useNodeAddress }}{{ $ways = append $ways "external.useNodeAddress" }}{{ end -}}
{{- if not $ways -}}
{{- include "odradek.fail" "external.enabled is true, but there are no addresses to advertise: set external.hosts, external.hostTemplate or, for NodePort, external.useNodeAddress" -}}
{{- end -}}
{{- if gt (len $ways) 1 -}}
{{- include "odradek.fail" (printf "%s are set together: keep one of them" (join " and " $ways)) -}}
{{- end -}}
{{- if and $external.hosts (ne (len $external.hosts) (int .Values.brokers)) -}}
{{- include "odradek.fail" (printf "external.hosts has %d addresses, but brokers is %d: each broker needs one" (len $external.hosts) (int .Values.brokers)) -}}
{{- end -}}
{{- if ne (len $external.hosts) (len (uniq $external.hosts)) -}}
{{- if eq $external.type "LoadBalancer" -}}
{{- include "odradek.fail" (printf "external.hosts has an address twice (%s): with external.type=LoadBalancer each broker needs its own" (join ", " $external.hosts)) -}}
{{- end -}}
{{- end -}}
{{- if and $external.hostTemplate (not (contains "{id}" $external.hostTemplate)) -}}
{{- include "odradek.fail" (printf "external.hostTemplate is %s: it must contain {id}, which the chart replaces by the id of each broker" $external.hostTemplate) -}}
{{- end -}}
{{- if and $external.useNodeAddress (ne $external.type "NodePort") -}}
{{- include "odradek.fail" (printf "external.useNodeAddress needs external.type=NodePort, but external.type is %s" $external.type) -}}
{{- end -}}
{{- if eq $external.type "NodePort" -}}
{{- $first := int $external.firstNodePort -}}{{- $last := sub (add $first (int .Values.brokers)) 1 | int -}}
{{- if gt $last 32767 -}}
{{- include "odradek.fail" (printf "external.firstNodePort is %d, so the last broker would have the port %d, above 32767, the highest of Kubernetes" $first $last) -}}
{{- end -}}
{{- $bootstrap := int $external.bootstrapNodePort -}}
{{- if and (ge $bootstrap $first) (le $bootstrap $last) -}}
{{- include "odradek.fail" (printf "external.bootstrapNodePort is %d, which a broker has: external.firstNodePort and brokers use the ports %d to %d" $bootstrap $first $last) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "odradek.validateSecurity" -}}
{{- $tls := .Values.tls -}}
{{- if include "odradek.usesTls" . -}}
{{- if and (not $tls.secret) (not $tls.certManager.enabled) -}}
{{- range include "odradek.listeners" . | fromJsonArray -}}
{{- if hasSuffix "SSL" .protocol -}}
{{- include "odradek.fail" (printf "%s is %s, which needs a certificate: set tls.secret or tls.certManager.enabled" (.value | replace ".port" ".protocol") .protocol) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $tls.secret $tls.certManager.enabled -}}
{{- include "odradek.fail" (printf "tls.secret is %s, but tls.certManager.enabled=true makes another Secret: keep one of them" $tls.secret) -}}
{{- end -}}
{{- if and $tls.certManager.enabled (not $tls.certManager.issuerRef.name) -}}
{{- include "odradek.fail" "tls.certManager.issuerRef.name is empty: set it to the name of the issuer" -}}
{{- end -}}
{{- if and (eq .Values.listeners.clients.protocol "SSL") (ne $tls.clientAuth "none") $tls.keystoreKey (not (hasSuffix ".pem" $tls.keystoreKey)) -}}
{{- include "odradek.fail" (printf "tls.keystoreKey is %s, but with tls.clientAuth=%s the chart's own commands present this certificate, and need a file in PEM format, whose name ends in .pem" $tls.keystoreKey $tls.clientAuth) -}}
{{- end -}}
{{- $users := list -}}
{{- range .Values.users -}}
{{- if has .name $users -}}
{{- include "odradek.fail" (printf "users has %s twice" .name) -}}
{{- end -}}
{{- $users = append $users .name -}}
{{- end -}}
{{- $needsUser := or (hasPrefix "SASL" .Values.listeners.brokers.protocol) (hasPrefix "SASL" .Values.listeners.clients.protocol) -}}
{{- if and $needsUser (not .Values.brokerUser) -}}
{{- include "odradek.fail" "brokerUser is empty, but the listener brokers or clients requires logins: set it to one of users" -}}
{{- end -}}
{{- if and .Values.brokerUser (not (has .Values.brokerUser $users)) -}}
{{- include "odradek.fail" (printf "brokerUser is %s, who is not among users: add the user with a passwordSecret" .Values.brokerUser) -}}
{{- end -}}
{{- if and .Values.authorizer.enabled (not .Values.brokerUser) (not .Values.authorizer.superUsers) -}}
{{- include "odradek.fail" "authorizer.enabled is true, but nobody has rights: set brokerUser or authorizer.superUsers; the principal of the brokers must be among them" -}}
{{- end -}}
{{- end -}}

{{/* "true" if objects of the namespace can be looked up. Every namespace has this ConfigMap. */}}
{{- define "odradek.reachable" -}}
{{- if lookup "v1" "ConfigMap" .Release.Namespace "kube-root-ca.crt" }}true{{ end -}}
{{- end -}}

{{/* (list root value secret keys...) */}}
{{- define "odradek.requireSecret" -}}
{{- $root := index . 0 -}}{{- $value := index . 1 -}}{{- $name := index . 2 -}}
{{- $secret := lookup "v1" "Secret" $root.Release.Namespace $name -}}
{{- if not $secret -}}
{{- include "odradek.fail" (printf "%s names the Secret %s, which does not exist in the namespace %s: create it first (checkSecrets=false turns this check off)" $value $name $root.Release.Namespace) -}}
{{- end -}}
{{- range $key := slice . 3 -}}
{{- if not (hasKey (default dict $secret.data) $key) -}}
{{- include "odradek.fail" (printf "%s names the key %s of the Secret %s, which has only the keys %s" $value $key $name (keys (default dict $secret.data) | sortAlpha | join ", ")) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "odradek.validateSecrets" -}}
{{- if and .Values.checkSecrets (include "odradek.reachable" .) -}}
{{- $root := . -}}
{{- range .Values.users -}}
{{- include "odradek.requireSecret" (list $root (printf "the passwordSecret of the user %s" .name) .passwordSecret.name .passwordSecret.key) -}}
{{- $secret := lookup "v1" "Secret" $root.Release.Namespace .passwordSecret.name -}}
{{- if regexMatch "[\"\\\\\\x00-\\x1f]" (get $secret.data .passwordSecret.key | b64dec) -}}
{{- include "odradek.fail" (printf "the password of the user %s, key %s of the Secret %s, contains a quotation mark, a backslash or a control character such as a line break: choose another password (openssl rand -hex 24; kubectl create secret --from-literal)" .name .passwordSecret.key .passwordSecret.name) -}}
{{- end -}}
{{- end -}}
{{- range .Values.configFromSecrets -}}
{{- include "odradek.requireSecret" (list $root (printf "configFromSecrets (%s)" .key) .secret .secretKey) -}}
{{- end -}}
{{- with .Values.metrics.passwordSecret -}}
{{- if .name -}}
{{- $keys := ternary (list .fileKey .usernameKey .passwordKey) (list .fileKey) $root.Values.metrics.serviceMonitor.enabled -}}
{{- include "odradek.requireSecret" (concat (list $root "metrics.passwordSecret" .name) $keys) -}}
{{- end -}}
{{- end -}}
{{- with .Values.load.registrySecret -}}
{{- if and .name $root.Values.load.enabled -}}
{{- include "odradek.requireSecret" (list $root "load.registrySecret" .name .key) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.tls.secret (include "odradek.usesTls" .) -}}
{{- if .Values.tls.keystoreKey -}}
{{- include "odradek.requireSecret" (list $root "tls.secret" .Values.tls.secret .Values.tls.keystoreKey .Values.tls.caKey) -}}
{{- else -}}
{{- include "odradek.requireSecret" (list $root "tls.secret" .Values.tls.secret "tls.crt" "tls.key" .Values.tls.caKey) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "odradek.validateMonitoring" -}}
{{- if and .Values.metrics.job (not (hasPrefix "odradek" .Values.metrics.job)) -}}
{{- include "odradek.fail" (printf "metrics.job is %s: it must begin with odradek, because the rules and dashboards select these jobs" .Values.metrics.job) -}}
{{- end -}}
{{- if .Values.report.enabled -}}
{{- if not .Values.report.prometheus -}}
{{- include "odradek.fail" "report.prometheus is empty: set it to the URL of a Prometheus that scrapes the brokers" -}}
{{- end -}}
{{- if not .Values.report.image.repository -}}
{{- include "odradek.fail" "report.image.repository is empty: set it to the image that was built from deploy/image/Containerfile.report" -}}
{{- end -}}
{{- end -}}
{{- include "odradek.validateLoad" . -}}
{{- end -}}

{{- define "odradek.validateLoad" -}}
{{- if .Values.load.enabled -}}
{{- if and (not .Values.load.topics) (not .Values.load.topicsMatching) -}}
{{- include "odradek.fail" "load.topics and load.topicsMatching are empty: name the topics to load" -}}
{{- end -}}
{{- if not .Values.load.image.repository -}}
{{- include "odradek.fail" "load.image.repository is empty: set it to the image that was built from deploy/image/Containerfile.report" -}}
{{- end -}}
{{- if and .Values.load.registrySecret.name (not .Values.load.registry) -}}
{{- include "odradek.fail" (printf "load.registrySecret.name is %s, but load.registry is empty: set it to the URL of the schema registry" .Values.load.registrySecret.name) -}}
{{- end -}}
{{- $user := .Values.load.user -}}
{{- if $user -}}
{{- if not (hasPrefix "SASL" .Values.listeners.clients.protocol) -}}
{{- include "odradek.fail" (printf "load.user is %s, but listeners.clients.protocol is %s, which has no logins: remove load.user" $user .Values.listeners.clients.protocol) -}}
{{- end -}}
{{- if not (include "odradek.userSecret" (list . $user)) -}}
{{- include "odradek.fail" (printf "load.user is %s, who is not among users: add the user with a passwordSecret" $user) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What may not change in an installed release. */}}
{{- define "odradek.validateUpgrade" -}}
{{- include "odradek.validateNames" . -}}
{{- include "odradek.validateEnsemble" . -}}
{{- $fullname := include "odradek.fullname" . -}}
{{- $size := include "odradek.bytes" .Values.storage.size | int64 -}}
{{- $set := lookup "apps/v1" "StatefulSet" .Release.Namespace $fullname -}}
{{- if $set -}}
{{- $marks := default dict $set.metadata.annotations -}}
{{- $base := get $marks "odradek/node-id-base" -}}
{{- if and $base (ne $base (toString .Values.nodeIdBase)) -}}
{{- include "odradek.fail" (printf "nodeIdBase is %v, but the brokers were installed with %s, and their logs and replicas belong to their ids: set nodeIdBase=%s" .Values.nodeIdBase $base $base) -}}
{{- end -}}
{{- $store := get $marks "odradek/metadata-store" -}}
{{- if and $store (ne $store (include "odradek.metadataStore" .)) -}}
{{- include "odradek.fail" (printf "zookeeper would change the metadata store from %s to %s, and the topics would be missing: install another release and copy the topics" $store (include "odradek.metadataStore" .)) -}}
{{- end -}}
{{- $chroot := get $marks "odradek/zookeeper-chroot" -}}
{{- if and $chroot (ne $chroot .Values.zookeeper.chroot) (eq $store "zookeeper") -}}
{{- include "odradek.fail" (printf "zookeeper.chroot is %s, but the cluster's nodes are below %s: set zookeeper.chroot=%s" .Values.zookeeper.chroot $chroot $chroot) -}}
{{- end -}}
{{- $present := int $set.spec.replicas -}}
{{- if and (lt (int .Values.brokers) $present) (not .Values.allowFewerBrokers) -}}
{{- include "odradek.fail" (printf "brokers is %d, but the release has %d: move the partitions off the last brokers (odradek partition move --off ID), then set allowFewerBrokers=true" (int .Values.brokers) $present) -}}
{{- end -}}
{{- range $set.spec.volumeClaimTemplates -}}
{{- if eq .metadata.name "data" -}}
{{- $former := .spec.resources.requests.storage -}}
{{- $formerSize := include "odradek.bytes" $former | int64 -}}
{{- if lt $size $formerSize -}}
{{- include "odradek.fail" (printf "storage.size is %s, but the volumes of the brokers have %s, and a volume cannot shrink: set storage.size=%s" $.Values.storage.size $former $former) -}}
{{- end -}}
{{- if gt $size $formerSize -}}
{{- include "odradek.fail" (printf "storage.size is %s, but the StatefulSet %s has %s, which Kubernetes does not let change: enlarge the volumes as docs/operate/helm.md#enlarge-the-volumes describes, then upgrade" $.Values.storage.size $fullname $former) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $i := until (int .Values.brokers) -}}
{{- $name := printf "data-%s-%d" $fullname (add (int $.Values.nodeIdBase) $i) -}}
{{- with lookup "v1" "PersistentVolumeClaim" $.Release.Namespace $name -}}
{{- if lt $size (include "odradek.bytes" .spec.resources.requests.storage | int64) -}}
{{- include "odradek.fail" (printf "storage.size is %s, but the volume claim %s has %s, and a volume cannot shrink: set storage.size=%s" $.Values.storage.size $name .spec.resources.requests.storage .spec.resources.requests.storage) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
Another name would make another StatefulSet with empty volumes: brokers with the ids of the former ones, and in-sync replicas without records.
*/}}
{{- define "odradek.validateNames" -}}
{{- $fullname := include "odradek.fullname" . -}}
{{- range (lookup "apps/v1" "StatefulSet" .Release.Namespace "").items -}}
{{- $labels := default dict .metadata.labels -}}
{{- if and (eq (get $labels "app.kubernetes.io/instance") $.Release.Name) (eq (get $labels "app.kubernetes.io/component") "broker") (hasKey (default dict .metadata.annotations) "odradek/node-id-base") (ne .metadata.name $fullname) -}}
{{- include "odradek.fail" (printf "nameOverride and fullnameOverride give the name %s, but the release has the brokers %s, and other names would get empty volumes: set fullnameOverride=%s" $fullname .metadata.name .metadata.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
New servers without data must not be a majority: they would elect one of them, and the others would delete their data to follow it. Nor may
a majority go: it may have the last changes alone. 0 servers: the ensemble was stopped, and its number is not known.
*/}}
{{- define "odradek.validateEnsemble" -}}
{{- if .Values.zookeeper.enabled -}}
{{- with lookup "apps/v1" "StatefulSet" .Release.Namespace (printf "%s-zookeeper" (.Release.Name | trunc 40 | trimSuffix "-")) -}}
{{- $before := int .spec.replicas -}}{{- $after := int $.Values.zookeeper.replicas -}}
{{- if and $before (gt (sub $after $before) (div $after 2)) -}}
{{- include "odradek.fail" (printf "zookeeper.replicas is %d, but the ensemble has %d: the new servers would be a majority without data, and all topics would be lost; set zookeeper.replicas=%d, or see docs/operate/helm.md#upgrades" $after $before $before) -}}
{{- end -}}
{{- if gt (sub $before $after) (div $before 2) -}}
{{- include "odradek.fail" (printf "zookeeper.replicas is %d, but the ensemble has %d: a majority of its servers would go, perhaps with the last changes; set zookeeper.replicas=%d, or reduce it by two at a time, to 3 at least" $after $before $before) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Each template begins with this: Helm does not say in which order it executes them. The checks run once. */}}
{{- define "odradek.checked" -}}
{{- if not (hasKey .Values "checkedAlready") -}}
{{- include "odradek.validate" . -}}
{{- $_ := set .Values "checkedAlready" true -}}
{{- end -}}
{{- end -}}
