"""Learning rates over the steps of a run."""

import math
from collections.abc import Callable

from tnn.training.schema import Training


def learning_rate(training: Training, steps: int) -> Callable[[int], float]:
    """The learning rate as a function of the update, 0 to steps - 1.

    During the warm-up it rises linearly from `warmup_from` to the peak. After that:
    - inverse-sqrt: peak * sqrt(warmup / step);
    - polynomial: it falls to `final_learning_rate` at the last step, as (1 - progress)^power;
    - cosine: it falls to `final_learning_rate` along half a wave. If the run is longer than `schedule_steps`, the wave
      continues and the learning rate rises again;
    - constant: the peak.

    >>> from tnn.training import load_recipe
    >>> from tnn.training.schedules import learning_rate
    >>> rate = learning_rate(load_recipe("wikitext103-alm").training, 50_000)
    >>> rate(0), rate(4000), rate(16_000)
    (1e-07, 0.0005, 0.00025)
    """
    warmup = warmup_steps(training, steps)
    peak, end = training.learning_rate, training.final_learning_rate
    end_step = training.schedule_steps or steps

    def after_warmup(step: int) -> float:
        progress = (step - warmup) / max(1, end_step - warmup)
        match training.schedule:
            case "inverse-sqrt":
                return peak * math.sqrt(warmup / step)
            case "polynomial":
                return end + (peak - end) * max(0.0, 1 - progress) ** training.power
            case "cosine":
                return end + (peak - end) * (1 + math.cos(math.pi * progress)) / 2
            case _:
                return peak

    def rate(step: int) -> float:
        if step < warmup:
            return training.warmup_from + (peak - training.warmup_from) * step / warmup
        return after_warmup(step)

    return rate


def warmup_steps(training: Training, steps: int) -> int:
    """From `warmup_steps`, or from `warmup_ratio` and the number of all steps."""
    if training.warmup_ratio is not None:
        return round(training.warmup_ratio * steps)
    return training.warmup_steps or 0
