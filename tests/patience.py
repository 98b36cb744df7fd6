"""How long a test waits for what must come.

It comes within milliseconds, or the test fails: so this costs nothing, and a machine that is busy with much else has time.
A wait for what must *not* come is as short as it likes. An assertion on how long something took leaves room for the same
machine: five times what it should take, or it counts work instead.
"""

PATIENCE = 30.0  # seconds
