"""Grafana dashboards for Odradek, generated: `make tables` writes them to `grafana/dashboards/`.

Used by developers who change dashboards and by tests. It does not run in the broker and imports no module of the broker.
`panels` builds the panels, `board` arranges panels in a dashboard, and one module per dashboard defines its contents.
"""
