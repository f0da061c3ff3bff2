{{- define "rutter-cni.name" -}}
istio-cni
{{- end -}}

{{- define "rutter-cni.image" -}}
{{- if contains "/" .Values.image -}}
{{ .Values.image }}
{{- else -}}
{{ .Values.hub | default .Values.global.hub }}/{{ .Values.image }}:{{ .Values.tag | default .Values.global.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "rutter-cni.labels" -}}
app: istio-cni
app.kubernetes.io/name: istio-cni
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: istio
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: rutter-cni-{{ .Chart.Version }}
{{- end -}}

{{- /* `default:info` is one of the words of Istio's charts. */ -}}
{{- define "rutter-cni.logLevel" -}}
{{ .Values.logging.level | default .Values.global.logging.level | trimPrefix "default:" | trimPrefix "all:" }}
{{- end -}}
