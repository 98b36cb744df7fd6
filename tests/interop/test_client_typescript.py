"""Our client on servers of the official TypeScript SDK (2.4.0): both eras over HTTP and stdio.

It no longer serves HTTP+SSE; `test_client_everything.py` has a server of its first generation that does.
"""

from __future__ import annotations

import pytest

from .harness import DEADLINE
from .servers.contract import AskingByUrl, Everything, Listening
from .servers.lifecycle import OverHttp, OverPipes
from .servers.places import TYPESCRIPT, Visiting

pytestmark = [pytest.mark.slow, pytest.mark.deadline(DEADLINE)]


@pytest.mark.asyncio(loop_scope="class")
class TestAServerOfTheTypeScriptSdk(Visiting, Everything, AskingByUrl, Listening):
    program = TYPESCRIPT
    page = None
    unknown_tool_is_an_error = True


class TestAServerOfTheTypeScriptSdkOverPipes(OverPipes):
    program = TYPESCRIPT


class TestAServerOfTheTypeScriptSdkOverHttp(OverHttp):
    program = TYPESCRIPT
