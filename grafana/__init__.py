"""Grafana's dashboards for Odradek, made from code: `python -m grafana` writes them to `grafana/dashboards/`.

Used by people who change dashboards and by tests; nothing of it runs in the broker, and it imports nothing of the broker.
`panels` makes one panel of each kind, `board` puts panels into a dashboard, one module a dashboard says what is on it.
"""
