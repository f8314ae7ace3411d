"""Records outlive names: settings of old records, in the names of today."""

from typing import Any

from tnn.models.migration import current_fields


def migrate(settings: dict[str, Any]) -> dict[str, Any]:
    """The same settings with today's names, wherever a model is described. Settings of today stay as they are.

    >>> from paper.harness.migration import migrate
    >>> migrate({"model": {"structure": "gtu", "decay": 0.9}})
    {'model': {'decay': 0.9, 'mixer': 'gtu'}}
    >>> migrate({"of": {"recipe": {"model": {"mixer": "s4", "mixer_options": {"faithful": True}}}}})
    {'of': {'recipe': {'model': {'mixer': 's4', 'mixer_options': {'as_published': True}}}}}
    """
    return {
        key: value if not isinstance(value, dict) else current_fields(value) if key == "model" else migrate(value)
        for key, value in settings.items()
    }
