"""A causal model that decodes in constant time and state: kernels replaced by sums of decaying oscillations."""

import copy
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from tnn._checks import check_choice, check_positive, check_tolerance
from tnn.layers import ToeplitzOperator
from tnn.models.configuration import TNNConfig
from tnn.streaming import Realization, realize, realize_by_dft

METHODS = ("poles", "dft")


class LayerReport(NamedTuple):
    """How well the state space of one layer replaces its operator."""

    layer: int
    states: int  # poles, conjugates counted: numbers per channel, beside the newest inputs
    history: int | None  # inputs per channel that exact decoding keeps; None: all
    residual: float  # worst channel's L1 difference of the kernels, relative to the kernel's own L1 norm
    bound: float  # of |y - y of the exact operator| for inputs up to 1, in any channel, at any length


class LargerStateSpace(ValueError):
    """A state space within the tolerance would be larger than what exact decoding keeps."""


def convert(model: Any, tolerance: float, max_states: int | None, method: str, length: int | None) -> Any:
    """See TNNForCausalLM.to_state_space."""
    check_choice("method", method, METHODS)
    check_tolerance("tolerance", tolerance)
    if max_states is not None:
        check_positive("max_states", max_states, at_least=2)  # poles come in pairs
    _refuse_adapters(model)
    operators = _convertible_operators(model)
    if method == "dft":
        if length is None:
            raise ValueError('method="dft" needs a length: how many tokens the state space is for')
        check_positive("length", length)
        realizations = {i: realize_by_dft(_kernel(i, operator, length)) for i, operator in operators.items()}
        rate = 1.0
    else:
        rate = max(operator.decay.slowest_rate() for operator in operators.values())
        if rate >= 1:
            raise ValueError("kernels without decay do not compress into few poles: decay must be below 1")
        realizations = {i: _realize(i, op, rate, tolerance, max_states) for i, op in operators.items()}

    reaches = {i: operator.reach for i, operator in operators.items()}
    config = _converted_config(model.config, realizations, reaches, rate, length if method == "dft" else None)
    converted = type(model)(config).to(device=model.device, dtype=model.dtype)
    new = tuple(f"model.layers.{i}." for i in operators)
    kept = {k: v for k, v in model.state_dict().items() if not (k.startswith(new) and ".operator." in k)}
    missing, unexpected = converted.load_state_dict(kept, strict=False)
    assert not unexpected
    assert all(".operator.poles." in name for name in missing)
    converted.generation_config = copy.deepcopy(model.generation_config)
    for i, realization in realizations.items():
        converted.model.layers[i].operator.poles.float().load_state_dict(realization.kernel.state_dict())
    return converted.eval()


def _refuse_adapters(model: Any) -> None:
    """A converted model has the weights of its configuration, and would lose what an adapter adds to them."""
    with torch.device("meta"):
        plain = type(model)(model.config)
    if added := sorted(model.state_dict().keys() - plain.state_dict().keys()):
        raise ValueError(f"the model has an adapter, as {added[0]!r} tells: merge it first, with merge_and_unload()")


def _convertible_operators(model: Any) -> dict[int, ToeplitzOperator]:
    """The Toeplitz operators of the layers that have one; the other layers of a hybrid stay as they are."""
    operators = {i: o for i, o in enumerate(model.model.operators) if isinstance(o, ToeplitzOperator)}
    if not operators:
        names = ", ".join(repr(name) for name in dict.fromkeys(model.config.layer_mixers))
        raise ValueError(f"mixer {names} has no conversion to a state space: only TNN's operators have")
    if any(operator.depends_on_length for operator in operators.values()):
        raise ValueError('rpe_input="normalized" gives other coefficients at each length: there is no state space')
    if any(operator.poles is not None for operator in operators.values()):
        raise ValueError("the model is a state space already")
    return operators


def _realize(
    layer: int, operator: ToeplitzOperator, rate: float, tolerance: float, max_states: int | None
) -> Realization:
    reach = operator.reach
    if reach is None:
        raise ValueError(f"layer {layer} has no bound on its lags: bandwidth_tolerance must be above 0")
    kernel = _kernel(layer, operator, reach)
    most = max(2, reach - 1) if max_states is None else max_states
    realization = realize(kernel, rate, operator.truncation_bound().cpu(), tolerance=tolerance, max_states=most)
    if realization.residual <= tolerance:
        return realization
    best = f"the best of up to {most} states leaves a residual of {realization.residual:.1e}"
    if max_states is None:
        history = f"the exact history has {reach} inputs"
        raise LargerStateSpace(f"layer {layer}: {history}, and {best}: decode exactly, or allow a larger tolerance")
    above = f"above the tolerance of {tolerance:g}"
    raise ValueError(f"layer {layer}: {best}, {above}; allow more with max_states, or a larger tolerance")


def _kernel(layer: int, operator: ToeplitzOperator, lags: int) -> Tensor:
    """(lags, channels): zeros where the operator reaches no further."""
    kernel = operator.kernel(lags).detach().cpu()
    if not kernel.isfinite().all():
        raise ValueError(f"layer {layer} has coefficients that are not finite")
    return F.pad(kernel, (0, 0, 0, lags - len(kernel)))


def _converted_config(
    config: TNNConfig,
    realizations: dict[int, Realization],
    reaches: dict[int, int | None],
    rate: float,
    length: int | None,
) -> TNNConfig:
    converted = copy.deepcopy(config)
    converted.coefficients = "poles"
    converted.decay, converted.decay_mode = (rate, "fixed") if rate < 1 else (1.0, "none")
    converted.max_lags = length
    converted.state_space = [None] * config.num_hidden_layers
    for i, r in realizations.items():
        report = LayerReport(i, r.states, reaches[i], r.residual, float((r.error + r.rounding).max()))
        converted.state_space[i] = {"poles": len(r.kernel.poles), **report._asdict()}
    return converted
