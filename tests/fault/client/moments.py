"""What the tests of a client between two awaits share."""

from __future__ import annotations

from typing import Any

from tests.support.peers import (
    P,
    Pipe,
    tell,
)

LISTEN = "subscriptions/listen"


def acknowledge(pipe: Pipe, message: dict[str, Any]) -> None:
    meta = {P + "subscriptionId": message["id"]}
    pipe.say(tell("notifications/subscriptions/acknowledged", {"notifications": {}, "_meta": meta}))
