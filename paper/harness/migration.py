"""Records outlive names: settings of old records, in the names of today."""

from typing import Any

# `structure` was a field of the configuration: what a block is made of. Today two of its values are mixers.
STRUCTURES = {"gtu+glu": None, "gtu": "gtu", "attention+glu": "attention"}
MIXER_OPTIONS = {"faithful": "as_published"}  # old name: new name


def migrate(settings: dict[str, Any]) -> dict[str, Any]:
    """The same settings with today's names, wherever a model is described. Settings of today stay as they are.

    >>> from paper.harness.migration import migrate
    >>> migrate({"model": {"structure": "gtu", "decay": 0.9}})
    {'model': {'decay': 0.9, 'mixer': 'gtu'}}
    >>> migrate({"of": {"recipe": {"model": {"mixer": "s4", "mixer_options": {"faithful": True}}}}})
    {'of': {'recipe': {'model': {'mixer': 's4', 'mixer_options': {'as_published': True}}}}}
    """
    return {
        key: _migrate_model(value) if key == "model" else migrate(value) if isinstance(value, dict) else value
        for key, value in settings.items()
    }


def _migrate_model(model: Any) -> Any:
    if not isinstance(model, dict):
        return model
    fields = {key: value for key, value in model.items() if key != "structure"}
    structure = model.get("structure", "gtu+glu")
    if mixer := STRUCTURES.get(structure, structure):
        fields["mixer"] = mixer
    if options := fields.get("mixer_options"):
        fields["mixer_options"] = {MIXER_OPTIONS.get(key, key): value for key, value in options.items()}
    return fields
