"""Signals that ask a run to end: it saves first."""

import errno
import os
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import current_thread, main_thread
from typing import Any

from accelerate import PartialState
from transformers import TrainerCallback

from tnn.training.processes import in_any_process

STANDARD_ERROR = 2
STANDARD_OUTPUTS = (1, STANDARD_ERROR)


class Interruption(TrainerCallback):
    """SIGINT (Ctrl-C), SIGTERM and SIGHUP (a closed terminal): the step is finished, a checkpoint is written, the end.

    A second SIGINT or SIGTERM stops at once. SIGHUP does not: a closed terminal may send it twice.
    """

    asked = False  # in this process
    stopping = False  # agreed by all

    @contextmanager
    def listening(self) -> Iterator[None]:
        def ask(number: int, frame: object) -> None:
            if number == signal.SIGHUP:
                _leave_terminal()
            elif self.asked:
                raise KeyboardInterrupt
            self.asked = True
            if PartialState().is_main_process:
                with suppress(OSError):  # print may be what the signal interrupted: it cannot be entered twice
                    os.write(STANDARD_ERROR, b"\nfinishing the step and saving; press again to stop at once\n")

        in_main = current_thread() is main_thread()  # elsewhere Python does not allow handlers
        old = {number: signal.signal(number, ask) for number in _numbers() if in_main}
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        self.stopping = in_any_process(self.asked)
        if self.stopping:
            control.should_save = control.should_training_stop = True
        return control


@contextmanager
def printing() -> Iterator[None]:
    """Around what is printed during a training: a terminal may be closed just before SIGHUP is handled."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EIO:
            raise


def _numbers() -> list[signal.Signals]:
    """Under nohup, SIGHUP stays ignored."""
    hangup = [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN else []
    return [signal.SIGINT, signal.SIGTERM, *hangup]


def _leave_terminal() -> None:
    """What is printed from now on goes nowhere: writing to a closed terminal or pipe would end the run."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for output in STANDARD_OUTPUTS:
        with suppress(OSError):  # it may have been closed
            if not stat.S_ISREG(os.fstat(output).st_mode):
                os.dup2(nowhere, output)
    os.close(nowhere)
