{{- define "agents.labels" -}}
app.kubernetes.io/name: agent-tool-management
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* YAML reads `off` as false, and a chart reads every number as a float. */}}
{{- define "agents.setting" -}}
{{- if kindIs "bool" . }}{{ ternary "on" "off" . }}{{ else if kindIs "float64" . }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- end }}

{{- /* What the service and the migration have in common. Neither talks to Kubernetes: no token, no variables of other services. */}}
{{- define "agents.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 1000
  runAsGroup: 1000
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.databaseCaSecret }}
volumes:
  - name: ca
    secret:
      secretName: {{ . }}
{{- end }}
{{- end }}

{{- define "agents.container" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- if .Values.databaseCaSecret }}
volumeMounts:
  - name: ca
    mountPath: /ca
    readOnly: true
{{- end }}
env:
  {{- range list "DATABASE_URL" "SECRET_KEYS" }}
  - name: {{ . }}
    valueFrom:
      secretKeyRef:
        name: {{ required "existingSecret: name a Secret with DATABASE_URL and SECRET_KEYS" $.Values.existingSecret }}
        key: {{ . }}
  {{- end }}
  {{- range $name, $value := .Values.settings }}
  - name: {{ $name }}
    value: {{ include "agents.setting" $value | quote }}
  {{- end }}
{{- end }}
