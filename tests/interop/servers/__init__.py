"""Servers that other people's libraries make, and what our client must see on them.

`*_server.*` are run by the peers' own interpreters; `places.py` starts them; `contract.py` and
`lifecycle.py` hold the checks.
"""

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in ("contract", "lifecycle", "places")))
