"""Who may use the server: keys from a file or from the environment, never from the command line."""

import hmac
import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

VARIABLE = "TNN_API_KEY"
ANYONE = ""  # the owner of everything where no key is asked for


class Keys:
    """The keys that are accepted; each is an owner, known by its hash. Without keys, everybody is one owner.

    >>> from tnn.serving.keys import Keys
    >>> keys = Keys(["a-secret"])
    >>> keys.owner_of("Bearer a-secret") == keys.owners[0], keys.owner_of("Bearer else"), keys.owner_of(None)
    (True, None, None)
    >>> Keys([]).owner_of(None)
    ''
    """

    def __init__(self, keys: Sequence[str]):
        self.owners = [_hash(key) for key in keys] or [ANYONE]
        self.required = bool(keys)

    def owner_of(self, authorization: str | None) -> str | None:
        """The owner that an Authorization header belongs to; None: nobody. The time does not tell how close it was."""
        if not self.required:
            return ANYONE
        scheme, _, key = (authorization or "").partition(" ")
        given = _hash(key if scheme.lower() == "bearer" else "")
        found = None
        for owner in self.owners:
            if hmac.compare_digest(owner, given):
                found = owner
        return found


def load_keys(file: Path | None, environment: Mapping[str, str] = os.environ) -> Keys:
    """One key per line of a file; without a file, that of the variable TNN_API_KEY, if it is set.

    >>> from tnn.serving.keys import load_keys
    >>> load_keys(None, {"TNN_API_KEY": "a-secret"}).required, load_keys(None, {}).required
    (True, False)
    """
    if file is None:
        return Keys(_checked([environment[VARIABLE]], VARIABLE) if VARIABLE in environment else [])
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise ValueError(f"{file} is not a UTF-8 text: it must hold one key per line") from None
    keys = [line.strip() for line in lines if line.strip()]
    if not keys:
        raise ValueError(f"{file} has no key: it must hold one per line")
    return Keys(_checked(keys, str(file)))


def _checked(keys: list[str], source: str) -> list[str]:
    for number, key in enumerate(keys, start=1):
        if not (key.isascii() and key.isprintable() and " " not in key and key):
            raise ValueError(f"{source}: key {number} must be printable ASCII without spaces: it comes in a header")
    if len({*keys}) < len(keys):
        raise ValueError(f"{source} has a key twice: each is one client")
    return keys


def _hash(key: str) -> str:
    return sha256(key.encode()).hexdigest()
