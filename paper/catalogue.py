"""All experiments, by name."""

from difflib import get_close_matches

from paper.bidirectional.glue import GLUE
from paper.bidirectional.kernels import KERNELS
from paper.efficiency.complexity import COMPLEXITY
from paper.efficiency.overview import OVERVIEW
from paper.efficiency.speed import SPEED
from paper.harness.experiment import Experiment
from paper.images import IMAGE
from paper.language.ablations import DECAY, RPE, RPE_INPUT, STRUCTURE
from paper.language.alm import ALM
from paper.language.extrapolation import EXTRAPOLATION
from paper.language.longer import LONGER
from paper.lra.longer import ARENA_LONGER
from paper.lra.lra import LRA, LRA_LARGE

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        *(ALM, LONGER, EXTRAPOLATION, GLUE, LRA, LRA_LARGE, ARENA_LONGER, IMAGE, KERNELS),
        *(STRUCTURE, RPE_INPUT, RPE, DECAY, COMPLEXITY, SPEED, OVERVIEW),
    )
}


def find_experiment(name: str) -> Experiment:
    """An experiment by its name.

    >>> from paper.catalogue import find_experiment
    >>> find_experiment("alm").about
    'Autoregressive language modelling: perplexity of every method.'
    """
    if name in EXPERIMENTS:
        return EXPERIMENTS[name]
    close = get_close_matches(name, EXPERIMENTS, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(EXPERIMENTS)}"
    raise ValueError(f"no experiment {name!r}; {hint}")
