"""Two links lead into an inspector: the printed one, and the one that the command gives a browser as an argument."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

import pytest
from tests.support.inspector import open_bench

from trimaran.apps.inspector.access import PageAccess, has_strangers

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who is connected")
NOBODY = 65534
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
ROW = (
    "   1: 0100007F:D431 {peer} 01 00000000:00000000 00:00000000 00000000 {owner:5d}        0 12345 1 0 20 4 30 10 -1\n"
)


def test_either_link_uses_up_both() -> None:
    for pick in (lambda access: access.token, lambda access: access.opening_token):
        access = PageAccess()
        other = access.opening_token if pick(access) == access.token else access.token
        assert access.redeem(pick(access)) is not None
        assert access.redeem(other) is None
        assert (access.token, access.opening_token) == ("", "")


@linux
@pytest.mark.parametrize(
    ("peer", "owner", "is_strange"),
    [
        pytest.param("0100007F:1F90", os.getuid(), False, id="oneself"),
        pytest.param("0100007F:1F90", 0, False, id="root"),
        pytest.param("0100007F:1F90", 4321, True, id="another user"),
        pytest.param("0100007F:1F91", 4321, False, id="at another port"),
        pytest.param("0200000A:1F90", 4321, False, id="on another machine"),
        pytest.param("0000000000000000FFFF00000100007F:1F90", 4321, True, id="over a socket for both families"),
    ],
)
def test_another_user_who_is_connected_is_a_stranger(tmp_path: Path, peer: str, owner: int, is_strange: bool) -> None:
    table = tmp_path / "tcp"
    table.write_text(HEAD + ROW.format(peer=peer, owner=owner))
    assert has_strangers(0x1F90, [str(table), str(tmp_path / "missing")]) is is_strange


@linux
def test_a_connection_of_ones_own_is_not_strange() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            assert not has_strangers(port)


@linux
@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")
async def test_a_link_that_another_user_read_opens_nothing_for_them() -> None:
    program = (
        "import socket, sys\n"
        "peer = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
        "peer.sendall(f'GET /?token={sys.argv[2]} HTTP/1.1\\r\\nHost: 127.0.0.1:{sys.argv[1]}\\r\\n\\r\\n'.encode())\n"
        "print(peer.recv(65536).decode(), flush=True)\n"
        "sys.stdin.read()\n"
    )
    async with open_bench() as bench:
        bench.headers = {}
        bench.inspector.access = access = PageAccess()
        access.port = bench.site.port
        thief = await asyncio.create_subprocess_exec(
            *("/usr/bin/env", "python3", "-c", program, str(bench.site.port), access.opening_token),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, user=NOBODY,
        )  # fmt: skip
        assert thief.stdin is not None
        assert thief.stdout is not None
        answer = await asyncio.wait_for(thief.stdout.readline(), 20)
        assert b" 401 " in answer
        assert (await bench.raw("GET", f"/?token={access.opening_token}"))[0] == 401, "they are still connected"
        thief.stdin.close()
        await asyncio.wait_for(thief.communicate(), 20)
        assert (await bench.raw("GET", f"/?token={access.opening_token}"))[0] == 200
