"""The rows of the study: what each changes in TNN as published, and the rivals."""

from paper.harness.mixers import is_own_mixer

SPREAD = "[0.5, 0.97]"  # half-lives of 1 to 23 lags
RIVALS = ("gss", "s4")
PUBLISHED = "tnn"

# By row, as keys of the model section. Where a change adds parameters, sizes compensate.
VARIANTS: dict[str, tuple[str, ...]] = {
    PUBLISHED: (),
    "sine": ("rpe_activation=sin", "decay=0.9"),
    "spread": (f"decay={SPREAD}",),
    "learned-spread": (f"decay={SPREAD}", "decay_mode=learned"),
    "sine-spread": ("rpe_activation=sin", f"decay={SPREAD}"),
    "sine-learned-spread": ("rpe_activation=sin", f"decay={SPREAD}", "decay_mode=learned"),
}
ROWS = (*VARIANTS, *RIVALS)


def model_changes(row: str, preset: str) -> tuple[str, ...]:
    """What a row changes in a recipe whose model is the TNN of `preset`; PRESET-RIVAL is the preset of a rival."""
    if row in VARIANTS:
        return ("model.initializer=torch", *(f"model.{change}" for change in VARIANTS[row]))
    return (f"model.mixer={row}",) if is_own_mixer(row) else (f"model.preset={preset}-{row}",)
