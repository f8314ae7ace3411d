"""All experiments, by name."""

from difflib import get_close_matches

from tnn.experiments.reproduction.arena.longer import ARENA_LONGER
from tnn.experiments.reproduction.arena.lra import LRA, LRA_LARGE
from tnn.experiments.reproduction.bidirectional.glue import GLUE
from tnn.experiments.reproduction.bidirectional.kernels import KERNELS
from tnn.experiments.reproduction.efficiency.complexity import COMPLEXITY
from tnn.experiments.reproduction.efficiency.overview import OVERVIEW
from tnn.experiments.reproduction.efficiency.speed import SPEED
from tnn.experiments.reproduction.harness.experiment import Experiment
from tnn.experiments.reproduction.language.ablations import DECAY, RPE, RPE_INPUT, STRUCTURE
from tnn.experiments.reproduction.language.alm import ALM
from tnn.experiments.reproduction.language.extrapolation import EXTRAPOLATION
from tnn.experiments.reproduction.language.longer import LONGER
from tnn.experiments.reproduction.pictures import IMAGE

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        *(ALM, LONGER, EXTRAPOLATION, GLUE, LRA, LRA_LARGE, ARENA_LONGER, IMAGE, KERNELS),
        *(STRUCTURE, RPE_INPUT, RPE, DECAY, COMPLEXITY, SPEED, OVERVIEW),
    )
}


def find_experiment(name: str) -> Experiment:
    """An experiment by its name.

    >>> from tnn.experiments.reproduction.catalogue import find_experiment
    >>> find_experiment("alm").about
    'Autoregressive language modelling: perplexity of every method.'
    """
    if name in EXPERIMENTS:
        return EXPERIMENTS[name]
    close = get_close_matches(name, EXPERIMENTS, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(EXPERIMENTS)}"
    raise ValueError(f"no experiment {name!r}; {hint}")
