"""Signed notes and checkpoints. Rule ids: NOTE-n."""

import base64

import pytest

from agent_saga.audit.note import (
    Checkpoint,
    Verifier,
    open_note,
    parse_checkpoint,
    sign,
    verifier_key,
    verifier_of,
)
from agent_saga.errors import BadEvidence, UsageError
from agent_saga.runtime.signatures import make_key

PRIVATE, _ = make_key()
POINT = Checkpoint(origin="agent-saga/ab", size=3, root=bytes(range(32)), tail=(17, bytes(32)))


def test_a_note_of_go_is_read():
    """NOTE-1: the example note of golang.org/x/mod/sumdb/note opens with its key, and with no other."""
    key = verifier_key("PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW")
    note = (
        "If you think cryptography is the answer to your problem,\n"
        "then you don't know what your problem is.\n"
        "\n"
        "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
    )
    assert open_note(note, key).endswith("problem is.\n")
    for changed in (note.replace("answer", "Answer"), note.replace("x08g", "x08h"), note.replace("ZJku", "ZJkv")):
        with pytest.raises(BadEvidence, match="no good signature"):
            open_note(changed, key)
    with pytest.raises(BadEvidence, match="no good signature"):
        open_note(note, Verifier(name="PeterNeumann", public=bytes(31) + b"\1"))


def test_what_is_signed_opens():
    """NOTE-2: a signed checkpoint opens with the key that its text form gives, beside signatures of others."""
    other, _ = make_key()
    note = sign(POINT.text(), "a.example/log", PRIVATE)
    cosigned = note + sign(POINT.text(), "b.example", other).rpartition("\n\n")[2]
    key = verifier_key(verifier_of("a.example/log", PRIVATE).text())
    assert parse_checkpoint(open_note(note, key)) == parse_checkpoint(open_note(cosigned, key)) == POINT


@pytest.mark.parametrize("text", ["", "x", "x\n\n", "x\n\ny\n", "x\n\n— a.example/log\n", "x\n\n— a.example/log !\n"])
def test_what_is_no_note_is_refused(text):
    """NOTE-3: text that is no signed note is refused."""
    with pytest.raises((UsageError, BadEvidence)):
        open_note(text, verifier_of("a.example/log", PRIVATE))


@pytest.mark.parametrize("text", ["", "a", "a+b+c", "a+00000000+AQ==", "a b+00000000+AQ=="])
def test_what_is_no_key_is_refused(text):
    """NOTE-4: a text that is no verifier key, or was mistyped, is refused."""
    with pytest.raises(UsageError):
        verifier_key(text)
    mistyped = "b" + verifier_of("a.example", PRIVATE).text()[1:]
    with pytest.raises(UsageError, match="mistyped"):
        verifier_key(mistyped)


def test_checkpoints_without_our_line():
    """NOTE-5: a checkpoint of another log software has no tail; lines that are not known are passed over."""
    text = f"example.com/log\n5\n{base64.b64encode(bytes(32)).decode()}\nunknown line\n"
    assert parse_checkpoint(text) == Checkpoint(origin="example.com/log", size=5, root=bytes(32))


@pytest.mark.parametrize("size", ["-1", "01", "1e3", "x", ""])
def test_what_is_no_checkpoint_is_refused(size):
    """NOTE-6: sizes are decimal numbers without signs and leading zeros; roots have 32 bytes."""
    root = base64.b64encode(bytes(32)).decode()
    with pytest.raises(UsageError):
        parse_checkpoint(f"o\n{size}\n{root}\n")
    with pytest.raises(UsageError):
        parse_checkpoint(f"o\n1\n{root[:-8]}\n")
    with pytest.raises(UsageError):
        parse_checkpoint("o\n1\n")
