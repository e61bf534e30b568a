{{- /* A Deployment of `belayer run`: the root with `name`, also that of its account, and `arguments`. */}}
{{- define "belayer.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  namespace: {{ toYaml .Release.Namespace }}
  labels:
    {{- include "belayer.labelsOf" (list . .name) | nindent 4 }}
spec:
  # One is the leader (see the Lease of the same name), the other stands by with full caches.
  replicas: {{ .Values.replicas | int }}
  strategy:
    type: RollingUpdate
    rollingUpdate:
      maxUnavailable: 1
      maxSurge: 1
  selector:
    matchLabels:
      app.kubernetes.io/name: {{ .name }}
  template:
    metadata:
      labels:
        {{- include "belayer.podLabels" (list . .name) | nindent 8 }}
      {{- /* Keys that are read at the start only (all of them without ConfigReload): without a restart the pods would keep the Lease that the Role no longer names. */}}
      {{- $restart := pick .Values.config "dryRun" "endpoints" "featureGates" "leaderElection" "logging" }}
      {{- if eq (toString (.Values.config.featureGates).ConfigReload) "false" }}{{ $restart = .Values.config }}{{ end }}
      {{- with include "belayer.podAnnotations" (list . $restart) }}
      annotations:
        {{- . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ .name }}
      automountServiceAccountToken: true
      {{- with .Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.priorityClassName }}
      # Deletions wait for Belayer.
      priorityClassName: {{ toYaml . }}
      {{- end }}
      # In-flight work has 30 s to finish; then the Lease is released.
      terminationGracePeriodSeconds: 40
      securityContext:
        {{- include "belayer.podSecurityContext" . | nindent 8 }}
      {{- with .Values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      # Two replicas on one node would be lost together.
      topologySpreadConstraints:
      {{- with .Values.topologySpreadConstraints }}
      {{- toYaml . | nindent 6 }}
      {{- else }}
      - maxSkew: 1
        topologyKey: kubernetes.io/hostname
        whenUnsatisfiable: ScheduleAnyway
        labelSelector:
          matchLabels:
            app.kubernetes.io/name: {{ .name }}
      {{- end }}
      containers:
      - name: belayer
        image: {{ include "belayer.image" . }}
        imagePullPolicy: {{ .Values.image.pullPolicy }}
        args:
        - run
        {{- range .arguments }}
        - {{ . }}
        {{- end }}
        - --metrics-bind-address=:8080
        - --health-probe-bind-address=:8082
        - --log-format=json
        {{- if .Values.metrics.tlsSecret }}
        - --tls-cert-file=/etc/belayer-tls/tls.crt
        - --tls-private-key-file=/etc/belayer-tls/tls.key
        {{- end }}
        {{- if .Values.config }}
        - --config=/etc/belayer/belayer.yaml
        {{- end }}
        {{- with .Values.extraArgs }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        env:
        # Belayer's own namespace: its Lease, its gate, and the account that the policies name.
        - name: POD_NAMESPACE
          valueFrom:
            fieldRef:
              fieldPath: metadata.namespace
        {{- with .Values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        ports:
        - name: metrics
          containerPort: 8080
        - name: health
          containerPort: 8082
        startupProbe:
          httpGet:
            path: /livez
            port: health
          periodSeconds: 2
          failureThreshold: 30
        livenessProbe:
          httpGet:
            path: /livez
            port: health
          periodSeconds: 10
          timeoutSeconds: 5
        readinessProbe:
          httpGet:
            path: /readyz
            port: health
          periodSeconds: 5
          timeoutSeconds: 5
        resources:
          {{- toYaml .Values.resources | nindent 10 }}
        securityContext:
          {{- include "belayer.securityContext" . | nindent 10 }}
        {{- if or .Values.config .Values.metrics.tlsSecret .Values.extraVolumeMounts }}
        volumeMounts:
        {{- if .Values.metrics.tlsSecret }}
        - name: tls
          mountPath: /etc/belayer-tls
          readOnly: true
        {{- end }}
        {{- if .Values.config }}
        - name: config
          mountPath: /etc/belayer
          readOnly: true
        {{- end }}
        {{- with .Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- end }}
      {{- if or .Values.config .Values.metrics.tlsSecret .Values.extraVolumes }}
      volumes:
      {{- with .Values.metrics.tlsSecret }}
      - name: tls
        secret:
          secretName: {{ toYaml . }}
      {{- end }}
      {{- if .Values.config }}
      - name: config
        configMap:
          name: belayer-config
      {{- end }}
      {{- with .Values.extraVolumes }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
      {{- end }}
{{- end }}

{{- define "belayer.podDisruptionBudget" -}}
# One replica keeps running when several nodes are drained at once.
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ toYaml .Release.Namespace }}
  labels:
    {{- include "belayer.labelsOf" (list . .name) | nindent 4 }}
spec:
  maxUnavailable: {{ .Values.podDisruptionBudget.maxUnavailable }}
  # A replica that is not ready may be evicted: it does no work.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      app.kubernetes.io/name: {{ .name }}
{{- end }}
