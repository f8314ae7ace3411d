"""Several processes that train one model: how they meet, and what they decide together."""

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
from accelerate import Accelerator, DistributedType, FullyShardedDataParallelPlugin, PartialState
from accelerate.utils import broadcast_object_list, gather

from tnn.training.recipe import Training


def meet(training: Training) -> None:
    """Find the processes that torchrun or accelerate launch have started beside this one, before anything else.

    On the CPU they speak by gloo. A process that was started alone stays alone.
    """
    timeout = timedelta(seconds=training.arguments.get("ddp_timeout", 1800))
    PartialState(cpu=on_cpu(training), timeout=timeout)


@atexit.register
def _part() -> None:
    """Close the connections first: a thread of theirs that outlives the interpreter aborts the process."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def on_cpu(training: Training) -> bool:
    """Whether the work is done there: on demand, or for want of a device that as many processes can use."""
    if training.arguments.get("use_cpu", os.environ.get("ACCELERATE_USE_CPU", "").lower() == "true"):
        return True
    several = int(os.environ.get("WORLD_SIZE", 1)) > 1
    return not torch.accelerator.is_available() or (several and torch.backends.mps.is_available())


@contextmanager
def main_process_first() -> Iterator[None]:
    """The others follow when it is done. What goes wrong there is raised in all, so that none waits in vain."""
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


def in_any_process(flag: bool) -> bool:
    """Whether the flag is set in one of them. All must ask, at the same point."""
    return bool(gather(torch.tensor([flag], device=PartialState().device)).any())


def shards_weights(accelerator: Accelerator, options: dict[str, Any] | None) -> bool:
    """Whether each process keeps a part of the weights only: FSDP, with the recipe's options or the launcher's.

    accelerate has it for devices alone, though gloo knows all that it needs.
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
    plugin.set_state_dict_type("FULL_STATE_DICT")  # checkpoints for any number of processes, and a model in one file
    plugin.mixed_precision_policy = None  # see RecipeTrainer.autocast_smart_context_manager
    return True
