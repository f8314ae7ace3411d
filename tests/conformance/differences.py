"""The list of transformers' tests that are expected to fail."""

from pathlib import Path

import yaml


def read_differences() -> dict[str, dict[str, str]]:
    """By class of tests and name of test: why it fails."""
    return yaml.safe_load((Path(__file__).parent / "differences.yaml").read_text())
