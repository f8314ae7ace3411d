"""Several processes that train one model: how they connect, and what they decide together."""

import atexit
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
from accelerate import Accelerator, DistributedType, FullyShardedDataParallelPlugin, PartialState
from accelerate.utils import broadcast_object_list, gather

from tnn.training.schema import Training

Result = TypeVar("Result")


def init_distributed(training: Training) -> None:
    """Connect the processes that torchrun or accelerate launch have started. Call it before anything else.

    On the CPU they use gloo. With one process there is nothing to connect.
    """
    timeout = timedelta(seconds=training.arguments.get("ddp_timeout", 1800))
    PartialState(cpu=on_cpu(training), timeout=timeout)


@atexit.register
def shutdown() -> None:
    """Close the connections at exit: one of their threads that outlives the interpreter would abort the process."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def on_cpu(training: Training) -> bool:
    """Whether to train on the CPU: if asked to, or if there is no device that this many processes can use."""
    if training.arguments.get("use_cpu", os.environ.get("ACCELERATE_USE_CPU", "").lower() == "true"):
        return True
    several = int(os.environ.get("WORLD_SIZE", 1)) > 1
    return not torch.accelerator.is_available() or (several and torch.backends.mps.is_available())


@contextmanager
def main_process_first() -> Iterator[None]:
    """The other processes wait for the main one. An error there is raised in all, so that none waits forever."""
    failure: list[Exception | None] = [None]
    if not PartialState().is_main_process:
        broadcast_object_list(failure)
        if failure[0] is not None:
            raise failure[0]
        yield
        return
    try:
        yield
    except Exception as error:
        failure[0] = error
        raise
    finally:
        broadcast_object_list(failure)


def in_main_process(compute: Callable[[], Result]) -> Result:
    """What the main process computes, in all. An error there is raised in all."""
    result: list[Any] = [None]
    with main_process_first():
        if PartialState().is_main_process:
            result[0] = compute()
    broadcast_object_list(result)
    return result[0]


def in_any_process(flag: bool) -> bool:
    """Whether the flag is set in any process. All processes must call this at the same point."""
    return bool(gather(torch.tensor([flag], device=PartialState().device)).any())


def shards_weights(accelerator: Accelerator, options: dict[str, Any] | None) -> bool:
    """Whether each process keeps only a part of the weights: FSDP, with the options of the recipe or of the launcher.

    accelerate refuses FSDP on the CPU, but gloo supports all that it needs.
    """
    if os.environ.get("ACCELERATE_USE_FSDP", "").lower() != "true" or PartialState().num_processes == 1:
        return False
    if PartialState().distributed_type == DistributedType.MULTI_CPU:
        accelerator.state.fsdp_plugin = FullyShardedDataParallelPlugin(**(options or {}))
        for state in (accelerator.state, PartialState()):
            state.distributed_type = DistributedType.FSDP
    plugin = accelerator.state.fsdp_plugin
    if plugin.fsdp_version != 2:
        raise ValueError(f"FSDP must be of version 2, as with --fsdp_version 2; got {plugin.fsdp_version}")
    plugin.set_state_dict_type("FULL_STATE_DICT")  # for resuming with any number of processes, and a model in one file
    plugin.mixed_precision_policy = None  # see RecipeTrainer.autocast_smart_context_manager
    return True
