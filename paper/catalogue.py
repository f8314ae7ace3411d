"""All experiments, by name."""

from paper.bidirectional.glue import GLUE_EXPERIMENT
from paper.bidirectional.kernels import KERNELS_EXPERIMENT
from paper.efficiency.complexity import COMPLEXITY_EXPERIMENT
from paper.efficiency.overview import OVERVIEW_EXPERIMENT
from paper.efficiency.speed import SPEED_EXPERIMENT
from paper.harness.experiment import Experiment
from paper.images import IMAGE_EXPERIMENT
from paper.language.ablations import DECAY_EXPERIMENT, RPE_EXPERIMENT, RPE_INPUT_EXPERIMENT, STRUCTURE_EXPERIMENT
from paper.language.alm import ALM_EXPERIMENT
from paper.language.extrapolation import EXTRAPOLATION_EXPERIMENT
from paper.language.longer import ALM_LONGER_EXPERIMENT
from paper.lra.longer import LRA_LONGER_EXPERIMENT
from paper.lra.lra import LRA_EXPERIMENT, LRA_LARGE_EXPERIMENT
from tnn._names import did_you_mean

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        ALM_EXPERIMENT,
        ALM_LONGER_EXPERIMENT,
        EXTRAPOLATION_EXPERIMENT,
        GLUE_EXPERIMENT,
        LRA_EXPERIMENT,
        LRA_LARGE_EXPERIMENT,
        LRA_LONGER_EXPERIMENT,
        IMAGE_EXPERIMENT,
        KERNELS_EXPERIMENT,
        STRUCTURE_EXPERIMENT,
        RPE_INPUT_EXPERIMENT,
        RPE_EXPERIMENT,
        DECAY_EXPERIMENT,
        COMPLEXITY_EXPERIMENT,
        SPEED_EXPERIMENT,
        OVERVIEW_EXPERIMENT,
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
    names = ", ".join(EXPERIMENTS)
    raise ValueError(f"no experiment {name!r}; {did_you_mean(name, EXPERIMENTS, others=names)}")
