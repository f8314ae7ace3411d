"""Long-Range Arena: six tasks on long sequences, read as the paper does or as Skyformer does."""

from typing import TYPE_CHECKING

from tnn._lazy import lazy_attributes, public_names

if TYPE_CHECKING:
    from tnn.data.lra.batches import collate_lra
    from tnn.data.lra.loading import LraSets, load_lra
    from tnn.data.lra.tasks import LRA_TASKS, Flavour, LraTask, find_lra_task

__all__ = ["LRA_TASKS", "Flavour", "LraSets", "LraTask", "collate_lra", "find_lra_task", "load_lra"]

# Lazy: the worker processes of the generators import this package and must not load torch.
_HOMES = {
    "LRA_TASKS": "tnn.data.lra.tasks",
    "Flavour": "tnn.data.lra.tasks",
    "LraSets": "tnn.data.lra.loading",
    "LraTask": "tnn.data.lra.tasks",
    "collate_lra": "tnn.data.lra.batches",
    "find_lra_task": "tnn.data.lra.tasks",
    "load_lra": "tnn.data.lra.loading",
}
__getattr__ = lazy_attributes(__name__, _HOMES)
__dir__ = public_names(__name__)
