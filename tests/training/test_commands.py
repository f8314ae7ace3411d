"""Commands in a fresh process each, as a user runs them: nothing has been imported before."""

import subprocess
import sys

import pytest

from tnn.training import load_recipe, train


@pytest.mark.slow
def test_commands_on_a_trained_model(recipe_file, tmp_path):
    train(load_recipe(str(recipe_file(steps=3))), tmp_path / "run", log=lambda text: None)
    for words, expected in (
        (["evaluate", "run"], "perplexity"),
        (["generate", "run", "--prompt", "a", "--max-new-tokens", "4"], ""),
        (["show", "run", "--length", "16"], "run/kernels.png"),
        (["bench", "run", "--contexts", "32", "--new-tokens", "2"], "exact"),
        (["convert", "state-space", "run", "fast", "--tolerance", "0.1"], ""),
    ):
        command = [sys.executable, "-m", "tnn", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        assert expected in done.stdout
