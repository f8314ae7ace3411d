"""Configurations made in Python: any values give a configuration, or a ValueError or TypeError of one line."""

from dataclasses import fields
from random import Random

import pytest
from transformers import PreTrainedConfig

from tests.fuzz.judge import limited
from tests.fuzz.mutations import ODD, is_equal
from tnn.models import TNNConfig, TNNImageConfig, TNNSeriesConfig

CASES = 400
WORDS = ["tnn", "gtu", "attention", "layer", "rms", "batch", "relu", "silu", "none", "exp", "mean", "nope"]


@pytest.mark.slow
@pytest.mark.parametrize("config", [TNNConfig, TNNImageConfig, TNNSeriesConfig])
def test_configurations(config):
    names = sorted({field.name for field in fields(config)} - {field.name for field in fields(PreTrainedConfig)})
    for number in range(CASES):
        rng = Random(f"{config.__name__} {number}")
        values = {name: rng.choice([*ODD, *WORDS]) for name in rng.sample([*names, "nope"], rng.choice([1, 1, 2, 5]))}
        complaint = _complaint(config, values)
        assert not complaint, f"case {number}, {str(values)[:300]}: {complaint}"


def _complaint(config, values):
    try:
        with limited():
            made = config(**values)
    except (ValueError, TypeError) as error:
        return f"not one line: {error}" if "\n" in str(error) else ""
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    kept = {name: getattr(made, name) for name in values}
    return "" if is_equal(kept, values) else f"it holds {str(kept)[:300]}"
