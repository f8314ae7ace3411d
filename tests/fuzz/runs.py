"""A run that was stopped: its checkpoints and other files are damaged, then it is resumed."""

import json
from pathlib import Path
from random import Random

from tests.fuzz.judge import Case, Result
from tests.fuzz.mutations import ODD, changed, damaged, places
from tests.fuzz.samples import Samples


def checkpoints(rng: Random, samples: Samples, here: Path) -> Case:
    """Exit 0 means: the weights of a training without a stop, bit for bit."""
    samples.copy("corpus", here)
    folder = samples.copy("run", here)
    (here / "run.yaml").write_bytes((samples.home / "run.yaml").read_bytes())
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path = rng.choice(files)
    kind = rng.choice(["bytes", "bytes", "removed", "empty", "cut", "values"])
    data = path.read_bytes()
    if kind == "values" and path.suffix == ".json":
        values = json.loads(data)
        path.write_text(json.dumps(changed(values, rng.choice(list(places(values))), rng.choice(ODD))))
    elif kind == "removed":
        path.unlink()
    else:
        path.write_bytes(b"" if kind == "empty" else data[: len(data) // 2] if kind == "cut" else damaged(data, rng))

    def same(result: Result) -> bool:
        return (folder / "model.safetensors").read_bytes() == samples.trained

    return Case(f"{kind} of {path.relative_to(folder)}", ["train", "run.yaml", "--out", "run", "--resume"], same)
