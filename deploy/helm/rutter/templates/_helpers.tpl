{{- /* What stands behind the names of objects: nothing for the default revision. */ -}}
{{- define "rutter.suffix" -}}
{{- if and .Values.revision (ne .Values.revision "default") -}}
-{{ .Values.revision }}
{{- end -}}
{{- end -}}

{{- define "rutter.name" -}}
istiod{{ include "rutter.suffix" . }}
{{- end -}}

{{- define "rutter.revision" -}}
{{ .Values.revision | default "default" }}
{{- end -}}

{{- define "rutter.image" -}}
{{- if contains "/" .Values.image -}}
{{ .Values.image }}
{{- else -}}
{{ .Values.hub | default .Values.global.hub }}/{{ .Values.image }}:{{ .Values.tag | default .Values.global.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "rutter.selector" -}}
app: istiod
{{- if .Values.revision }}
istio.io/rev: {{ include "rutter.revision" . | quote }}
{{- else }}
istio: pilot
{{- end }}
{{- end -}}

{{- define "rutter.labels" -}}
app: istiod
istio.io/rev: {{ include "rutter.revision" . | quote }}
app.kubernetes.io/name: istiod
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: istio
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: rutter-{{ .Chart.Version }}
{{- end -}}

{{- /* `default:info` and `ads:debug,default:warn` in the words of `--log-level`. */ -}}
{{- define "rutter.logLevel" -}}
{{- $parts := list -}}
{{- range splitList "," .Values.global.logging.level -}}
{{- $parts = append $parts (. | trim | trimPrefix "default:" | trimPrefix "all:" | replace ":" "=") -}}
{{- end -}}
{{ join "," $parts }}
{{- end -}}

{{- /* One injection webhook: by the namespace or by the pod. */ -}}
{{- define "rutter.injector" }}
- name: {{ .name }}.sidecar-injector.istio.io
  clientConfig:
    service:
      name: {{ include "rutter.name" .root }}
      namespace: {{ .root.Release.Namespace }}
      path: /inject
      port: 443
  rules:
  - operations: ["CREATE"]
    apiGroups: [""]
    apiVersions: ["v1"]
    resources: ["pods"]
  failurePolicy: Ignore
  reinvocationPolicy: {{ .root.Values.sidecarInjectorWebhook.reinvocationPolicy }}
  sideEffects: None
  admissionReviewVersions: ["v1"]
  {{ .scope }}:
    matchExpressions:
    - key: istio.io/rev
      operator: In
      values:
      - {{ include "rutter.revision" .root | quote }}
      {{- range .root.Values.revisionTags }}
      - {{ . | quote }}
      {{- end }}
  {{ .other }}:
    matchExpressions:
    {{- if eq .other "objectSelector" }}
    - key: sidecar.istio.io/inject
      operator: NotIn
      values:
      - "false"
    {{- else }}
    - key: istio-injection
      operator: DoesNotExist
    - key: istio.io/rev
      operator: DoesNotExist
    {{- end }}
{{- end }}

{{- define "rutter.ports" -}}
ports:
- name: grpc-xds
  port: 15010
  protocol: TCP
- name: https-dns
  port: 15012
  protocol: TCP
- name: https-webhook
  port: 443
  targetPort: 15017
  protocol: TCP
- name: http-monitoring
  port: 15014
  protocol: TCP
{{- end }}

{{- define "rutter.mesh" -}}
{{- $config := dict "discoveryAddress" (printf "%s.%s.svc:15012" (include "rutter.name" .) .Release.Namespace) -}}
{{- with .Values.global.meshID }}{{ $config = merge $config (dict "meshId" .) }}{{ end -}}
{{- $mesh := dict "rootNamespace" .Values.global.istioNamespace "trustDomain" "cluster.local" "defaultConfig" $config -}}
{{- $mesh = merge $mesh (dict "defaultProviders" (dict "metrics" (list "prometheus"))) -}}
{{ mergeOverwrite $mesh (.Values.meshConfig | default dict) | toYaml }}
{{- end -}}
