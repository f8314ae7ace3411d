"""Presets: complete configurations by name. Each mixer registers those that only it has."""

from typing import Any, NamedTuple

Fields = dict[str, Any]


class Preset(NamedTuple):
    """A configuration of the mixer that registers it."""

    name: str
    fields: Fields  # of TNNConfig, or of TNNImageConfig
    image: bool = False
