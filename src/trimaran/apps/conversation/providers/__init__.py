"""Models of several providers, each behind one small driver: a request goes out, text and calls come in.

A driver knows its provider's wire shapes and its library, which is imported when the driver is made and not before. It has no
loop, no memory and no tools: `trimaran.apps.conversation.model` has. `driver.py` says what a driver is.
"""
