"""Docstrings in the three styles people write."""

import pytest

from trimaran.schema import Doc, parse_docstring


@pytest.mark.parametrize("text", [None, ""])
def test_no_text_is_an_empty_doc(text):
    assert parse_docstring(text) == Doc("", {}, None)


def test_plain_text_is_all_summary():
    assert parse_docstring("Adds.\n\n    More: about it.\n    ") == Doc("Adds.\n\nMore: about it.", {}, None)


def test_google_style_is_read():
    doc = parse_docstring(
        """Finds things.

        In more words.

        Args:
            query (str): what to look for,
                in any language
            limit (dict[str, int], optional): how many
            *rest: the others

        Returns:
            list[str]: the names found

        Raises:
            ValueError: never
        """
    )
    assert doc.summary == "Finds things.\n\nIn more words."
    assert doc.params == {
        "query": "what to look for, in any language",
        "limit": "how many",
        "rest": "the others",
    }
    assert doc.returns == "the names found"


def test_google_style_with_the_body_at_odd_margins_is_read():
    doc = parse_docstring("Sum.\n  Args:\n      a: first\n      b: second\n  Returns:\n      the sum: a plus b")
    assert doc == Doc("Sum.", {"a": "first", "b": "second"}, "the sum: a plus b")


def test_a_colon_in_a_description_does_not_start_a_parameter():
    doc = parse_docstring("Do.\n\nArgs:\n    a: one of:\n        x: this\n        y: that\n    b: last")
    assert doc.params == {"a": "one of: x: this y: that", "b": "last"}


def test_prose_after_a_google_section_belongs_to_nobody():
    doc = parse_docstring("Do.\n\nArgs:\n    a: first\n\nAfterword.\n")
    assert doc == Doc("Do.", {"a": "first"}, None)


def test_numpy_style_is_read():
    doc = parse_docstring(
        """Finds things.

        Parameters
        ----------
        query : str
            what to look for,
            in any language
        a, b : int
            both
        bare

        Returns
        -------
        list of str
            the names found

        Notes
        -----
        Slow.
        """
    )
    assert doc.summary == "Finds things."
    assert doc.params == {"query": "what to look for, in any language", "a": "both", "b": "both", "bare": ""}
    assert doc.returns == "the names found"


def test_numpy_returns_without_a_description_is_the_type():
    assert parse_docstring("F.\n\nReturns\n-------\nint\n").returns == "int"


def test_sphinx_style_is_read():
    doc = parse_docstring(
        """Finds things.

        :param str query: what to look for,
            in any language
        :param limit: how many
        :type limit: int
        :returns: the names found
        :rtype: list
        :raises ValueError: never
        """
    )
    assert doc.summary == "Finds things."
    assert doc.params == {"query": "what to look for, in any language", "limit": "how many"}
    assert doc.returns == "the names found"


def test_styles_may_be_mixed():
    doc = parse_docstring("Do.\n\nArgs:\n    a: first\n\n:param b: second\n:return: all")
    assert doc == Doc("Do.", {"a": "first", "b": "second"}, "all")


def test_a_section_word_inside_prose_is_prose():
    text = "Note: this deletes files.\nReturns nothing at all."
    assert parse_docstring(text) == Doc(text, {}, None)


def test_a_colon_role_at_the_start_of_a_line_is_prose():
    text = ":class:`X` does it."
    assert parse_docstring(text).summary == text


def test_attributes_of_a_class_are_params():
    assert parse_docstring("A thing.\n\nAttributes:\n    x: the x").params == {"x": "the x"}
