"""All experiments, by name: those of the paper, and studies of our own, which its report does not judge."""

from paper.bidirectional.glue import GLUE_EXPERIMENT
from paper.bidirectional.kernels import KERNELS_EXPERIMENT
from paper.efficiency.complexity import COMPLEXITY_EXPERIMENT
from paper.efficiency.overview import OVERVIEW_EXPERIMENT
from paper.efficiency.speed import SPEED_EXPERIMENT
from paper.harness.experiment import Experiment
from paper.images import IMAGE_EXPERIMENT
from paper.improved.enwik8 import ENWIK8_STUDY
from paper.improved.ideas import IDEAS_STUDY
from paper.improved.lra import LRA_STUDY
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
STUDIES: dict[str, Experiment] = {study.name: study for study in (ENWIK8_STUDY, LRA_STUDY, IDEAS_STUDY)}


def find_experiment(name: str) -> Experiment:
    """An experiment by its name.

    >>> from paper.catalogue import find_experiment
    >>> find_experiment("alm").about
    'Autoregressive language modelling: perplexity of every method.'
    """
    known = EXPERIMENTS | STUDIES
    if name in known:
        return known[name]
    raise ValueError(f"no experiment {name!r}; {did_you_mean(name, known, others=', '.join(known))}")
