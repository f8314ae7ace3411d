"""Names of earlier versions in configurations, so that every saved model still loads."""

from typing import Any

STRUCTURES = {"gtu+glu": "tnn", "gtu": "gtu", "attention+glu": "attention"}  # of 0.1, now mixers
OPTIONS = {"faithful": "as_published"}


def current_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a configuration with the names of this version.

    >>> current_fields({"structure": "gtu", "mixer": "tnn"})
    {'mixer': 'gtu'}
    >>> current_fields({"mixer": "s4", "mixer_options": {"faithful": True}})
    {'mixer': 's4', 'mixer_options': {'as_published': True}}
    """
    fields = dict(fields)
    structure = fields.pop("structure", None)
    if structure is not None:
        if not isinstance(structure, str) or structure not in STRUCTURES:
            raise ValueError(f"structure must be one of {', '.join(map(repr, STRUCTURES))}; got {structure!r}")
        if fields.get("mixer", "tnn") == "tnn" and structure != "gtu+glu":
            fields["mixer"] = STRUCTURES[structure]
    if isinstance(options := fields.get("mixer_options"), dict):
        fields["mixer_options"] = {OPTIONS.get(name, name): value for name, value in options.items()}
    return fields
