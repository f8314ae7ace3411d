"""The variants of TNN in the ablations: what each row changes in its recipe. The row without changes is TNN itself."""

from paper.harness.trial import Scale

Variants = dict[str, tuple[str, ...]]

_DECAYS: Variants = {
    "0.99": (),
    "0.9": ("model.decay=0.9",),
    "0.95": ("model.decay=0.95",),
    "0.999": ("model.decay=0.999",),
    "1": ("model.decay_mode=none",),
    "learned": ("model.decay_mode=learned",),
}

# By experiment and scale. Where a change adds or removes parameters, depth and width compensate.
VARIANTS: dict[str, dict[Scale, Variants]] = {
    "ablation-structure": {
        "mini": {
            "gtu+glu": (),
            "gtu": ("model.mixer=gtu", "model.num_hidden_layers=6"),
            "attention+glu": (
                "model.mixer=attention",
                "model.num_hidden_layers=5",
                "model.glu_expansion=1.25",
            ),
        },
        "paper": {
            "gtu+glu": (),
            "gtu": ("model.mixer=gtu", "model.num_hidden_layers=9"),
            "attention+glu": ("model.mixer=attention", "model.num_hidden_layers=8", "model.glu_expansion=2"),
        },
    },
    "ablation-rpe-input": {
        "mini": {
            "integer": (),
            "normalized": ("model.rpe_input=normalized",),
            "sincos": ("model.rpe_input=sincos",),
        },
        "paper": {
            "integer": (),
            "normalized": ("model.rpe_input=normalized", "model.decay_mode=none"),
            "sincos": ("model.rpe_input=sincos", "model.decay_mode=none"),
        },
    },
    "ablation-rpe": {
        "mini": {
            "rpe": (),
            "free": (
                "model.coefficients=free",
                "model.max_lags=512",
                "model.num_hidden_layers=3",
                "model.gtu_expansion=1.5",
            ),
            "free, as deep": ("model.coefficients=free", "model.max_lags=512"),
        },
        "paper": {
            "rpe": (),
            "free": ("model.coefficients=free", "model.max_lags=512", "model.num_hidden_layers=5"),
            "free, as deep": ("model.coefficients=free", "model.max_lags=512"),
        },
    },
    "ablation-decay": {"mini": _DECAYS, "paper": _DECAYS},
}
