"""Training by recipes: tasks, evaluation, figures. `import tnn.training` is light: torch is imported on first use."""

from typing import TYPE_CHECKING

from tnn._lazy import lazy_attributes

if TYPE_CHECKING:
    from tnn.training.evaluation import evaluate, load_model
    from tnn.training.prediction import predict
    from tnn.training.recipe import list_recipes, load_recipe
    from tnn.training.run_recipe import Diverged, Interrupted, train
    from tnn.training.tasks.registry import find_task, list_tasks, register_task, unregister_task
    from tnn.training.tasks.task import Task

_HOMES = {
    "Diverged": "tnn.training.run_recipe",
    "Interrupted": "tnn.training.run_recipe",
    "Task": "tnn.training.tasks.task",
    "evaluate": "tnn.training.evaluation",
    "find_task": "tnn.training.tasks.registry",
    "list_recipes": "tnn.training.recipe",
    "list_tasks": "tnn.training.tasks.registry",
    "load_model": "tnn.training.evaluation",
    "load_recipe": "tnn.training.recipe",
    "predict": "tnn.training.prediction",
    "register_task": "tnn.training.tasks.registry",
    "train": "tnn.training.run_recipe",
    "unregister_task": "tnn.training.tasks.registry",
}

__all__ = [
    "Diverged",
    "Interrupted",
    "Task",
    "evaluate",
    "find_task",
    "list_recipes",
    "list_tasks",
    "load_model",
    "load_recipe",
    "predict",
    "register_task",
    "train",
    "unregister_task",
]
__getattr__ = lazy_attributes(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
