"""The JSON records that stages hand to each other: one file each, written once and atomically."""

from __future__ import annotations

import json
import os
import tempfile
import time
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from occupancy_probe.exc import RecordError

SCHEMA: Final = "occupancy-probe/1"
"""One version for all records; a reader refuses any other."""


class Part(BaseModel):
    """A piece of a record; floats may be NaN or infinite and are kept so."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="constants")


class Record(Part):
    """What every record says of itself."""

    schema_: Literal["occupancy-probe/1"] = Field(default=SCHEMA, alias="schema")
    study: str
    depends: dict[str, str] = {}
    """Hashes of what the record was made from; another value means stale."""
    versions: dict[str, str] = {}
    """Triton, torch, ptxas, driver … at the time; another value means drift, not stale."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, ser_json_inf_nan="constants"
    )


R = TypeVar("R", bound=Record)


_STALE_S = 3600.0
"""Age of a temporary file that nobody is writing any more."""


def write_text(path: Path, text: str) -> None:
    """Write ``path`` as a whole or not at all: temporary file beside it, then rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{escape(path.name)}.*"):  # by a run that was killed just then
        with suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > _STALE_S:
                left.unlink()
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_record(path: Path, record: Record) -> None:
    """Write ``record`` as JSON; numbers lists stay on one line to keep raw samples compact."""
    write_text(path, to_json(record))


def to_json(record: Record) -> str:
    """Readable and stable JSON: one key per line, lists of scalars on one line."""
    return _render(record.model_dump(mode="python", by_alias=True), 0) + "\n"


def _render(value: Any, depth: int) -> str:
    pad, inner = " " * depth, " " * (depth + 1)
    if isinstance(value, dict) and value:
        items = (
            f"{inner}{json.dumps(str(k), ensure_ascii=False)}: {_render(v, depth + 1)}"
            for k, v in value.items()
        )
        return "{\n" + ",\n".join(items) + f"\n{pad}}}"
    if isinstance(value, (list, tuple)) and any(isinstance(v, (dict, list, tuple)) for v in value):
        return "[\n" + ",\n".join(inner + _render(v, depth + 1) for v in value) + f"\n{pad}]"
    return json.dumps(value, ensure_ascii=False)


def read_record(path: Path, kind: type[R]) -> R:
    """Load and check a record; RecordError names the file and what is wrong with it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise RecordError(f"{path}: {e.strerror}; make the stage that writes it again") from e
    except (ValueError, RecursionError) as e:
        raise RecordError(
            f"{path}: truncated or not JSON ({e}); delete it to have it made again"
        ) from e
    found = content.get("schema") if isinstance(content, dict) else None
    if found != SCHEMA:
        raise RecordError(
            f"{path}: schema {found!r}, this version reads {SCHEMA!r}{_remedy(found)}"
        )
    try:
        return kind.model_validate(content)
    except ValidationError as e:
        first = e.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise RecordError(
            f"{path}: {place}: {first['msg']}; delete it to have it made again"
        ) from e


def _remedy(schema: Any) -> str:
    """What to do about a record that a newer version of this tool wrote."""
    kind, _, number = str(schema).rpartition("/")
    newer = kind == SCHEMA.rpartition("/")[0] and number.isdecimal()
    if newer and int(number) > int(SCHEMA.rpartition("/")[2]):
        return "; made by a newer version: update this one, the record is left as it is"
    return ""


def read_if_fresh(path: Path, kind: type[R], depends: dict[str, str]) -> R | None:
    """The record at ``path`` if it is whole and was made from ``depends``, else None."""
    if not path.exists():
        return None
    try:
        record = read_record(path, kind)
    except RecordError:
        return None
    return record if record.depends == depends else None
