{{/* Labels of every object. */}}
{{- define "belayer.labels" -}}
{{- include "belayer.labelsOf" (list . "belayer") }}
{{- end }}

{{/* The same for a program of another name, with more labels of the object: (list $ "name" .Values.labels). */}}
{{- define "belayer.labelsOf" -}}
{{- $own := dict "app.kubernetes.io/name" (index . 1) -}}
{{- $last := list (index . 0).Values.commonLabels (dict "app.kubernetes.io/part-of" "belayer") -}}
{{- include "belayer.merged" (concat (list $own) (slice . 2) $last) }}
{{- end }}

{{/* Labels of the objects of the node agent. */}}
{{- define "belayer.nodeAgentLabels" -}}
{{- include "belayer.merged" (list (dict "app.kubernetes.io/name" "belayer-node-agent") .Values.commonLabels) }}
{{- end }}

{{/* Labels of a pod: (list $ "name"). Deployments, monitors and policies select it by the name. */}}
{{- define "belayer.podLabels" -}}
{{- include "belayer.merged" (list (dict "app.kubernetes.io/name" (index . 1)) (index . 0).Values.podLabels) }}
{{- end }}

{{/* Annotations of a pod that must restart when these keys of its configuration change: (list $ (dict "key" "value")). */}}
{{- define "belayer.podAnnotations" -}}
{{- $all := list (index . 0).Values.podAnnotations -}}
{{- with index . 1 }}{{ $all = prepend $all (dict "checksum/restart" (toJson . | sha256sum)) }}{{ end -}}
{{- $all = include "belayer.merged" $all -}}
{{- if ne $all "{}" }}{{ $all }}{{ end }}
{{- end }}

{{/* The members of a list of objects as one; of two with the same key, the first. Flux and kustomize refuse an object that
has a key twice. */}}
{{- define "belayer.merged" -}}
{{- $all := dict -}}
{{- range . }}{{ $all = merge $all (. | default dict) }}{{ end -}}
{{ toYaml $all }}
{{- end }}

{{- define "belayer.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end }}
{{- end }}
{{- end }}

{{/* The name of Belayer's account as the API server knows it. */}}
{{- define "belayer.account" -}}
system:serviceaccount:{{ .Release.Namespace }}:belayer
{{- end }}

{{/* Whether pod-recreation has a separate Deployment and account: only if something else runs beside it. */}}
{{- define "belayer.recreationApart" -}}
{{- $c := .Values.controllers -}}
{{- if and $c.podRecreation.enabled (or $c.podFinalizer.enabled $c.workflowFinalizer.enabled $c.pvcProtection.enabled) }}yes{{ end }}
{{- end }}

{{/* The ServiceAccount that may create and delete pods. */}}
{{- define "belayer.recreator" -}}
belayer{{ if include "belayer.recreationApart" . }}-pod-recreation{{ end }}
{{- end }}

{{/* All accounts of controllers, as the API server knows them, in quotes: (list $ "suffix" ...) adds more. */}}
{{- define "belayer.accounts" -}}
{{- $root := index . 0 -}}
{{- $all := list (include "belayer.account" $root) -}}
{{- if include "belayer.recreationApart" $root }}{{ $all = append $all (printf "%s-pod-recreation" (first $all)) }}{{ end -}}
{{- range rest . }}{{ $all = append $all (printf "%s%s" (first $all) .) }}{{ end -}}
['{{ join "', '" $all }}']
{{- end }}

{{/* The same with that of the drain before an uninstall. */}}
{{- define "belayer.writers" -}}
{{- if .Values.drainOnUninstall.enabled }}{{ include "belayer.accounts" (list . "-drain") }}{{ else }}{{ include "belayer.accounts" (list .) }}{{ end }}
{{- end }}

{{/* Subjects of a binding: every account of controllers. */}}
{{- define "belayer.subjects" -}}
- kind: ServiceAccount
  name: belayer
  namespace: {{ toYaml .Release.Namespace }}
{{- if include "belayer.recreationApart" . }}
- kind: ServiceAccount
  name: belayer-pod-recreation
  namespace: {{ toYaml .Release.Namespace }}
{{- end }}
{{- end }}

{{- define "belayer.nodeAgentAccount" -}}
system:serviceaccount:{{ .Values.nodeAgent.namespace.name }}:belayer-node-agent
{{- end }}

{{/* By the server's version too: `helm template` knows its kinds only from --api-versions. */}}
{{- define "belayer.serves" -}}
{{- $root := index . 0 -}}
{{- $wanted := index $root.Values.admissionPolicies (index . 1) -}}
{{- $kind := printf "admissionregistration.k8s.io/v1/%s" (index . 2) -}}
{{- $served := or ($root.Capabilities.APIVersions.Has $kind) (semverCompare (index . 3) $root.Capabilities.KubeVersion.Version) -}}
{{- if or (eq $wanted "always") (and $served (eq $wanted "auto")) }}yes{{ end }}
{{- end }}

{{/* Whether policies add finalizers: not for a dry run, which removes none. */}}
{{- define "belayer.mutating" -}}
{{- if not .Values.config.dryRun }}{{ include "belayer.serves" (list . "mutating" "MutatingAdmissionPolicy" ">=1.36.0-0") }}{{ end }}
{{- end }}

{{- define "belayer.validating" -}}
{{ include "belayer.serves" (list . "validating" "ValidatingAdmissionPolicy" ">=1.30.0-0") }}
{{- end }}

{{/* Whether the controller of this key gets a Role: (list $ "podFinalizer"). */}}
{{- define "belayer.hasRole" -}}
{{- $root := index . 0 -}}
{{- $on := (index $root.Values.controllers (index . 1)).enabled -}}
{{- if and $root.Values.rbac.create (or $on (eq $root.Values.onDisable "drain")) }}yes{{ end }}
{{- end }}

{{/* Whether an option's Role is rendered: (list $ "outcome-capture" "capture" "true"). */}}
{{- define "belayer.hasOption" -}}
{{- $root := index . 0 -}}
{{- $on := has (index . 1) $root.Values.rbac.also -}}
{{- if $root.Values.controllers.podFinalizer.enabled -}}
{{- range (include "belayer.profiles" $root | fromYamlArray) -}}
{{- if eq (toString (get . (index $ 2))) (index $ 3) }}{{ $on = true }}{{ end -}}
{{- end -}}
{{- end -}}
{{- if and $root.Values.rbac.create $on }}yes{{ end }}
{{- end }}

{{/* The profiles of pod-finalizer, with their owners. */}}
{{- define "belayer.profiles" -}}
{{- $all := list -}}
{{- $argo := dict "group" "argoproj.io" "resource" "workflows" -}}
{{- range ((.Values.config.podFinalizer).profiles | default (list (dict "builtIn" "argo"))) -}}
{{- $one := deepCopy . -}}
{{- if and (eq (get . "builtIn") "argo") (not (hasKey . "owner")) }}{{ $_ := set $one "owner" $argo }}{{ end -}}
{{- $all = append $all $one -}}
{{- end -}}
{{ toYaml $all }}
{{- end }}

{{/* The rules of workflow-finalizer, with their owners. */}}
{{- define "belayer.owners" -}}
{{- $all := list -}}
{{- $argo := dict "group" "argoproj.io" "resource" "workflows" -}}
{{- range ((.Values.config.workflowFinalizer).owners | default (list dict)) -}}
{{- $one := deepCopy . -}}
{{- if not (hasKey . "owner") }}{{ $_ := set $one "owner" $argo }}{{ end -}}
{{- $all = append $all $one -}}
{{- end -}}
{{ toYaml $all }}
{{- end }}

{{/* Each kind once, as GROUP/PLURAL, of a list of objects with `owner`. */}}
{{- define "belayer.kinds" -}}
{{- $kinds := list -}}
{{- range . -}}
{{- with .owner -}}{{- $kinds = append $kinds (printf "%s/%s" (.group | default "") .resource) -}}{{- end -}}
{{- end -}}
{{ toYaml (uniq $kinds) }}
{{- end }}

{{/* The selector of namespaces of a policy, narrowed by `namespaces` of a profile. */}}
{{- define "belayer.namespaceSelector" -}}
matchExpressions:
- key: kubernetes.io/metadata.name
  operator: NotIn
  values: {{ concat (list "kube-system") ((.namespaces).exclude | default list) | toStrings | toJson }}
{{- with (.namespaces).include }}
- key: kubernetes.io/metadata.name
  operator: In
  values: {{ toStrings . | toJson }}
{{- end }}
- key: belayer.dev/ignore
  operator: NotIn
  values: ["true"]
{{- end }}

{{/* Further selectors of a profile or rule. */}}
{{- define "belayer.selector" -}}
{{- range $name, $value := (.selector).matchLabels }}
- key: {{ $name | quote }}
  operator: In
  values: [{{ $value | quote }}]
{{- end }}
{{- range (.selector).matchExpressions }}
- {{ toYaml . | nindent 2 | trim }}
{{- end }}
{{- end }}

{{/* A container that needs nothing of the node. */}}
{{- define "belayer.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "belayer.podSecurityContext" -}}
runAsNonRoot: true
{{- if .Values.fixedUser }}
runAsUser: 65532
runAsGroup: 65532
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* The permissions on the gate: of every controller, which also watches it, and of `belayer drain`. */}}
{{- define "belayer.gateRules" -}}
# The switches of the admission policies.
- apiGroups: [belayer.dev]
  resources: [gates]
  resourceNames: [belayer-gate]
  verbs: [{{ join ", " . }}]
# A create cannot be limited to a name.
- apiGroups: [belayer.dev]
  resources: [gates]
  verbs: [create]
{{- end }}

{{/* What `belayer drain --configured-kinds` needs besides the gate. */}}
{{- define "belayer.drainRules" -}}
# Patch is for metadata.finalizers.
- apiGroups: [""]
  resources: [pods, persistentvolumeclaims]
  verbs: [get, list, patch]
{{- range (include "belayer.kinds" (include "belayer.owners" . | fromYamlArray) | fromYamlArray) }}
- apiGroups: [{{ first (splitList "/" .) | default "\"\"" }}]
  resources: [{{ last (splitList "/" .) }}]
  verbs: [get, list, patch]
{{- end }}
# Pods that exist only in their record.
- apiGroups: [belayer.dev]
  resources: [podrecreations]
  verbs: [get, list, settle]
- apiGroups: [belayer.dev]
  resources: [podrecreations/status]
  verbs: [patch]
# The policies that add finalizers.
- apiGroups: [admissionregistration.k8s.io]
  resources: [mutatingadmissionpolicies, mutatingadmissionpolicybindings]
  verbs: [get, list]
- apiGroups: [admissionregistration.k8s.io]
  resources: [mutatingadmissionpolicies, mutatingadmissionpolicybindings]
  resourceNames: [belayer-claim-hold, belayer-pod-hold, belayer-pod-recreation-hold, belayer-workflow-hold]
  verbs: [delete]
- apiGroups: [admissionregistration.k8s.io]
  resources: [validatingadmissionpolicybindings]
  resourceNames: [belayer-namespace-guard]
  verbs: [get, delete]
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get, list]
# The owner of a gate that the drain creates.
- apiGroups: [""]
  resources: [serviceaccounts]
  resourceNames: [belayer]
  verbs: [get]
{{- end }}

{{/* Annotations of an object that exists only while the drain before an uninstall runs: (weight). */}}
{{- define "belayer.drainHook" -}}
helm.sh/hook: pre-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded,hook-failed
{{- end }}

{{/* The same for `helm test`. */}}
{{- define "belayer.checkHook" -}}
helm.sh/hook: test
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded,hook-failed
{{- end }}

{{/* Labels of the objects of a hook: not those by which Belayer finds its own pods. (list $ "drain") */}}
{{- define "belayer.hookLabels" -}}
{{- include "belayer.labelsOf" (list (index . 0) (printf "belayer-%s" (index . 1))) }}
{{- end }}

{{/* Labels of the pod of a hook. */}}
{{- define "belayer.hookPodLabels" -}}
{{- $name := printf "belayer-%s" (index . 1) -}}
{{- include "belayer.labelsOf" (list (index . 0) $name (index . 0).Values.podLabels) }}
{{- end }}

{{/* The pod of a hook, which runs one command of the image: (list $ "drain" (list "argument")). */}}
{{- define "belayer.hookPod" -}}
{{- $root := index . 0 -}}
serviceAccountName: belayer-{{ index . 1 }}
automountServiceAccountToken: true
restartPolicy: Never
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.priorityClassName }}
priorityClassName: {{ toYaml . }}
{{- end }}
securityContext:
  {{- include "belayer.podSecurityContext" $root | nindent 2 }}
{{- with $root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
containers:
- name: {{ index . 1 }}
  image: {{ include "belayer.image" $root }}
  imagePullPolicy: {{ $root.Values.image.pullPolicy }}
  args:
  - {{ index . 1 }}
  {{- toYaml (index . 2) | nindent 2 }}
  {{- if $root.Values.config }}
  - --config=/etc/belayer/belayer.yaml
  {{- end }}
  env:
  - name: POD_NAMESPACE
    valueFrom:
      fieldRef:
        fieldPath: metadata.namespace
  {{- with $root.Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  resources:
    {{- toYaml $root.Values.resources | nindent 4 }}
  securityContext:
    {{- include "belayer.securityContext" $root | nindent 4 }}
  {{- if $root.Values.config }}
  volumeMounts:
  - name: config
    mountPath: /etc/belayer
    readOnly: true
  {{- end }}
{{- if $root.Values.config }}
volumes:
- name: config
  configMap:
    name: belayer-config
{{- end }}
{{- end }}

{{/* The controllers of the Deployment `belayer`, as a list. */}}
{{- define "belayer.controllers" -}}
{{- $on := list -}}
{{- $apart := include "belayer.recreationApart" . -}}
{{- range $key, $name := dict "podFinalizer" "pod-finalizer" "workflowFinalizer" "workflow-finalizer" "podRecreation" "pod-recreation" "pvcProtection" "pvc-protection" -}}
{{- if and (index $.Values.controllers $key).enabled (not (and $apart (eq $key "podRecreation"))) }}{{ $on = append $on $name }}{{ end -}}
{{- end -}}
{{- if not $on }}{{ fail "no controller is enabled: see `controllers` in values.yaml" }}{{ end -}}
{{- join "," $on -}}
{{- end }}
