"""The methods that the paper compares TNN with, each a token mixer in a file of its own, behind one registry."""

from tnn._lazy import public_names
from tnn.mixers.registry import METHODS, Method, find_method

__all__ = ["METHODS", "Method", "find_method"]

__dir__ = public_names(__name__)
