"""The system calls that a sandboxed server may not make: a seccomp filter for bubblewrap, and how it gets it.

Namespaces do not cover everything that a process reaches. The keyrings of the kernel (Kerberos tickets, keys of disks) belong
to the user's session and not to a namespace, and a socket of the family VSOCK leads to the host of a virtual machine from any
network namespace. So such calls fail as if the kernel did not have them: ENOSYS, and EAFNOSUPPORT for a family of sockets.
io_uring goes too, because what it does passes by a filter.

The filter is a program for the kernel's classic BPF, in instructions of eight bytes. Calls have numbers that depend on the
processor, and calls of another processor's table (32-bit programs, x32) are refused whole. Where we know no numbers, there is
no filter: `build_filter` returns nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Generator, Sequence
from typing import Final, NamedTuple


class _Calls(NamedTuple):
    """The numbers of one processor's system calls."""

    architecture: int
    """AUDIT_ARCH_... of linux/audit.h."""
    refused: tuple[int, ...]
    sockets: tuple[int, ...]
    """socket and socketpair, whose first argument is the family."""


# io_uring_setup, _enter and _register have one number everywhere.
_URING: Final = (425, 426, 427)
# add_key, request_key, keyctl; perf_event_open, bpf, userfaultfd: ways to other processes and faults of the kernel.
_GENERIC: Final = ((217, 218, 219, 241, 280, 282, *_URING), (198, 199))
_MACHINES: Final = {
    "x86_64": _Calls(0xC000003E, (248, 249, 250, 298, 321, 323, *_URING), (41, 53)),
    "aarch64": _Calls(0xC00000B7, *_GENERIC),
    "riscv64": _Calls(0xC00000F3, *_GENERIC),
    "loongarch64": _Calls(0xC0000102, *_GENERIC),
}
_X32: Final = 0x40000000  # a bit in the number of a call of x86_64's second table
_FAMILIES: Final = (socket.AF_INET, 1, 10, 16)  # with UNIX, INET6 and NETLINK, which says what interfaces there are

_LOAD: Final = 0x20
_IF_EQUAL: Final = 0x15
_IF_AT_LEAST: Final = 0x35
_RETURN: Final = 0x06
_ALLOW: Final = 0x7FFF0000
_FAIL: Final = 0x00050000
# Offsets in the kernel's struct seccomp_data: the number, the architecture, the low half of the first argument.
_NUMBER: Final = 0
_ARCHITECTURE: Final = 4
_FIRST_ARGUMENT: Final = 16


def build_filter(machine: str) -> bytes:
    """The filter for a processor, as `os.uname().machine` names it; empty for one whose calls we do not know."""
    calls = _MACHINES.get(machine)
    if calls is None:
        return b""
    missing, no_family = _FAIL | errno.ENOSYS, _FAIL | errno.EAFNOSUPPORT
    program = [
        *((_LOAD, 0, 0, _ARCHITECTURE), (_IF_EQUAL, 1, 0, calls.architecture), (_RETURN, 0, 0, missing)),
        (_LOAD, 0, 0, _NUMBER),
        *((_IF_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, missing)),
    ]
    for number in calls.refused:
        program += [(_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, missing)]
    for number in calls.sockets:
        checks = [(_IF_EQUAL, len(_FAMILIES) - at, 0, family) for at, family in enumerate(_FAMILIES)]
        program += [
            (_IF_EQUAL, 0, len(checks) + 3, number),
            (_LOAD, 0, 0, _FIRST_ARGUMENT),
            *checks,
            (_RETURN, 0, 0, no_family),
            (_RETURN, 0, 0, _ALLOW),
        ]
    program.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


@contextlib.contextmanager
def inherited_filter(words: Sequence[str], program: bytes) -> Generator[tuple[list[str], tuple[int, ...]]]:
    """The command of bubblewrap with the filter, and the descriptors that it must inherit, while it is being started."""
    if not program:
        yield list(words), ()
        return
    reader, writer = os.pipe()
    try:
        with open(writer, "wb") as pipe:
            pipe.write(program)  # some 400 bytes, which a pipe holds
        yield [words[0], "--seccomp", str(reader), *words[1:]], (reader,)
    finally:
        os.close(reader)
