"""Names that users write: what to say when one is unknown."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str], *, others: str = "") -> str:
    """A hint for an error message: the nearest known name, or all of them; `others` replaces the full list.

    >>> from tnn._names import did_you_mean
    >>> did_you_mean("performr", ["performer", "transformer"])
    "did you mean 'performer'?"
    >>> did_you_mean("x", ["performer", "transformer"])
    "choose from 'performer', 'transformer'"
    """
    names = list(dict.fromkeys(known))
    close = get_close_matches(str(name), names, n=1)
    if not close and (lower := get_close_matches(str(name).lower(), names, n=1)):
        close = lower
    if close:
        return f"did you mean {close[0]!r}?"
    return f"choose from {others or ', '.join(map(repr, names))}"


def listed(keys: Iterable[str], most: int = 5) -> str:
    """How many keys there are, and the first of them, for an error message.

    >>> from tnn._names import listed
    >>> listed(["a"]), listed(["a", "b", "c"], most=2)
    ('1 key (a)', '3 keys (a, b, ...)')
    """
    names = list(keys)
    noun = "key" if len(names) == 1 else "keys"
    return f"{len(names)} {noun} ({', '.join(names[:most])}{', ...' if len(names) > most else ''})"
