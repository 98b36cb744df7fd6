"""A server that stands for another one: `Server.proxy(target)`, and `server.mount(target)` for a remote target.

server.py           the proxy as a Server: its options, its life
upstream.py         the connection to the target, and its catalog as it changes
definitions.py      a remote tool, resource, template or prompt as an entry of our registries
forwarding.py       one call across: `_meta`, progress, logs, questions, results, errors
task_forwarding.py  a call that the target answers with a task
parked_calls.py     calls of older servers that wait for an answer while no request of the caller is open
"""
