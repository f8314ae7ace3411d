"""Many rounds of every fault, and the counts: python -m tests.faults --rounds 20 --out results/faults.md"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from tests.faults import lab as faults
from tests.faults.lab import DAMAGES, EQUAL, REFUSED, Lab

Verdicts = Iterator[tuple[str, bool]]  # what happened, and whether it is right

BEST = {"evaluate_every": 2, "keep_best": True, "learning_rate": 3.0, "warmup_steps": 12}  # it gets worse at the end


def faults_of(lab: Lab, best: Lab, rounds: int) -> dict[str, Verdicts]:
    steps = faults.newest_steps(lab)
    return {
        "killed with SIGKILL at random moments, one to three times": _killed(lab, rounds),
        "killed with SIGKILL while a checkpoint was written": _killed_saving(lab, rounds),
        "each file of the newest checkpoint, in each way": _damaged(lab, {EQUAL}, steps[0]),
        "each file of all checkpoints, in each way": _damaged(lab, {REFUSED}, *steps),
        "each file of the best checkpoint, in each way": _damaged(best, {EQUAL, REFUSED}, faults.best_step(best)),
        "no file can grow beyond a random size": _checked(faults.full_disk, lab, rounds, "no checkpoint lost"),
        "a second training, and a resume beside a running one": _checked(faults.two_processes, lab, rounds, "refused"),
        "checkpoints from the future": _checked(faults.clock_back, lab, rounds, "the last steps used and kept"),
    }


def _killed(lab: Lab, rounds: int) -> Verdicts:
    for number in range(rounds):
        outcome, running = faults.kill_at_any_time(lab, times=1 + number % 3)
        yield f"weights {outcome}{'' if running else ' (a kill came after the end)'}", outcome == EQUAL


def _killed_saving(lab: Lab, rounds: int) -> Verdicts:
    for _ in range(rounds):
        outcome, unfinished = faults.kill_while_saving(lab)
        yield f"weights {outcome} ({'unfinished' if unfinished else 'complete'})", outcome == EQUAL


def _damaged(lab: Lab, expected: set[str], *steps: int) -> Verdicts:
    for name in faults.checkpoint_files(lab):
        for kind in DAMAGES:
            outcome, named = faults.damage(lab, name, kind, *steps)
            what = outcome if outcome == REFUSED else f"weights {outcome}"
            yield f"{what}, file {'named' if named else 'not named'}", named and outcome in expected


def _checked(fault: Callable[[Lab], tuple[str, bool]], lab: Lab, rounds: int, right: str) -> Verdicts:
    for _ in range(rounds):
        outcome, is_right = fault(lab)
        yield f"{'' if is_right else 'not '}{right}, weights {outcome}", is_right and outcome == EQUAL


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="of each fault that is random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a Markdown file for the counts")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows, wrong = [], 0
    with TemporaryDirectory() as folder:
        lab, best = Lab(Path(folder) / "lab", options.seed), Lab(Path(folder) / "best", options.seed, **BEST)
        for fault, verdicts in faults_of(lab, best, options.rounds).items():
            counts: Counter[str] = Counter()
            right = 0
            for text, is_right in verdicts:
                counts[text] += 1
                right += is_right
            wrong += counts.total() - right
            outcome = "; ".join(f"{count} {text}" for text, count in counts.most_common())
            rows.append(f"| {fault} | {right} of {counts.total()} | {outcome} |")
            print(rows[-1], flush=True)
    table = ["| fault | right | what happened |", "|---|---|---|", *rows, ""]
    command = f"`python -m tests.faults --rounds {options.rounds} --seed {options.seed}`"
    about = f"""# Faults during training
{command} trains a small model, disturbs the run, and resumes it. Right is: the weights are
bit-equal to those of a run without faults, or one line says why it cannot continue, with the file where there is one.

"""
    if options.out is not None:
        options.out.write_text(about + "\n".join(table))
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
