{{/* Names, labels, and small functions. */}}

{{- define "odradek.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 40 characters: names of pods and Services add to it, and a label has at most 63. */}}
{{- define "odradek.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "odradek.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "odradek.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "odradek.selector" -}}
app.kubernetes.io/name: {{ include "odradek.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of the brokers' pods, which never change: a StatefulSet refuses another selector. */}}
{{- define "odradek.brokerSelector" -}}
{{ include "odradek.selector" . }}
app.kubernetes.io/component: broker
{{- end -}}

{{- define "odradek.labels" -}}
{{ include "odradek.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* (list root values-of-an-image what) */}}
{{- define "odradek.image" -}}
{{- $root := index . 0 -}}{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository (default $root.Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "odradek.headless" -}}{{ include "odradek.fullname" . }}-brokers{{- end -}}
{{- define "odradek.bootstrap" -}}{{ include "odradek.fullname" . }}:{{ .Values.listeners.clients.port }}{{- end -}}
{{- define "odradek.bootstrapFull" -}}
{{- printf "%s.%s.svc.%s:%v" (include "odradek.fullname" .) .Release.Namespace .Values.clusterDomain .Values.listeners.clients.port -}}
{{- end -}}

{{/* zookeeper.connect; empty for a single broker without ZooKeeper. */}}
{{- define "odradek.zookeeper" -}}
{{- if .Values.zookeeper.enabled -}}
{{- $servers := list -}}
{{- $name := printf "%s-zookeeper" (.Release.Name | trunc 40 | trimSuffix "-") -}}
{{- range $i := until (int .Values.zookeeper.replicas) -}}
{{- $servers = append $servers (printf "%s-%d.%s.%s.svc.%s:2181" $name (add1 $i) $name $.Release.Namespace $.Values.clusterDomain) -}}
{{- end -}}
{{- printf "%s%s" (join "," $servers) .Values.zookeeper.chroot -}}
{{- else if .Values.zookeeper.connect -}}
{{- printf "%s%s" .Values.zookeeper.connect .Values.zookeeper.chroot -}}
{{- end -}}
{{- end -}}

{{- define "odradek.metadataStore" -}}{{ ternary "zookeeper" "embedded" (ne (include "odradek.zookeeper" .) "") }}{{- end -}}

{{/* The listeners as JSON: a list of {name, port, protocol, value}; value is the name in values.yaml. */}}
{{- define "odradek.listeners" -}}
{{- $l := .Values.listeners -}}
{{- $all := list
  (dict "name" "BROKERS" "port" (int $l.brokers.port) "protocol" $l.brokers.protocol "value" "listeners.brokers.port")
  (dict "name" "CLIENTS" "port" (int $l.clients.port) "protocol" $l.clients.protocol "value" "listeners.clients.port") -}}
{{- with .Values.external -}}
{{- if .enabled -}}
{{- $all = append $all (dict "name" "EXTERNAL" "port" (int .port) "protocol" .protocol "value" "external.port") -}}
{{- end -}}
{{- end -}}
{{- toJson $all -}}
{{- end -}}

{{/* "true" if a listener has a protocol that ends in SSL, or begins with SASL. */}}
{{- define "odradek.usesTls" -}}
{{- range include "odradek.listeners" . | fromJsonArray }}{{ if hasSuffix "SSL" .protocol }}true {{ end }}{{ end -}}
{{- end -}}
{{- define "odradek.usesSasl" -}}
{{- range include "odradek.listeners" . | fromJsonArray }}{{ if hasPrefix "SASL" .protocol }}true {{ end }}{{ end -}}
{{- end -}}
{{/* "true" if the metrics listener, which serves the probes, has TLS. */}}
{{- define "odradek.metricsTls" -}}
{{- if eq (get .Values.config "metrics.listener.tls" | toString | lower) "true" }}true{{ end -}}
{{- end -}}
{{- define "odradek.tlsSecret" -}}
{{- if .Values.tls.certManager.enabled }}{{ include "odradek.fullname" . }}-tls{{ else }}{{ .Values.tls.secret }}{{ end -}}
{{- end -}}
{{- define "odradek.keystoreKey" -}}
{{- if .Values.tls.certManager.enabled }}tls-combined.pem{{ else }}{{ .Values.tls.keystoreKey }}{{ end -}}
{{- end -}}

{{/* (list root id): the host that broker `id` advertises to clients outside. */}}
{{- define "odradek.externalHost" -}}
{{- $root := index . 0 -}}{{- $id := index . 1 -}}{{- $external := $root.Values.external -}}
{{- if $external.hosts -}}
{{- index $external.hosts (sub (int $id) (int $root.Values.nodeIdBase) | int) -}}
{{- else if $external.hostTemplate -}}
{{- $external.hostTemplate | replace "{id}" (toString $id) -}}
{{- else -}}
${env:ODRADEK_NODE_ADDRESS}
{{- end -}}
{{- end -}}

{{/* (list root user): passwordSecret of a user, as JSON. */}}
{{- define "odradek.userSecret" -}}
{{- $root := index . 0 -}}{{- $name := index . 1 -}}
{{- range $root.Values.users -}}{{- if eq .name $name }}{{ toJson .passwordSecret }}{{ end -}}{{- end -}}
{{- end -}}

{{/* A Kubernetes quantity (20Gi, 1.5T, 1000000) in bytes. */}}
{{- define "odradek.bytes" -}}
{{- $text := toString . -}}
{{- $number := regexFind "^[0-9.]+" $text -}}
{{- $unit := trimPrefix $number $text -}}
{{- $factors := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "P" 1000000000000000
  "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 -}}
{{- if not (hasKey $factors $unit) -}}
{{- fail (printf "odradek: cannot read the size %s: its unit must be one of Ki, Mi, Gi, Ti, Pi, k, M, G, T, P" $text) -}}
{{- end -}}
{{- mulf (float64 $number) (get $factors $unit | float64) | int64 -}}
{{- end -}}

{{/* Security settings of each container. */}}
{{- define "odradek.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: {{ .Values.runAsUser }}
runAsGroup: {{ .Values.runAsGroup }}
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "odradek.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .Values.runAsUser }}
runAsGroup: {{ .Values.runAsGroup }}
fsGroup: {{ .Values.runAsGroup }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* Resources of containers that run one short command. */}}
{{- define "odradek.commandResources" -}}
requests: {cpu: 50m, memory: 128Mi, ephemeral-storage: 16Mi}
limits: {memory: 256Mi, ephemeral-storage: 64Mi}
{{- end -}}
