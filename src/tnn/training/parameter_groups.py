"""Groups of parameters for the optimizer: modules may ask for their own learning rate or weight decay."""

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

from torch import nn

from tnn._names import did_you_mean

KEYS = ("learning_rate", "weight_decay")


def parameter_groups(model: nn.Module, *, learning_rate: float, weight_decay: float) -> list[dict[str, Any]]:
    """What torch.optim.AdamW takes in place of `model.parameters()`.

    A module with a method `parameter_settings()` names parameters, relative to itself, that are trained differently:
    `{"log_step": {"weight_decay": 0.0, "learning_rate": 1e-3}}`; each key may be missing. If an outer module names the
    same parameter, its values count. All other parameters are in the first group, in the order of `model.parameters()`.
    Parameters without a gradient are left out.

    Args:
        model: any module.
        learning_rate: of the parameters for which no other is given.
        weight_decay: of the parameters for which no other is given.

    >>> from torch import nn
    >>> from tnn.training.parameter_groups import parameter_groups
    >>> class Scaled(nn.Linear):
    ...     def parameter_settings(self):
    ...         return {"bias": {"weight_decay": 0.0}}
    >>> groups = parameter_groups(nn.Sequential(nn.Linear(2, 2), Scaled(2, 2)), learning_rate=0.1, weight_decay=0.01)
    >>> [(len(group["params"]), group.get("lr"), group.get("weight_decay")) for group in groups]
    [(3, None, None), (1, 0.1, 0.0)]
    """
    default = (learning_rate, weight_decay)
    settings = _settings(model)
    groups: dict[tuple[float, float], list[nn.Parameter]] = {default: []}
    for parameter in model.parameters():
        if parameter.requires_grad:
            own = settings.get(id(parameter), {})
            values = (own.get("learning_rate", learning_rate), own.get("weight_decay", weight_decay))
            groups.setdefault(values, []).append(parameter)
    first = {"params": groups.pop(default)}  # the first even if empty: its learning rate is logged
    return [first, *({"params": params, "lr": rate, "weight_decay": decay} for (rate, decay), params in groups.items())]


def _settings(model: nn.Module) -> dict[int, dict[str, float]]:
    """By the id of a parameter: a shared one has several names."""
    settings: dict[int, dict[str, float]] = {}
    for path, module in reversed(list(model.named_modules())):  # inner modules first: outer ones overrule them
        if not hasattr(module, "parameter_settings"):
            continue
        where = f"parameter_settings() of {type(module).__name__}" + (f" at {path}" if path else "")
        for name, values in module.parameter_settings().items():
            parameter = _find_parameter(module, name, where)
            settings.setdefault(id(parameter), {}).update(_checked(values, f"{where}: {name}"))
    return settings


def _find_parameter(module: nn.Module, name: str, where: str) -> nn.Parameter:
    try:
        return module.get_parameter(name)
    except AttributeError:
        known = [known for known, _ in module.named_parameters()]
        raise ValueError(f"{where}: no parameter {name!r}; {did_you_mean(name, known)}") from None


def _checked(values: Mapping[str, float], where: str) -> dict[str, float]:
    for key, value in values.items():
        if key not in KEYS:
            raise ValueError(f"{where}: unknown key {key!r}; {did_you_mean(key, KEYS)}")
        if isinstance(value, bool) or not isinstance(value, Real) or not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{where}: {key} must be a number, 0 or more; got {value!r}")
    return dict(values)
