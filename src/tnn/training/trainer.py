"""transformers' Trainer, set up from a recipe: optimizer, schedule and order of the examples."""

import math
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from accelerate import PartialState
from torch import Tensor
from tqdm import tqdm
from transformers import EarlyStoppingCallback, PrinterCallback, Trainer, TrainerCallback, TrainingArguments
from transformers.integrations import get_available_reporting_integrations

from tnn.models.finite import find_non_finite
from tnn.training.checkpoints import CHECKPOINTS, UNFINISHED, checkpoint_path, find_damage, publish, rotate
from tnn.training.durations import format_time
from tnn.training.interruption import printing
from tnn.training.parameter_groups import parameter_groups
from tnn.training.processes import in_any_process, in_main_process, on_cpu, shards_weights
from tnn.training.run_log import SECONDS, RunLog
from tnn.training.runs import writing
from tnn.training.schedules import learning_rate
from tnn.training.schema import Recipe, Training
from tnn.training.tasks.registry import find_task

HIDDEN = ("total_flos", "epoch")  # entries of the Trainer's log that are left out
TIMES = ("_runtime", "_per_second", "epoch")  # endings of entries about the time of an evaluation
FUSED = ("cpu", "cuda")  # devices with a fused AdamW kernel


class Diverged(ArithmeticError):
    """The loss, the norm of its gradient, or a weight is NaN or infinite."""


class RecipeTrainer(Trainer):
    """Adam with decoupled weight decay, for a run in `folder`.

    A loss that is NaN or infinite stops the run before the weights are updated; such weights are never saved.
    """

    def __init__(self, training: Training, folder: Path, processor: Any = None, **options: Any):
        super().__init__(**options)
        self.remove_callback(PrinterCallback)  # see Progress
        self.training, self.folder, self.processor = training, folder, processor

    optimizer: Any
    lr_scheduler: Any

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        self.is_fsdp_enabled = shards_weights(self.accelerator, self.args.fsdp_plugin_args)

    def autocast_smart_context_manager(self, *inputs: Any, **options: Any) -> Any:
        """Autocast under FSDP too. The weights stay in float32, which the position encoder needs."""
        return self.accelerator.autocast() if self.is_fsdp_enabled else nullcontext()

    def prediction_step(self, model: Any, inputs: dict[str, Any], *args: Any, **options: Any) -> Any:
        """Evaluation reads whole texts: it has no use for a cache."""
        if getattr(self.model.config, "use_cache", False):
            inputs = {**inputs, "use_cache": False}
        return super().prediction_step(model, inputs, *args, **options)

    def evaluate(self, *inputs: Any, **options: Any) -> dict[str, float]:
        """The evaluation after the last step is one that a longer run does not have: it draws no random numbers."""
        every, step = self.state.eval_steps, self.state.global_step
        extra = bool(every) and step >= self.state.max_steps and step % every != 0
        with torch.random.fork_rng(devices=[], enabled=extra):
            return super().evaluate(*inputs, **options)

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        if self.optimizer is None:
            training = self.training
            rate, decay = training.learning_rate, training.weight_decay
            groups = parameter_groups(model or self.model, learning_rate=rate, weight_decay=decay)
            fused = all(p.device.type in FUSED for group in groups for p in group["params"])
            self.optimizer = torch.optim.AdamW(groups, rate, training.betas, training.epsilon, decay, fused=fused)
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        if self.lr_scheduler is None:
            rate, peak = learning_rate(self.training, num_training_steps), self.training.learning_rate
            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
                optimizer or self.optimizer, lambda step: rate(step) / peak
            )
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def training_step(self, *inputs: Any, **options: Any) -> Tensor:
        loss = super().training_step(*inputs, **options)
        if not math.isfinite(loss):
            raise Diverged(f"the loss is {float(loss)} at step {self.state.global_step + 1}")
        return loss

    def _get_grad_norm(self, *inputs: Any, **options: Any) -> Any:
        norm = super()._get_grad_norm(*inputs, **options)
        if self.training.precision != "fp16" and not math.isfinite(norm):  # fp16: the scaler skips such steps
            raise Diverged(f"the gradient's norm is {float(norm)} at step {self.state.global_step + 1}")
        return norm

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        if state_dict is not None:  # gathered from all processes, with tied weights twice
            state_dict = {k: v for k, v in state_dict.items() if k not in self.model.all_tied_weights_keys}
        super()._save(output_dir, state_dict)

    # --- checkpoints: see tnn.training.checkpoints

    def check_weights(self) -> None:
        """Raises an error in all processes if a weight is NaN or infinite in any."""
        name = find_non_finite(self.model)
        if in_any_process(name is not None):
            where = f" in {name}" if name else ""
            raise Diverged(f"a weight is NaN or infinite after step {self.state.global_step}{where}")

    def _save_checkpoint(self, *inputs: Any, **options: Any) -> None:
        self.check_weights()
        with writing(f"the checkpoint of step {self.state.global_step}"):
            try:
                super()._save_checkpoint(*inputs, **options)
                PartialState().wait_for_everyone()
                in_main_process(self._publish)
            except BaseException:
                shutil.rmtree(self._unfinished, ignore_errors=True)  # also for what else needs the disk
                raise

    def _get_output_dir(self, trial: Any = None) -> str:
        """Where a checkpoint is written, before it is complete."""
        return str(self._unfinished)

    @property
    def _unfinished(self) -> Path:
        return self.folder / CHECKPOINTS / UNFINISHED

    def _save_rng_state(self, *inputs: Any, **options: Any) -> None:
        super()._save_rng_state(*inputs, **options)
        self._set_best_checkpoint()  # by its final name

    def _publish(self) -> None:
        best = self.state.best_global_step if self.args.load_best_model_at_end else None
        unfinished = self._unfinished / checkpoint_path(self.folder, self.state.global_step).name
        if self.processor is not None:  # a checkpoint can be started from, like a model
            self.processor.save_pretrained(unfinished)
        publish(unfinished, self.folder, best)
        rotate(self.folder, self.training.keep_checkpoints, best)

    def _init_training_state(self, max_steps: int, *inputs: Any, **options: Any) -> Any:
        result = super()._init_training_state(max_steps, *inputs, **options)
        self.state.compute_steps(self.args, max_steps)  # a checkpoint has those of the time when it was written
        self._set_best_checkpoint()  # the folder may have been moved
        return result

    def _set_best_checkpoint(self) -> None:
        """transformers keeps a path; what counts is the step."""
        step = self.state.best_global_step
        self.state.best_model_checkpoint = str(checkpoint_path(self.folder, step)) if step else None

    def _load_best_model(self) -> None:
        best = Path(str(self.state.best_model_checkpoint))
        if damage := in_main_process(lambda: find_damage(best)):
            raise ValueError(f"{best}, which has the best weights, is damaged: {damage}")
        super()._load_best_model()

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """No warnings: weights that are missing or left over are an error."""
        missing = [key for key in load_result.missing_keys if key not in self.model.all_tied_weights_keys]
        if keys := [*missing, *load_result.unexpected_keys]:
            raise ValueError(f"the checkpoint does not fit the model: {keys[0]} is in only one of them")
        self.model.tie_weights()


def training_arguments(
    training: Training, steps: int, output: str, metric: str, use_cache: bool = True
) -> TrainingArguments:
    """The same update for any number of processes: they share the batch, and accumulate gradients of micro-batches.

    Exceptions are batch norm, mixup and cutmix: they combine the examples of one micro-batch.
    `use_cache` is that of the model's configuration: the Trainer writes it there, and by default it would be False.
    """
    processes = PartialState().num_processes
    share, rest = divmod(training.batch_size, processes)
    if rest:
        raise ValueError(
            f"training.batch_size must be a multiple of the {processes} processes; got {training.batch_size}"
        )
    at_once = min(training.micro_batch_size or share, share)
    if share % at_once:
        got = f"got {training.micro_batch_size} for {share}"
        raise ValueError(f"training.micro_batch_size must divide the batch of one process; {got}")
    available = get_available_reporting_integrations()
    if missing := [name for name in training.report_to if name not in available]:
        installed = ", ".join(available) or "none"
        raise ValueError(
            f"training.report_to: {missing[0]} is not installed; installed integrations of transformers: {installed}"
        )
    every = {"evaluate": training.evaluate_every, "save": training.save_every or training.evaluate_every or steps}
    values: dict[str, Any] = {
        "output_dir": output,
        "max_steps": steps,
        "per_device_train_batch_size": at_once,
        "per_device_eval_batch_size": at_once,
        "gradient_accumulation_steps": share // at_once,
        "train_sampling_strategy": "sequential",  # the examples are already shuffled
        "learning_rate": training.learning_rate,
        "weight_decay": training.weight_decay,
        "max_grad_norm": training.clip,
        "bf16": training.precision == "bf16",
        "fp16": training.precision == "fp16",
        "gradient_checkpointing": training.gradient_checkpointing,
        "torch_compile": training.compile,
        "use_cache": use_cache,
        "seed": training.seed,
        "logging_steps": training.log_every,
        "logging_first_step": True,
        "logging_nan_inf_filter": False,
        "eval_strategy": "steps" if every["evaluate"] else "no",
        "eval_steps": every["evaluate"],
        "save_strategy": "steps",
        "save_steps": every["save"],
        "load_best_model_at_end": training.keep_best,
        "metric_for_best_model": f"eval_{metric}" if training.needs_evaluation else None,
        "greater_is_better": metric != "loss" if training.needs_evaluation else None,
        "prediction_loss_only": metric == "loss",
        "use_cpu": on_cpu(training),
        "ddp_find_unused_parameters": False,  # all are used
        "log_level_replica": "passive",  # as in the main process
        "restore_callback_states_from_checkpoint": training.patience is not None,
        "report_to": list(training.report_to) or "none",
        "disable_tqdm": True,  # see Progress
        "remove_unused_columns": False,
        "dataloader_pin_memory": torch.cuda.is_available(),
    }
    try:
        return TrainingArguments(**{**values, **training.arguments})
    except (TypeError, AttributeError, KeyError, RuntimeError) as error:
        raise ValueError(f"training.arguments: {error}") from error


def callbacks(recipe: Recipe, log: RunLog) -> list[TrainerCallback]:
    amount, unit = find_task(recipe.task).speed_unit(recipe)
    result: list[TrainerCallback] = [JsonlLogger(log), Progress(recipe.training.batch_size * amount, unit)]
    if recipe.training.patience is not None:
        result.append(EarlyStoppingCallback(recipe.training.patience))
    return result


class JsonlLogger(TrainerCallback):
    """Writes the log of the run. The seconds are those of its whole training, interruptions left out."""

    def __init__(self, log: RunLog):
        self.log = log
        self.begun: float | None = None  # None: a part of the log has no times

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        before = self.log.seconds() if state.global_step else 0.0
        self.begun = None if before is None else perf_counter() - before

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        values = {key: value for key, value in (logs or {}).items() if key not in HIDDEN}
        if "loss" in values and self.begun is not None:
            values[SECONDS] = round(perf_counter() - self.begun, 3)
        if state.is_world_process_zero and "train_runtime" not in values:
            self.log.add(state.global_step, values)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            self.log.add_checkpoint(state.global_step)


class Progress(TrainerCallback):
    """A progress bar on a terminal, one line per log entry elsewhere. The speed counts training steps only.

    The time left counts everything, as it went so far: also evaluations and checkpoints.
    """

    def __init__(self, amount: int, unit: str):
        self.amount, self.unit = amount, unit  # per update
        self.steps, self.seconds = 0, 0.0  # since the last log
        self.first: tuple[int, float] | None = None  # step and time of the end of the first one, which takes longer

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        hidden = not (state.is_world_process_zero and sys.stderr.isatty())
        self.bar = tqdm(total=state.max_steps, initial=state.global_step, unit="step", disable=hidden)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.begun = perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        now = perf_counter()
        self.steps, self.seconds = self.steps + 1, self.seconds + now - self.begun
        self.first = self.first or (state.global_step, now)
        with printing():
            self.bar.update()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        logs = logs or {}
        if not state.is_world_process_zero or "train_runtime" in logs:
            return
        line = self._training(logs) if "loss" in logs else _evaluation(logs)
        with printing():
            if "loss" in logs and not self.bar.disable:
                self.bar.set_postfix_str(line)  # the bar has the rest
            else:
                done, total = state.global_step, state.max_steps
                left = self._left(done, total) if "loss" in logs else ""
                tqdm.write(f"step {done:,} of {total:,} ({done / total:.0%})  {line}{left}", file=sys.stderr)

    def _training(self, logs: dict[str, float]) -> str:
        speed = self.amount * self.steps / max(self.seconds, 1e-9)
        self.steps, self.seconds = 0, 0.0
        return f"loss {logs['loss']:.4f}, lr {logs['learning_rate']:.2e}, {speed:,.0f} {self.unit}/s"

    def _left(self, done: int, total: int) -> str:
        if self.first is None or self.first[0] >= done or done >= total:
            return ""
        step, time = self.first
        return f", {format_time((perf_counter() - time) / (done - step) * (total - done))} left"

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        with printing():
            self.bar.close()


def _evaluation(logs: dict[str, float]) -> str:
    names = {k: k.replace("eval_", "validation ").replace("_", " ") for k in logs if not k.endswith(TIMES)}
    return ", ".join(f"{name} {logs[k]:.4f}" for k, name in names.items())
