"""Settings of a run beside its results: what is there is kept if it was made with the same ones."""
import hashlib
from pathlib import Path
from typing import Any

Settings = dict[str, Any]


def check_same(found: Settings, wanted: Settings, where: Path) -> None:
    """Refuse to mix results of other settings.

    Args:
        found: read from ``where``.
        wanted: of this run, as they look after a round trip through JSON.
        where: file of the results.

    Raises:
        ValueError: naming what differs.
    """
    differing = [f'{key} {found.get(key)!r} (now {wanted.get(key)!r})'
                 for key in sorted(found.keys() | wanted.keys())
                 if found.get(key) != wanted.get(key)]
    if differing:
        raise ValueError(f'{where} was made with {", ".join(differing)}: give the same settings, '
                         'another folder, or --redo to make it anew')


def fingerprint(path: str) -> str:
    """Name and SHA-256 (first 12 digits) of a file; anything else as it is."""
    file = Path(path)
    if not file.is_file():
        return path
    return f'{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()[:12]}'
