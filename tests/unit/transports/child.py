"""The child of `test_process.py`, in all its moods: `python child.py MOOD [argument ...]`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time


def say(line: bytes, fd: int = 1) -> None:
    view = memoryview(line)
    while view:
        view = view[os.write(fd, view) :]


def echo() -> None:
    while line := sys.stdin.buffer.readline():
        say(line)


def linger() -> None:
    while True:
        time.sleep(3600)


def about(*_: str) -> None:
    "Say where and with what it was started, then echo."
    say(
        json.dumps({"env": dict(os.environ), "cwd": os.getcwd(), "args": sys.argv[2:], "pid": os.getpid()}).encode()
        + b"\n"
    )
    echo()


def die(code: str, *lines: str) -> None:
    "Write these lines on stderr and exit."
    for line in lines:
        say(line.encode() + b"\n", 2)
    sys.exit(int(code))


def die_by(number: str) -> None:
    os.kill(os.getpid(), int(number))
    linger()


def stubborn(*ignored: str) -> None:
    "Ignore EOF, and these signals; say so once it is true."
    for number in ignored:
        signal.signal(int(number), signal.SIG_IGN)
    say(b'{"ready":true}\n')
    with contextlib.suppress(KeyboardInterrupt):
        linger()


def breed(*words: str) -> None:
    "Start one that ignores EOF and SIGTERM, say who it is, and echo; with `escape` it leaves the group, with `die` we leave it alone."
    inner = subprocess.Popen([sys.executable, "-S", __file__, "stubborn", "15"], start_new_session="escape" in words)
    inner_says = {"child": inner.pid}
    say(json.dumps(inner_says).encode() + b"\n")
    if "die" in words:
        os.kill(os.getpid(), signal.SIGKILL)
    echo()


def flood(size: str) -> None:
    "So many bytes on stderr, in short lines, for each line of stdin; then the line itself."
    chunk = b"".join(b"%079d\n" % number for number in range(1000))
    while line := sys.stdin.buffer.readline():
        for _ in range(int(size) // len(chunk)):
            say(chunk, 2)
        say(line)


def shout(*lines: str) -> None:
    "Write these on stdout as they are, escapes like \\n and \\xff interpreted, then exit."
    for line in lines:
        say(line.encode("latin-1").decode("unicode_escape").encode("latin-1"))


def mutter(*lines: str) -> None:
    "The same on stderr, then echo."
    for line in lines:
        say(line.encode("latin-1").decode("unicode_escape").encode("latin-1"), 2)
    echo()


def big(size: str) -> None:
    "An answer of this size for each line, with the id last."
    while line := sys.stdin.buffer.readline():
        say(b'{"result":"' + b"x" * int(size) + b'","id":' + line.strip() + b"}\n")


def deaf() -> None:
    "Never read stdin, until SIGUSR1 comes; then echo."
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    say(b'{"ready":true}\n')
    signal.sigwait([signal.SIGUSR1])
    echo()


def shut(*pipes: str) -> None:
    "Close these descriptors and go on."
    if "1" in pipes:
        say(b'{"ready":true}\n')
    for fd in pipes:
        os.close(int(fd))
    if "1" not in pipes:
        say(b'{"ready":true}\n')
    if "0" in pipes or "1" in pipes:
        linger()
    echo()


MOODS = (about, big, breed, deaf, die, die_by, echo, flood, linger, mutter, shout, shut, stubborn)

if __name__ == "__main__":
    {mood.__name__: mood for mood in MOODS}[sys.argv[1]](*sys.argv[2:])
