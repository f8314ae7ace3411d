"""`make fuzz`: any number of cases, and a page with the counts.

A single case again: python -m tests.fuzz --area recipes --number 17
"""

import argparse
import faulthandler
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch
import transformers

import tnn
from tests.fuzz.areas import AREAS, SEED, Judged, counts, judge
from tests.fuzz.judge import MEMORY, SECONDS
from tests.fuzz.samples import Samples


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--out", type=Path, help="a page with the counts")
    parser.add_argument("--area", choices=AREAS)
    parser.add_argument("--number", type=int)
    options = parser.parse_args()
    out = options.out and options.out.absolute()  # cases change the working directory
    torch.set_num_threads(1)
    faulthandler.enable(os.fdopen(os.dup(2), "w"))  # if a library ends the process: where it was
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as home:
        samples = Samples(Path(home))
        judged = []
        for area, count in counts(options.cases).items():
            if options.area in (None, area):
                numbers = range(count) if options.number is None else range(options.number, options.number + 1)
                for one in judge(area, numbers, samples, options.seed):
                    judged.append(one)
                    if one.complaint or options.number is not None:
                        print(one, flush=True)
    page = report(judged, options.seed, time.perf_counter() - start)
    print(page)
    if out:
        out.write_text(page + "\n", encoding="utf-8")
    sys.exit(any(one.verdict == "failed" for one in judged))


def report(judged: list[Judged], seed: int, seconds: float) -> str:
    """A page: what was run, the verdicts of each area, and the failures."""
    slowest = max(judged, key=lambda one: one.seconds)
    versions = f"toeplitz-nn {tnn.__version__}, torch {torch.__version__}, transformers {transformers.__version__}"
    lines = [
        "# Fuzzed commands",
        "",
        f"`make fuzz CASES={len(judged)}` with seed {seed}; {versions}, Python {platform.python_version()}.",
        "Each case is one command with odd words or damaged files. Right: exit code 0, and the result that was",
        "computed beforehand or in another way. Refused: one line on stderr, another exit code, no file changed.",
        "Failed: all else;",
        f"also more than {SECONDS} seconds or {MEMORY >> 30} GiB, or a question on standard input.",
        "",
        "| area | cases | right | refused | failed | slowest, s |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for area in [*dict.fromkeys(one.area for one in judged), "all"]:
        mine = [one for one in judged if area in (one.area, "all")]
        found = Counter(one.verdict for one in mine)
        numbers = " | ".join(f"{found[verdict]:,}" for verdict in ("right", "refused", "failed"))
        lines.append(f"| {area} | {len(mine):,} | {numbers} | {max(one.seconds for one in mine):.2f} |")
    lines += [
        "",
        f"{seconds:.0f} seconds in one process. Slowest: {slowest.area} {slowest.number}, {slowest.what[:80]!r}.",
    ]
    failures = [f"- {one}" for one in judged if one.complaint]
    return "\n".join([*lines, *([""] if failures else []), *failures])


if __name__ == "__main__":
    main()
