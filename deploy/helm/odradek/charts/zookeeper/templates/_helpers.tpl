{{/* Also the parent chart computes this name, for zookeeper.connect. */}}
{{- define "zookeeper.fullname" -}}
{{- printf "%s-zookeeper" (.Release.Name | trunc 40 | trimSuffix "-") -}}
{{- end -}}

{{- define "zookeeper.selector" -}}
app.kubernetes.io/name: zookeeper
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "zookeeper.labels" -}}
{{ include "zookeeper.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "zookeeper.config" -}}
dataDir=/data
tickTime={{ .Values.tickTimeMs }}
initLimit=10
syncLimit=5
clientPort=2181
maxClientCnxns=0
autopurge.snapRetainCount=5
autopurge.purgeInterval=12
snapshot.trust.empty=false
standaloneEnabled={{ eq (int .Values.replicas) 1 }}
reconfigEnabled=false
4lw.commands.whitelist=srvr,ruok
# For the probes.
admin.enableServer=true
admin.serverPort=8080
{{- if gt (int .Values.replicas) 1 }}
quorumListenOnAllIPs=true
{{- range $i := until (int .Values.replicas) }}
{{- $name := include "zookeeper.fullname" $ }}
server.{{ add1 $i }}={{ $name }}-{{ add1 $i }}.{{ $name }}.{{ $.Release.Namespace }}.svc:2888:3888
{{- end }}
{{- end }}
{{- end -}}
