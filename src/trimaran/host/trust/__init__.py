"""Whom a host believes: the parts that assume that a file or a server may turn on the person who uses it.

trusted_files.py the projects' files that a person trusts      untrusted.py   what such a file would do, for the question
pins.py        the definitions that a person agreed to       pins_diff.py   two definitions, word by word
review.py      what a server lists: offered, held, asked about
scan_rules.py  the table of words to look for                scan.py        looks at texts and definitions; cleans them
hidden_text.py characters that nobody sees                   shadowing.py   names that squat on another server's
scanner.py     the scan of one host, and what it found       nested_texts.py all texts of a value
touches.py     what a tool touches: a table                  flow.py        what met in a conversation
"""

from trimaran.lazy_names import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .flow import Arrival as Arrival, DataFlow as DataFlow
    from .pins import Pins as Pins, PinsDamaged as PinsDamaged, PinsUnwritable as PinsUnwritable
    from .trusted_files import UNTRUSTED as UNTRUSTED, Trust as Trust
    from .review import DefinitionHeld as DefinitionHeld, HeldDefinition as HeldDefinition
    from .scan import (
        ScanFinding as ScanFinding,
        clean_text as clean_text,
        scan_text as scan_text,
        scan_tool as scan_tool,
    )
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
            "flow": "Arrival DataFlow",
            "pins": "Pins PinsDamaged PinsUnwritable",
            "trusted_files": "UNTRUSTED Trust",
            "review": "DefinitionHeld HeldDefinition",
            "scan": "ScanFinding clean_text scan_text scan_tool",
            "untrusted": "Untrusted configured_names trust_digest untrusted_in",
        },
    )
