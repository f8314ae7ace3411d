"""TNN: the gated Toeplitz unit as a mixer, with the paper's channel mixer or, as an ablation, alone."""

from tnn.layers.gated import GatedToeplitzUnit
from tnn.mixers.registry import register_mixer

SMALL = {"rpe_size": 8, "rpe_num_layers": 1}

register_mixer("tnn", GatedToeplitzUnit, small_options=SMALL)
register_mixer("gtu", GatedToeplitzUnit, channel_mixer=None, small_options=SMALL)
