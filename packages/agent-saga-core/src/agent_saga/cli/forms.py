"""Other forms of the JSON lines of an export: CSV, and CloudEvents 1.0 in their JSON form."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

COLUMNS: Final = ("pos", "saga", "n", "kind", "at", "time", "step", "tool", "state", "values", "hash", "record")
_RISKY: Final = ("=", "+", "-", "@", "\t", "\r")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def as_csv(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield a header, and a row for each record; `record` is the whole JSON line, so that nothing is lost.

    A text that a spreadsheet would take for a formula gets an apostrophe before it.
    """
    yield _row(COLUMNS)
    for line in lines:
        record = _decode(line)
        cells = {**record, "time": _time(record["at"]), "record": line.decode().rstrip("\n")}
        cells["values"] = _encode(record["values"]).decode() if "values" in record else ""
        yield _row([_cell(cells.get(name, "")) for name in COLUMNS])


def as_cloudevents(lines: Iterable[bytes], log_id: str) -> Iterator[bytes]:
    """Yield a CloudEvent (JSON) for each record; source and id name it for good.

    Source:
        CloudEvents 1.0.2, JSON event format.
    """
    for line in lines:
        record = _decode(line)
        event: dict[str, Any] = {
            "specversion": "1.0",
            "id": f"{record['saga']}:{record['n']}",
            "source": f"agent-saga/{log_id}",
            "type": f"agent-saga.{record['kind']}.v1",
            "subject": record["saga"],
            "time": _time(record["at"]),
            "datacontenttype": "application/json",
            "data": record,
        }
        yield _encode(event) + b"\n"


def _time(at: int) -> str:
    """Return a time as RFC 3339, to the microsecond; the nanoseconds are in `at`."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at // 1000)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    return "'" + text if isinstance(value, str) and text.startswith(_RISKY) else text


def _row(cells: Iterable[str]) -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out).writerow(cells)
    return out.getvalue().encode()
