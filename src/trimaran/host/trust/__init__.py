"""Whom a host believes: the parts that assume that a file or a server may turn on the person who uses it.

project.py     the projects' files that a person trusts      untrusted.py   what such a file would do, for the question
"""

from trimaran.lazy_names import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .project import UNTRUSTED as UNTRUSTED, Trust as Trust
    from .untrusted import (
        Untrusted as Untrusted,
        configured_names as configured_names,
        trust_digest as trust_digest,
        untrusted_in as untrusted_in,
    )
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "project": "UNTRUSTED Trust",
            "untrusted": "Untrusted configured_names trust_digest untrusted_in",
        },
    )
