"""`trimaran gateway`: the servers of an `mcp.toml` behind one port, for many callers.

settings.py     what `[gateway]` and `[view.NAME]` say
gateway.py      all endpoints of one port: what is served, and its life
call_control.py one call to a server: rules, limits, the audit line, figures
callers.py      who is calling, and what rules let a caller do
credentials.py  with which credentials a server is called
logins.py       callers who log in to a server themselves
views.py        a part of the servers, for some callers
routes.py       health of each server, `/metrics`
page.py         the page at `/`
run.py          the process: signals, and reading the configuration again
metrics.py      figures for Prometheus
logs.py         log lines as JSON, without secrets
"""
