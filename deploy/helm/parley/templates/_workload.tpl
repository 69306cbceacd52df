{{/* Labels of a component's pods: call with (dict "root" $ "component" "serve"). */}}
{{- define "parley.labels" -}}
app.kubernetes.io/name: parley
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Variables from the secret. */}}
{{- define "parley.secrets" -}}
{{- $secret := .Values.secret }}
{{- range $secret.required }}
- name: {{ . }}
  valueFrom: {secretKeyRef: {name: {{ $secret.name }}, key: {{ . }}}}
{{- end }}
{{- range $secret.optional }}
- name: {{ . }}
  valueFrom: {secretKeyRef: {name: {{ $secret.name }}, key: {{ . }}, optional: true}}
{{- end }}
{{- end }}

{{/*
A deployment. Call it with
(dict "root" $ "component" "serve" "values" .Values.serve "container" "name of a template").
*/}}
{{- define "parley.deployment" -}}
{{- $name := printf "%s-%s" .root.Release.Name .component }}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  labels: {{- include "parley.labels" . | nindent 4 }}
spec:
  replicas: {{ .values.replicas }}
  selector:
    matchLabels: {{- include "parley.labels" . | nindent 6 }}
  strategy:
    type: RollingUpdate
    rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
  template:
    metadata:
      labels: {{- include "parley.labels" . | nindent 8 }}
      annotations:
        # A change of the settings replaces the pods.
        checksum/settings: {{ include (print .root.Template.BasePath "/settings.yaml") .root | sha256sum }}
    spec:
      automountServiceAccountToken: false
      enableServiceLinks: false  # whose variables would begin with PARLEY_
      shareProcessNamespace: true  # reaps what tools leave, and a signal is never lost
      # Longer than preStop and DRAIN_GRACE together.
      terminationGracePeriodSeconds: {{ add .root.Values.drainGrace 20 }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 999
        runAsGroup: 999
        fsGroup: 999
        fsGroupChangePolicy: OnRootMismatch
        seccompProfile: {type: RuntimeDefault}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {{- include "parley.labels" . | nindent 14 }}
      {{- with .root.Values.image.pullSecrets }}
      imagePullSecrets:
        {{- range . }}
        - name: {{ . }}
        {{- end }}
      {{- end }}
      containers:
        - name: {{ .component }}
          image: "{{ .root.Values.image.repository }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}"
          command: [python, manage.py, {{ .component }}]
          envFrom:
            - configMapRef: {name: {{ .root.Release.Name }}-settings}
          {{- include .container .root | nindent 10 }}
          resources: {{- toYaml .values.resources | nindent 12 }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
            - {name: data, mountPath: /var/lib/parley}
            {{- if not .root.Values.settings.S3_BUCKET }}
            - {name: media, mountPath: /var/lib/parley/media}
            {{- end }}
      volumes:
        - name: tmp
          emptyDir: {sizeLimit: 5Gi}
        # Secrets come from the environment; what else is in the data folder, apart from
        # media, may end with the pod.
        - name: data
          emptyDir: {sizeLimit: 100Mi}
        {{- if not .root.Values.settings.S3_BUCKET }}
        - name: media
          persistentVolumeClaim: {claimName: {{ .root.Values.media.existingClaim | default (print .root.Release.Name "-media") }}}
        {{- end }}
---
# Maintenance of nodes leaves at least one, unless there is only one.
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $name }}
  labels: {{- include "parley.labels" . | nindent 4 }}
spec:
  {{- if gt (int .values.replicas) 1 }}
  minAvailable: 1
  {{- else }}
  maxUnavailable: 1
  {{- end }}
  selector:
    matchLabels: {{- include "parley.labels" . | nindent 6 }}
{{- end }}
