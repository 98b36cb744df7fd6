"""Programs for people, built on the library. Nothing in the library imports them."""
