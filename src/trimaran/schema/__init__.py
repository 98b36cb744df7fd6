"""Schemas: from Python signatures, for validation, and for the arguments models send.

Pure functions over types and values: no I/O, no event loop, nothing of the protocol.
"""

from .convert import ConversionError, Decoder, decoder_of, enc_hook, schema_of, to_jsonable
from .docstring import Doc, parse_docstring
from .repair import repair
from .argument_errors import ArgumentError
from .signature import ExplicitArguments, Signature, compile_signature, inspect_handler, markers_of
from .validate import Schema, Validator, Violation, check_object_schema, validate

__all__ = [
    "ArgumentError",
    "ConversionError",
    "Decoder",
    "Doc",
    "ExplicitArguments",
    "Schema",
    "Signature",
    "Validator",
    "Violation",
    "check_object_schema",
    "compile_signature",
    "decoder_of",
    "enc_hook",
    "inspect_handler",
    "markers_of",
    "parse_docstring",
    "repair",
    "schema_of",
    "to_jsonable",
    "validate",
]
