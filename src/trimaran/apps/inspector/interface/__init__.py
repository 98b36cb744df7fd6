"""The HTTP interface of the inspector, topic by topic: each module holds a table of routes and their handlers.

docs/reference/inspector.md describes it for people; a test compares the two.
"""
