{{/* The image of all roles; a digest goes before a tag. */}}
{{- define "whereabouts.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ printf "%s@%s" .repository .digest | quote }}
{{- else -}}
{{ printf "%s:%s" .repository .tag | quote }}
{{- end -}}
{{- end -}}
{{- end -}}
