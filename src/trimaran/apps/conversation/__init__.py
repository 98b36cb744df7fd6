"""A conversation with a model that may use the tools of a host: for the applications, `trimaran console` and `trimaran ask`.

Importing this loads nothing: the loop is in `model.py`, what a model is told of in `offer.py`, providers in `providers/`.
"""
