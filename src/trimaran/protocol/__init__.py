"""The protocol, pure: bytes and headers in, typed messages out, and back. No I/O, no clock, no randomness of its own."""
