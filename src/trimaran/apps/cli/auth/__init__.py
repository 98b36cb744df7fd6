"""`trimaran auth`: logins on servers, kept for the other commands; and stored forms of secrets, for a server of yours.

login.py   log in as a person, and keep it        logout.py   withdraw and forget
kept.py    which logins there are                 hash.py     keys and passwords as a server stores them
"""

from __future__ import annotations

from typing import Final

import click

from trimaran.apps.cli.command_groups import LazyGroup

__all__ = ["command"]

# name -> (where it lives, what the list of commands says); `hash` needs nothing of what `login` needs
COMMANDS: Final = {
    "login": ("trimaran.apps.cli.auth.login", "Log in to a server, and keep the login."),
    "logout": ("trimaran.apps.cli.auth.logout", "Withdraw a login, and forget it."),
    "list": ("trimaran.apps.cli.auth.stored", "List the logins that are kept."),
    "hash": ("trimaran.apps.cli.auth.hash", "Make the stored form of an API key or a password."),
}


@click.group("auth", cls=LazyGroup, table=COMMANDS, short_help="Log in to servers, and make stored forms of secrets.")
def command() -> None:
    """Log in to servers, see and end logins, and make the stored forms of keys and passwords.

    `list`, `call`, `read`, `prompt` and `doctor` use the login for their URL by themselves.
    """
