"""The filter of system calls, run by a small machine of our own. tests/fault/test_sandbox.py has the kernel run it."""

from __future__ import annotations

import errno
import os
import socket
import struct

import pytest

from trimaran.transports.sandbox_filter import build_filter, inherited_filter

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7, "riscv64": 0xC00000F3, "loongarch64": 0xC0000102}
ALLOWED = 0


def run(program: bytes, architecture: int, number: int, first: int = 0) -> int:
    """The errno that a call gets; 0 if it is allowed."""
    data = struct.pack("=IIQ6Q", number, architecture, 0, first, 0, 0, 0, 0, 0)
    at = value = 0
    while True:
        code, if_true, if_false, operand = struct.unpack_from("=HBBI", program, 8 * at)
        at += 1
        if code == 0x20:
            (value,) = struct.unpack_from("=I", data, operand)
        elif code in (0x15, 0x35):
            at += if_true if (value == operand if code == 0x15 else value >= operand) else if_false
        else:
            assert code == 0x06
            return ALLOWED if operand == 0x7FFF0000 else operand & 0xFFFF


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_keyrings_and_ways_round_the_filter_are_missing(machine: str) -> None:
    program, architecture = build_filter(machine), ARCHITECTURES[machine]
    keyctl, open_at, new_socket = (250, 257, 41) if machine == "x86_64" else (219, 56, 198)
    assert run(program, architecture, keyctl) == errno.ENOSYS
    assert run(program, architecture, 425) == errno.ENOSYS  # io_uring_setup
    assert run(program, architecture, open_at) == ALLOWED
    for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, 16):
        assert run(program, architecture, new_socket, family) == ALLOWED
    for family in (0, 17, 40):  # AF_PACKET, AF_VSOCK
        assert run(program, architecture, new_socket, family) == errno.EAFNOSUPPORT
    # The kernel looks at 32 bits of the family, and so must the filter.
    assert run(program, architecture, new_socket, (1 << 32) | 40) == errno.EAFNOSUPPORT


def test_calls_of_another_table_are_missing() -> None:
    program = build_filter("x86_64")
    assert run(program, 0x40000003, 3) == errno.ENOSYS  # i386
    assert run(program, ARCHITECTURES["x86_64"], 0x40000000 | 250) == errno.ENOSYS  # x32


def test_an_unknown_processor_has_no_filter() -> None:
    assert build_filter("m68k") == b""
    with inherited_filter(["bwrap", "--", "x"], b"") as start:
        assert start == (["bwrap", "--", "x"], ())


def test_the_command_names_the_descriptor_of_the_filter() -> None:
    program = build_filter("x86_64")
    with inherited_filter(["bwrap", "--", "x"], program) as (words, (descriptor,)):
        assert words == ["bwrap", "--seccomp", str(descriptor), "--", "x"]
        assert os.read(descriptor, 65536) == program
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
