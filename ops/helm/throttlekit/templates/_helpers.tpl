{{- define "throttlekit.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "throttlekit.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "throttlekit.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "throttlekit.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "throttlekit.selector" -}}
app.kubernetes.io/name: {{ include "throttlekit.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "throttlekit.labels" -}}
{{ include "throttlekit.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "throttlekit.image" -}}
{{- $image := .Values.image }}
{{- if $image.digest }}
{{- printf "%s@%s" $image.repository $image.digest }}
{{- else }}
{{- printf "%s:%s" $image.repository (default .Chart.AppVersion $image.tag) }}
{{- end }}
{{- end }}

{{- define "throttlekit.configMap" -}}
{{- default (printf "%s-policies" (include "throttlekit.fullname" .)) .Values.existingConfigMap }}
{{- end }}

{{/* Ports of the server by name. */}}
{{- define "throttlekit.ports" -}}
grpc: 50051
{{- if .Values.server.http }}
http: 8080
{{- end }}
{{- if .Values.server.resp }}
resp: 6380
{{- end }}
metrics: 9464
{{- end }}

{{/* The same for containers that run the image. */}}
{{- define "throttlekit.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Combinations of values that each are valid. */}}
{{- define "throttlekit.validate" -}}
{{- $pods := ternary .Values.autoscaling.maxReplicas .Values.replicaCount .Values.autoscaling.enabled }}
{{- if and .Values.store.memory (gt (int $pods) 1) }}
{{- fail "store.memory counts in each pod alone: set replicaCount=1 and autoscaling.enabled=false, or use a shared store" }}
{{- end }}
{{- if and .Values.tls.clientCertificates (not .Values.tls.enabled) }}
{{- fail "tls.clientCertificates needs tls.enabled" }}
{{- end }}
{{- if and (or .Values.secrets.monitor .Values.secrets.fleet) (not .Values.secrets.existingSecret) }}
{{- fail "secrets.monitor and secrets.fleet need secrets.existingSecret" }}
{{- end }}
{{- end }}
