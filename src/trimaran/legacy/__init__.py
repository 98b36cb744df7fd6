"""The revisions before 2026: handshake, sessions, streams that can be resumed, requests from server to client.

A translator in front of `server/`, which does not know it exists. The day the last of these revisions is gone, this
folder goes with it.
"""
