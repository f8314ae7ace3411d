"""Rows of a user's own: a mixer that is written in another package stands in a table beside the paper's methods."""

from collections.abc import Iterable

from paper.harness.experiment import Experiment
from tnn.mixers import load_mixer


def is_own_mixer(row: str) -> bool:
    """Whether a row is named by the path of a class, as `package.module:Class`."""
    return ":" in row


def check_rows(experiment: Experiment, rows: Iterable[str]) -> None:
    """That the experiment has all of these rows; mixers of the user's own are loaded.

    >>> from paper.catalogue import find_experiment
    >>> from paper.harness.mixers import check_rows
    >>> check_rows(find_experiment("alm"), ["tnn", "transformer"])
    >>> check_rows(find_experiment("image"), ["package.module:Class"])
    Traceback (most recent call last):
    ValueError: image takes no mixer of your own, such as 'package.module:Class'; its rows are transformer, tnn
    """
    for row in rows:
        if is_own_mixer(row) and not experiment.takes_mixers:
            names = ", ".join(experiment.rows)
            raise ValueError(f"{experiment.name} takes no mixer of your own, such as {row!r}; its rows are {names}")
        if is_own_mixer(row):
            load_own_mixer(row)
        elif row not in experiment.rows:
            own = ", or package.module:Class for a mixer of your own" if experiment.takes_mixers else ""
            raise ValueError(f"{experiment.name} has no row {row!r}; there are {', '.join(experiment.rows)}{own}")


def load_own_mixer(row: str) -> None:
    """Import the class and make it known to configurations under its path. The current folder is on the path."""
    try:
        load_mixer(row)
    except TypeError as error:
        raise ValueError(str(error)) from None


def about_own_mixers(rows: Iterable[str] | None) -> list[str]:
    """A note for the table, if there are any."""
    own = [row for row in rows or () if is_own_mixer(row)]
    if not own:
        return []
    return [
        f"Not in the paper: {', '.join(own)}. Such a mixer stands in TNN's model and has its depth and width; "
        "its number of parameters is not matched."
    ]
