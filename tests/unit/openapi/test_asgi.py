"""An application in the same process: started with the server unless somebody serves it, and not waited for too long."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import BackgroundTasks, FastAPI, Request
from fastapi.responses import JSONResponse
from tests.support.until import PATIENCE, soon, until

from trimaran import Server, connect


class Shop:
    """An application that needs its lifespan, and counts how often it ran."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.server: Server | None = None
        self.app = FastAPI(lifespan=self._lifespan)

        @self.app.get("/goods")
        async def goods(request: Request) -> list[str]:
            return [request.app.state.goods, request.state.pool]

    @asynccontextmanager
    async def _lifespan(self, app: FastAPI) -> AsyncGenerator[dict[str, Any]]:
        self.events.append("start")
        app.state.goods = "a hat"
        if self.server is None:
            yield {"pool": "a pool"}
        else:
            async with self.server.lifespan():
                yield {"pool": "a pool"}
        self.events.append("stop")


async def test_the_lifespan_of_an_application_is_that_of_the_server() -> None:
    shop = Shop()
    async with connect(Server.from_fastapi(shop.app)) as client:
        assert (await client.call_tool("goods")).data == ["a hat", "a pool"]
        assert shop.events == ["start"]
    assert shop.events == ["start", "stop"]


async def test_an_application_that_is_served_is_not_started_again() -> None:
    shop = Shop()
    server = Server.from_fastapi(shop.app)
    async with shop.app.router.lifespan_context(shop.app), connect(server) as client:
        assert (await client.call_tool("goods")).data == ["a hat", "a pool"]
    assert shop.events == ["start", "stop"]


async def test_an_application_may_start_the_server_made_of_it() -> None:
    shop = Shop()
    shop.server = Server.from_fastapi(shop.app)
    async with shop.app.router.lifespan_context(shop.app), connect(shop.server) as client:
        assert (await client.call_tool("goods")).data == ["a hat", "a pool"]
    assert shop.events == ["start", "stop"]


async def test_a_call_does_not_wait_for_background_tasks_and_its_end_does_not_stop_them() -> None:
    app = FastAPI()
    may_end, has_ended = asyncio.Event(), asyncio.Event()

    async def send_mail() -> None:
        await may_end.wait()
        has_ended.set()

    @app.post("/order")
    async def order(tasks: BackgroundTasks) -> str:
        tasks.add_task(send_mail)
        return "ordered"

    async with connect(Server.from_fastapi(app, timeout=PATIENCE)) as client:
        assert (await soon(client.call_tool("order"))).data == "ordered"
        assert not has_ended.is_set()
        may_end.set()
        await soon(has_ended.wait())


async def test_the_answer_of_an_application_that_fails_is_told(caplog: pytest.LogCaptureFixture) -> None:
    app = FastAPI()

    @app.exception_handler(ZeroDivisionError)
    async def explain(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"detail": "give another number"}, 400)

    @app.exception_handler(Exception)
    async def say_sorry(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"detail": "the till is broken"}, 500)

    @app.get("/share")
    async def share(of: int) -> float:
        return {}[of] if of == 7 else 1 / of

    async with connect(Server.from_fastapi(app)) as client:
        assert "give another number" in (await client.call_tool("share", {"of": 0})).text
        with caplog.at_level(logging.ERROR, "trimaran.openapi"):
            answer = await client.call_tool("share", {"of": 7})
            await until(lambda: caplog.records, "the failure is logged")
    assert answer.is_error
    assert "500 Internal Server Error. " in answer.text
    assert "the till is broken" in answer.text
    assert "GET /share failed after its answer" in caplog.text
    assert "KeyError: 7" in caplog.text


async def test_a_call_that_is_given_up_ends_in_the_application() -> None:
    app = FastAPI()
    is_over = asyncio.Event()

    @app.get("/sleep")
    async def sleep() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            is_over.set()

    async with connect(Server.from_fastapi(app, timeout=0.05)) as client:
        assert "did not answer within 0.05 s" in (await client.call_tool("sleep")).text
        await soon(is_over.wait())
