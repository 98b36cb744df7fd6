"""The inspector's backend: clients of any number of servers behind one small HTTP and event-stream interface.

    inspector.py   puts the parts together           site.py       HTTP: routes, access, the page's files
    events.py      what happened, in order           access.py     the one-time link and the session
    wire.py        messages and HTTP exchanges       servers.py    connections, their state and their story
    catalog.py     what a server offers              calls.py      calls, their progress, logs and outcome
    questions.py   what a server asks a person

docs/reference/inspector.md describes the interface. `apps/cli/inspect.py` is the command.
"""
