"""A Supabase project: what is asked of its database, and the handlers that recovery finds by its name."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

import httpx

from agent_saga import ALREADY_DONE, Conflict, Landed, NotLanded
from agent_saga_supabase._calls import NotCapturable

STEP_HEADER: Final = "x-agent-saga-step"
TIMEOUT_S: Final = 30.0
Work = Generator[httpx.Request, httpx.Response, Any]  # Written once; a client of either kind sends the requests.


@dataclass(slots=True, kw_only=True, eq=False)
class Project:
    """A project and what this process knows of it.

    Attributes:
        name: in the log.
        url: of the project.
        key: with which compensations and probes run; it must be allowed to call the functions of the migration.
        is_async: its client is, and so are its handlers.
        checked: the tables that the migration protects.
        voided: the steps that a probe of this process found absent, with the nonce that reopens each.
    """

    name: str
    url: str
    key: str
    is_async: bool
    checked: set[str] = field(default_factory=set)
    voided: dict[str, str] = field(default_factory=dict)

    def tool(self, name: str) -> str:
        """Return the name of a step."""
        return f"supabase:{self.name}:{name}"

    def request(self, method: str, path: str, body: Any = None) -> httpx.Request:
        """Return a request of our own."""
        headers = {"apikey": self.key, "authorization": f"Bearer {self.key}", "content-profile": "public"}
        timeout = dict.fromkeys(("connect", "read", "write", "pool"), TIMEOUT_S)
        url = f"{self.url}/{path}"
        return httpx.Request(method, url, headers=headers, json=body, extensions={"timeout": timeout})

    def function(self, name: str, **arguments: Any) -> Work:
        """Call a function of the migration and return what it returns."""
        response = yield self.request("POST", f"rest/v1/rpc/agent_saga_{name}", arguments)
        if response.is_success:
            return response.json() if response.content else None
        raise _refusal(response)

    def check(self, table: str) -> Work:
        """Ask once whether the migration protects a table.

        Raises:
            NotCapturable: it does not, or the migration is not there.
        """
        if table in self.checked:
            return
        response = yield self.request("POST", "rest/v1/rpc/agent_saga_problem", {"tbl": table})
        if response.status_code == httpx.codes.NOT_FOUND:
            raise NotCapturable(
                f"the database of {self.name!r} has no agent-saga migration, so the write did not run: apply what "
                "agent_saga_supabase.migration() returns, then select agent_saga_protect() for each table"
            )
        if not response.is_success:
            raise NotCapturable(
                f"the write to {table} did not run: its database does not say whether it could be taken back "
                f"(HTTP {response.status_code}: {response.text[:200]})"
            )
        if problem := response.json():
            raise NotCapturable(f"the write did not run, because it could not be taken back: {problem}")
        self.checked.add(table)

    def reopen(self, step: str) -> Work:
        """Let a step run that our own probe found absent; a recovery that asked since keeps it shut."""
        nonce = self.voided.pop(step, None)
        if nonce is not None:
            yield from self.function("reopen", step_id=step, given_nonce=nonce)

    def run(self, work: Callable[[], Work]) -> Any:
        """Run requests on a connection of their own; an awaitable where the client is async.

        Handlers run in other threads and loops than the pool of the client belongs to.
        """
        return self._arun(work()) if self.is_async else self._run(work())

    def _run(self, work: Work) -> Any:
        with httpx.Client() as client:
            return drive(work, client.send)

    async def _arun(self, work: Work) -> Any:
        async with httpx.AsyncClient() as client:
            return await adrive(work, client.send)


def drive(work: Work, send: Callable[[httpx.Request], httpx.Response]) -> Any:
    """Send what `work` asks for, and return what it returns."""
    try:
        request = next(work)
        while True:
            response = send(request)
            response.read()
            request = work.send(response)
    except StopIteration as done:
        return done.value


async def adrive(work: Work, send: Callable[[httpx.Request], Any]) -> Any:
    """See drive; `send` is async."""
    try:
        request = next(work)
        while True:
            response = await send(request)
            await response.aread()
            request = work.send(response)
    except StopIteration as done:
        return done.value


def _refusal(response: httpx.Response) -> Exception:
    try:
        body = response.json()
    except ValueError:
        body = {}
    if isinstance(body, dict) and body.get("code") == "AS002":
        values = json.loads(body.get("details") or "{}")
        return Conflict(
            f"{values.get('table')} {values.get('key')}: {body.get('message')}: before {values.get('before')!r}, "
            f"ours {values.get('ours')!r}, now {values.get('now')!r}",
            before=values.get("before"),
            ours=values.get("ours"),
            now=values.get("now"),
        )
    return httpx.HTTPStatusError(
        f"HTTP {response.status_code}: {response.text[:300]}", request=response.request, response=response
    )


class _Handler:
    def __init__(self, project: Project) -> None:
        self._project = project
        self.__qualname__ = f"{type(self).__name__}[{project.name}]"


class Restore(_Handler):
    """The compensator of a write."""

    def __call__(self, *, step: str) -> Any:
        def work() -> Work:
            known = yield from self._project.function("restore", step_id=step)
            return None if known == "step" else ALREADY_DONE

        return self._project.run(work)


class IsRestored(_Handler):
    """The verifier: the database itself says that the step does not stand."""

    def __call__(self, *, step: str) -> Any:
        def work() -> Work:
            return (yield from self._project.function("state", step_id=step)) in {"restored", "void"}

        return self._project.run(work)


class HasLanded(_Handler):
    """The probe: the database itself says whether the step was committed; from then on it cannot be committed later."""

    def __call__(self, key: str, kwargs: Any) -> Any:
        def work() -> Work:
            nonce = str(uuid.uuid4())
            found = yield from self._project.function("probe", step_id=key, given_nonce=nonce)
            if found["landed"]:
                # The answer is lost. Rows may have changed since, so none are made up.
                return Landed({"status": int(httpx.codes.NO_CONTENT), "text": ""})
            self._project.voided[key] = nonce
            return NotLanded()

        return self._project.run(work)


class RemoveFile(_Handler):
    """The compensator of an upload or a copy."""

    def __call__(self, *, bucket: str, path: str) -> Any:
        return self._project.run(lambda: self._one("DELETE", f"object/{quote(bucket)}", {"prefixes": [path]}))

    def _one(self, method: str, path: str, body: Any, service: str = "storage") -> Work:
        response = yield self._project.request(method, f"{service}/v1/{path}", body)
        if not response.is_success:
            raise _refusal(response)


class MoveFile(RemoveFile):
    """The compensator of a move."""

    def __call__(self, *, bucket: str, path: str, back_bucket: str = "", back: str = "") -> Any:
        body = {"bucketId": bucket, "sourceKey": path, "destinationKey": back, "destinationBucket": back_bucket}
        return self._project.run(lambda: self._one("POST", "object/move", body))


class DeleteUser(RemoveFile):
    """The compensator of a user that auth.admin made."""

    def __call__(self, *, user_id: str) -> Any:  # type: ignore[override]
        return self._project.run(
            lambda: self._one("DELETE", f"admin/users/{quote(user_id)}", {"should_soft_delete": False}, "auth")
        )
