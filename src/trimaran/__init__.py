"""Trimaran."""
