{{- /* A ClusterRole of a controller, and its bindings: (list $ "name" "rules" "account"). With `rbac.namespaces`, what it
writes is bound in these namespaces only; what it watches is of the whole cluster. */}}
{{- define "belayer.role" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $rules := index . 2 -}}
{{- $account := index . 3 -}}
{{- $only := $root.Values.rbac.namespaces -}}
{{- $reads := list -}}
{{- $writes := list -}}
{{- if $only -}}
{{- range ($rules | fromYamlArray) -}}
{{- $rule := . -}}
{{- $read := list -}}
{{- $write := list -}}
{{- /* NodeWipes are cluster-scoped. */ -}}
{{- range .verbs -}}
{{- if or (has . (list "get" "list" "watch")) (has "nodewipes" $rule.resources) -}}
{{- $read = append $read . -}}
{{- else -}}
{{- $write = append $write . -}}
{{- end -}}
{{- end -}}
{{- with $read }}{{ $reads = append $reads (set (deepCopy $rule) "verbs" .) }}{{ end -}}
{{- with $write }}{{ $writes = append $writes (set (deepCopy $rule) "verbs" .) }}{{ end -}}
{{- end -}}
{{- $rules = toYaml $reads -}}
{{- end -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $name }}
  labels:
    {{- include "belayer.labels" $root | nindent 4 }}
{{- if $rules | fromYamlArray }}
rules:
{{ $rules | trim }}
{{- else }}
rules: []
{{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name }}
  labels:
    {{- include "belayer.labels" $root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $name }}
subjects:
- kind: ServiceAccount
  name: {{ $account }}
  namespace: {{ toYaml $root.Release.Namespace }}
{{- if and $only $writes }}
---
# What it writes, bound in the namespaces of `rbac.namespaces`.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $name }}-writes
  labels:
    {{- include "belayer.labels" $root | nindent 4 }}
rules:
{{ toYaml $writes }}
{{- range $only }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}
  namespace: {{ quote . }}
  labels:
    {{- include "belayer.labels" $root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $name }}-writes
subjects:
- kind: ServiceAccount
  name: {{ $account }}
  namespace: {{ toYaml $root.Release.Namespace }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Fails unless the configuration selects nothing outside of `rbac.namespaces`: an object elsewhere would be held, by a
policy, and could not be released. */}}
{{- define "belayer.limited" -}}
{{- $root := . -}}
{{- $rules := dict -}}
{{- if .Values.controllers.podFinalizer.enabled -}}
{{- range $at, $one := (include "belayer.profiles" . | fromYamlArray) -}}
{{- $_ := set $rules (printf "podFinalizer.profiles[%d]" $at) $one -}}
{{- end -}}
{{- end -}}
{{- if .Values.controllers.workflowFinalizer.enabled -}}
{{- range $at, $one := (include "belayer.owners" . | fromYamlArray) -}}
{{- $_ := set $rules (printf "workflowFinalizer.owners[%d]" $at) $one -}}
{{- end -}}
{{- end -}}
{{- if .Values.controllers.podRecreation.enabled -}}
{{- $_ := set $rules "podRecreation" (.Values.config.podRecreation | default dict) -}}
{{- end -}}
{{- range $key, $one := $rules -}}
{{- $include := ($one.namespaces).include -}}
{{- if not $include -}}
{{- fail (printf "rbac.namespaces needs config.%s.namespaces.include: Belayer would select objects of other namespaces, and could not release them" $key) -}}
{{- end -}}
{{- range $include -}}
{{- if not (has . $root.Values.rbac.namespaces) -}}
{{- fail (printf "config.%s.namespaces.include lists %s, and rbac.namespaces does not" $key .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if .Values.controllers.pvcProtection.enabled -}}
{{- fail "rbac.namespaces needs controllers.pvcProtection.enabled=false: pvc-protection selects the PVCs of all namespaces" -}}
{{- end -}}
{{- end }}
