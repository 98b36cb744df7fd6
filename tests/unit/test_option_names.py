"""A misspelt option: the message names the nearest one and all of them."""

from __future__ import annotations

import pytest

from trimaran.errors import ConfigError, DeclarationError
from trimaran.option_names import check_options


def test_known_options_pass() -> None:
    check_options({"name": 1}, ("title", "name"), "a tool")


def test_the_nearest_option_and_all_of_them_are_named() -> None:
    with pytest.raises(ConfigError) as error:
        check_options(["name", "timout"], ("timeout", "name"), "a tool")
    assert str(error.value) == "unknown option 'timout'; did you mean 'timeout'? a tool takes name, timeout"


def test_nothing_is_suggested_where_nothing_is_near() -> None:
    with pytest.raises(DeclarationError) as error:
        check_options(["xyz"], ("timeout", "name"), "a tool", DeclarationError)
    assert str(error.value) == "unknown option 'xyz'; a tool takes name, timeout"
