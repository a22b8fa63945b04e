"""Content hashes: what makes a record fresh or stale, in place of time stamps."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).parent


def digest(value: Any) -> str:
    """SHA-256 of the canonical JSON of ``value`` (sorted keys, no spaces), in hex."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def digest_files(paths: Iterable[Path], base: Path) -> str:
    """SHA-256 over names relative to ``base`` and contents, independent of order."""
    named = {Path(os.path.relpath(path, base)).as_posix(): path.read_bytes() for path in paths}
    return digest(
        {name: hashlib.sha256(content).hexdigest() for name, content in sorted(named.items())}
    )


def digest_sources(*rooms: str) -> str:
    """Digest of the package's own modules or sub-packages, for a rule's ``params``.

    Snakemake does not see that the code behind ``python -m`` changed; this makes it see exactly
    the rooms that a stage uses.
    """
    files: list[Path] = []
    for room in rooms:
        path = _PACKAGE / room
        files += (
            sorted(p for p in path.rglob("*") if p.suffix in {".py", ".yaml"})
            if path.is_dir()
            else [path]
        )
    return digest_files(files, _PACKAGE)[:16]
