"""Servers: what backups need is not deleted, nothing changes during a freeze, unknown tools do not run."""

import datetime as dt

from agent_saga import AgentKit, GateRefused, compensator
from agent_saga.gates import (
    AllowTools,
    ArgumentSchema,
    DenyTools,
    DenyValues,
    EffectRule,
    FreezeWindow,
    UndoPath,
    all_of,
    first_of,
    when,
)
from agent_saga.model.call import ProposedCall

servers = {"web": "v1"}
log: list[str] = []


@compensator("deploy.restore", idempotent=True, lives_in="/srv/releases/previous")
def restore(server: str, release: str) -> None:
    servers[server] = release


def deploy(server: str, release: str) -> str:
    before, servers[server] = servers[server], release
    return before


def delete(path: str) -> None:
    log.append(f"deleted {path}")


def scale(replicas: int) -> None:
    log.append(f"scaled to {replicas}")


def agree(_call: ProposedCall) -> bool:
    return True


now = dt.datetime.now(tz=dt.UTC)
POLICIES = [
    AllowTools("deploy", "delete", "scale"),
    DenyTools("drop_database", "rm_*"),
    UndoPath(tool="delete", destroys="path"),
    ArgumentSchema(
        tool="deploy",
        schema={
            "type": "object",
            "properties": {"server": {"enum": ["web"]}, "release": {"pattern": "^v[0-9]+$"}},
            "required": ["server", "release"],
        },
    ),
    FreezeWindow(tool="scale", starts_at=now, ends_at=now + dt.timedelta(hours=1), reason="the release is running"),
    first_of(
        when(
            all_of(EffectRule("irreversible", "ask"), DenyValues(argument="path", values=("/etc*", "/boot*"))),
            tool="delete",
        ),
        EffectRule("compensable", "allow", tool="deploy"),
        EffectRule("irreversible", "ask", tool="scale"),
    ),
]


def main() -> None:
    kit = AgentKit("memory:", policies=POLICIES, approver=agree)
    tools = {
        "deploy": kit.wrap(
            deploy, effect="compensable", compensate=restore.bind(server="kwargs.server", release="result")
        ),
        "delete": kit.wrap(delete, effect="irreversible"),
        "scale": kit.wrap(scale, effect="irreversible"),
        "rm-all": kit.wrap(delete, effect="irreversible", name="rm-all"),
    }

    def attempt(tool: str, **kwargs: object) -> None:
        try:
            tools[tool](**kwargs)
            print(f"{tool} done")
        except GateRefused as error:
            print(f"refused: {str(error).rpartition('effect: ')[2].partition(' until ')[0]}")

    with kit.transaction("release") as saga:
        attempt("deploy", server="web", release="v2; rm -rf /")
        attempt("deploy", server="web", release="v2")
        attempt("delete", path="/srv/releases/*")
        attempt("delete", path="/srv/../srv/releases")
        attempt("delete", path="/etc/passwd")
        attempt("scale", replicas=9)
        attempt("rm-all", path="/tmp/x")
        saga.roll_back("the health check failed")
    print(f"{saga.report.outcome}, clean: {saga.report.clean}; web runs {servers['web']}")
    with kit.transaction("clean up"):
        attempt("delete", path="/srv/releases/previous")
    print(log)
    kit.close()
