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
{{ .Values.hub | default .Values.global.hub }}/{{ .Values.image }}:{{ .Values.tag | default .Chart.AppVersion }}
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

{{- /* A validation webhook for objects with or without a revision. */ -}}
{{- define "rutter.validator" }}
- name: {{ .name }}.istio.io
  clientConfig:
    service:
      name: {{ include "rutter.name" .root }}
      namespace: {{ .root.Release.Namespace }}
      path: /validate
      port: 443
  rules:
  - operations: ["CREATE", "UPDATE"]
    apiGroups: ["extensions.istio.io", "networking.istio.io", "security.istio.io", "telemetry.istio.io"]
    apiVersions: ["*"]
    resources: ["*"]
    scope: "*"
  failurePolicy: Ignore
  matchPolicy: Equivalent
  sideEffects: None
  timeoutSeconds: 10
  admissionReviewVersions: ["v1"]
  objectSelector:
    matchExpressions:
    {{- toYaml (list .selector) | nindent 4 }}
{{- end }}

{{- /* The injection webhooks of a revision or tag. Only those of `default` serve labels without a revision. */ -}}
{{- define "rutter.injectors" }}
{{- $noRevision := dict "key" "istio.io/rev" "operator" "DoesNotExist" -}}
{{- $noInjection := dict "key" "istio-injection" "operator" "DoesNotExist" -}}
{{- $revision := dict "key" "istio.io/rev" "operator" "In" "values" (list .revision) -}}
{{- $notRefused := dict "key" "sidecar.istio.io/inject" "operator" "NotIn" "values" (list "false") -}}
{{- include "rutter.injector" (dict "name" "rev.namespace" "root" .root "namespaces" (list $revision $noInjection) "objects" (list $notRefused)) }}
{{- include "rutter.injector" (dict "name" "rev.object" "root" .root "namespaces" (list $noRevision $noInjection) "objects" (list $notRefused $revision)) }}
{{- if eq .revision "default" }}
{{- $enabled := dict "key" "istio-injection" "operator" "In" "values" (list "enabled") -}}
{{- $wanted := dict "key" "sidecar.istio.io/inject" "operator" "In" "values" (list "true") -}}
{{- include "rutter.injector" (dict "name" "namespace" "root" .root "namespaces" (list $enabled) "objects" (list $notRefused)) }}
{{- include "rutter.injector" (dict "name" "object" "root" .root "namespaces" (list $noInjection $noRevision) "objects" (list $wanted $noRevision)) }}
{{- if .root.Values.sidecarInjectorWebhook.enableNamespacesByDefault }}
{{- $system := dict "key" "kubernetes.io/metadata.name" "operator" "NotIn" "values" (list "kube-system" "kube-public" "kube-node-lease" "local-path-storage") -}}
{{- $unsaid := dict "key" "sidecar.istio.io/inject" "operator" "DoesNotExist" -}}
{{- include "rutter.injector" (dict "name" "auto" "root" .root "namespaces" (list $noInjection $noRevision $system) "objects" (list $unsaid $noRevision)) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "rutter.injector" }}
- name: {{ .name }}.sidecar-injector.istio.io
  clientConfig:
    {{- with .root.Values.istiodRemote.injectionURL }}
    url: {{ . | quote }}
    {{- else }}
    service:
      name: {{ include "rutter.name" .root }}
      namespace: {{ .root.Release.Namespace }}
      path: {{ .root.Values.istiodRemote.injectionPath | default "/inject" | quote }}
      port: 443
    {{- end }}
    {{- with .root.Values.istiodRemote.injectionCABundle }}
    caBundle: {{ . | quote }}
    {{- end }}
  rules:
  - operations: ["CREATE"]
    apiGroups: [""]
    apiVersions: ["v1"]
    resources: ["pods"]
  failurePolicy: Fail
  reinvocationPolicy: {{ .root.Values.sidecarInjectorWebhook.reinvocationPolicy }}
  sideEffects: None
  admissionReviewVersions: ["v1"]
  namespaceSelector:
    matchExpressions:
    {{- toYaml .namespaces | nindent 4 }}
  objectSelector:
    matchExpressions:
    {{- toYaml .objects | nindent 4 }}
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
{{- $given := .Values.meshConfig | default dict -}}
{{- /* An empty list of the user would not replace this one. */ -}}
{{- $v2 := .Values.telemetry.v2 -}}
{{- $metrics := ternary (list "prometheus") list (and .Values.telemetry.enabled $v2.enabled $v2.prometheus.enabled) -}}
{{- if not (hasKey ($given.defaultProviders | default dict) "metrics") -}}
{{- $mesh = merge $mesh (dict "defaultProviders" (dict "metrics" $metrics)) -}}
{{- end -}}
{{ mergeOverwrite $mesh $given | toYaml }}
{{- end -}}
