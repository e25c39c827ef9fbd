"""checkpoint, audit-root, prove, verify-proof, certify and verify --anchor, as a user runs them."""

import json
import shutil


def test_a_checkpoint_notices_that_the_log_was_replaced(shop):
    """A log that is an older copy of itself, mark included, passes `verify` and not `verify --anchor`."""
    shop.run("commit")
    shop.saga("keys", "new", "key")
    copy = shop.folder / "copy"
    copy.mkdir()
    for file in shop.folder.glob("agent-saga.db*"):
        if file.is_file():
            shutil.copy(file, copy)
    shop.run("commit again")
    shop.folder.joinpath("note").write_text(shop.saga("checkpoint", "--key", "key").stdout)
    public = shop.saga("checkpoint", "--key", "key").stderr.rpartition("public key: ")[2].strip()
    assert "anchor: the first" in shop.saga("verify", "--anchor", "note", "--key", public).stdout
    for file in shop.folder.glob("agent-saga.db*"):
        if file.is_file():
            file.unlink()
    for file in copy.iterdir():
        shutil.copy(file, shop.folder)
    assert "--anchor" in shop.saga("verify").stdout
    assert "tail is gone" in shop.saga("verify", "--anchor", "note", code=1).stderr
    assert "tail is gone" in shop.saga("certify", "--anchor", "note", code=1).stderr
    assert "no good signature" in shop.saga("verify", "--anchor", "note", "--key", other_key(public), code=1).stderr


def other_key(public):
    from agent_saga.audit.note import verifier_of
    from agent_saga.runtime.signatures import make_key

    return verifier_of(public.partition("+")[0], make_key()[0]).text()


def test_a_proof_is_checked_without_the_log(shop):
    """prove | verify-proof: exit 0 with the report, 1 for a changed proof, 2 for what is none."""
    shop.run("fail")
    saga = shop.only_saga()
    shop.folder.joinpath("proof").write_text(shop.saga("prove", saga, "--withhold", "kwargs.*").stdout)
    shop.folder.joinpath("agent-saga.db").rename(shop.folder / "elsewhere")
    assert "rolled back, clean" in shop.saga("verify-proof", "proof").stdout
    document = json.loads(shop.folder.joinpath("proof").read_text())
    del document["saga"]["records"][2]
    shop.folder.joinpath("proof").write_text(json.dumps(document))
    assert "out of place" in shop.saga("verify-proof", "proof", code=1).stderr
    shop.saga("verify-proof", "shop.py", code=2)
    shop.saga("verify-proof", "nowhere", code=2)


def test_certify_is_a_gate(shop):
    """certify: 0 when every effect is accounted for, 1 with the step that is not, 3 without a log."""
    shop.saga("certify", code=3)
    shop.run("commit")
    assert shop.data("certify")["certificate"]["certified"] is True
    shop.tell("refund-fails")
    shop.run("fail")
    document = shop.data("certify", "--out", "certificate.json", code=1)
    kinds = {finding["kind"] for finding in document["certificate"]["findings"]}
    assert kinds == {"failed"}
    assert json.loads((shop.folder / "certificate.json").read_text())["exit"] == 1
    shop.saga("certify", "--out", "certificate.json", code=2)
    missing = shop.data("certify", "--import", "json", code=1)["certificate"]["findings"]
    assert {finding["kind"] for finding in missing} == {"failed", "handler"}


def test_the_root_is_the_checkpoints(shop):
    """audit-root prints what a checkpoint of the same log holds."""
    import base64

    shop.run("commit")
    shop.saga("keys", "new", "key")
    root = shop.data("audit-root")
    lines = shop.saga("checkpoint", "--key", "key").stdout.splitlines()
    assert lines[:3] == [root["origin"], str(root["size"]), base64.b64encode(bytes.fromhex(root["root"])).decode()]
