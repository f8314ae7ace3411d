"""Tasks by the name that recipes use. This module is light: torch is imported when a task is first asked for."""

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

from tnn._names import did_you_mean

if TYPE_CHECKING:
    from tnn.training.tasks.task import Task

PACKAGE = "tnn.training.tasks"
_TASKS: "dict[str, Task[Any]]" = {}
TaskClass = TypeVar("TaskClass", bound="type[Task[Any]]")


@overload
def register_task(name: str) -> Callable[[TaskClass], TaskClass]: ...


@overload
def register_task(name: str, task: TaskClass) -> TaskClass: ...


def register_task(name: str, task: Any = None) -> Any:
    """Makes a subclass of `Task` known to recipes; without `task`, a decorator: `@register_task("causal-lm")`.

    See docs/training.md for an example.
    """
    if task is None:
        return partial(register_task, name)
    from tnn.training.tasks.task import Task

    if not (isinstance(task, type) and issubclass(task, Task)):
        raise TypeError(f"task {name!r} must be a subclass of tnn.training.Task; got {task!r}")
    if not task.__module__.startswith(PACKAGE):
        _import_tasks()  # a name of the package is taken, even if nothing has asked for its tasks yet
    if name in _TASKS:
        raise ValueError(f"task {name!r} is registered already, by {type(_TASKS[name]).__name__}")
    _TASKS[name] = task()
    return task


def unregister_task(name: str) -> None:
    """Forgets a task that was registered."""
    find_task(name)
    del _TASKS[name]


def find_task(name: Any) -> "Task[Any]":
    """The task of that name.

    >>> from tnn.training.tasks.registry import find_task
    >>> type(find_task("causal-lm")).__name__
    'CausalLM'
    >>> find_task("causal-ml")
    Traceback (most recent call last):
    ValueError: no task 'causal-ml'; did you mean 'causal-lm'?
    """
    known = list_tasks()
    if not isinstance(name, str):
        raise ValueError(f"task must be one of {', '.join(known)}; got {name!r}")
    if name not in known:
        raise ValueError(f"no task {name!r}; {did_you_mean(name, known)}")
    return _TASKS[name]


def list_tasks() -> list[str]:
    """The names that `find_task` knows.

    >>> from tnn.training.tasks.registry import list_tasks
    >>> list_tasks()
    ['causal-lm', 'classification', 'forecasting', 'glue', 'image', 'lra', 'masked-lm', 'token-classification']
    """
    _import_tasks()
    return sorted(_TASKS)


@cache
def _import_tasks() -> None:
    """The tasks of this package register themselves when their modules are imported."""
    for module in pkgutil.iter_modules(importlib.import_module(PACKAGE).__path__):
        importlib.import_module(f"{PACKAGE}.{module.name}")
