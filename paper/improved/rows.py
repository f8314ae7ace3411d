"""The rows of the study: what each changes in TNN as published, and the rivals."""

from typing import Any

from tnn.mixers.tnn import RECOMMENDED_FIELDS

PUBLISHED, RECOMMENDED = "tnn", "recommended"
RIVALS = ("gss", "s4")
SPREAD = {"decay": [0.5, 0.97], "decay_mode": "learned"}  # half-lives of 1 to 23 lags, where they start
SINE = {"rpe_activation": "sin"}

# By row: fields of the configuration. Where a change adds parameters, sizes compensate.
VARIANTS: dict[str, dict[str, Any]] = {
    PUBLISHED: {},
    "sine": {**SINE, "decay": 0.9, "decay_mode": "fixed"},
    "spread": SPREAD,
    "input-gate": {"input_gate": True},
    "combination": {**SINE, **SPREAD, "input_gate": True},
    "sine-spread": {**SINE, **SPREAD},  # the base of the study of ideas
    RECOMMENDED: RECOMMENDED_FIELDS,
}
ROWS = (PUBLISHED, "sine", "spread", "input-gate", "combination", RECOMMENDED, *RIVALS)
# In Long-Range Arena the small models of the published TNN and of GSS have two layers, those of S4 four. The
# recommended TNN has three there, with a narrower GLU; so has a second row of GSS, with a narrower gate. All have the
# same number of parameters.
DEEPER = {"num_hidden_layers": 3, "glu_expansion": 0.5}
DEEPER_RIVAL = "gss-deeper"
DEEPER_GSS = {"num_hidden_layers": 3, "mixer_options": {"expansion": 1.75, "state_channels": 16, "state_size": 32}}


def variant_fields(row: str, expansion: float) -> dict[str, Any]:
    """The changes of a variant in a model whose GTU has this expansion; an input gate is paid for by the width."""
    fields = VARIANTS[row]
    return fields | ({"gtu_expansion": 0.75 * expansion} if fields.get("input_gate") else {})
