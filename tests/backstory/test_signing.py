"""Signed notes are those of other tools: the vectors are published ones, and a forged log is found by an older note."""

from __future__ import annotations

import base64
import sys

import pytest

from backstory.ledger.core.commit import EMPTY, Head
from backstory.ledger.core.errors import ConfigError, InputError
from backstory.ledger.core.scope import Scope
from backstory.witness.signing import HeadNote, head_text, new_key, open_note, read_head_text, sign_text

# The example of golang.org/x/mod/sumdb/note; Ed25519 is deterministic, so the note has to be this one to the byte.
PRIVATE = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz"
PUBLIC = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
TEXT = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
SIGNATURE = (
    "\u2014 PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)
ENOCH_PUBLIC = "EnochRoot+af0cfe78+ATtqJ7zOtqQtYqOo0CpvDXNlMhV3HeJDpjrASKGLWdop"
ENOCH_SIGNATURE = (
    "\u2014 EnochRoot rwz+eBzmZa0SO3NbfRGzPCpDckykFXSdeX+MNtCOXm2/5n2tiOHp+vAF1aGrQ5ovTG01oOTGwnWLox33WWd1RvMc+QQ=\n"
)
NOTE = f"{TEXT}\n{SIGNATURE}"

# The one that the signed-note specification gives for Ed25519.
SPEC_PUBLIC = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
SPEC_NOTE = (
    "This is an example message.\n\n\u2014 example.com/foo "
    "Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n"
)
HASH = bytes(range(32))


def test_a_note_is_signed_as_other_tools_sign_it() -> None:
    assert sign_text(TEXT, PRIVATE) == NOTE
    assert sign_text(TEXT, f"{PRIVATE}\n") == NOTE


def test_notes_of_other_tools_are_verified() -> None:
    assert open_note(NOTE, PUBLIC) == TEXT
    assert open_note(SPEC_NOTE, SPEC_PUBLIC) == "This is an example message.\n"
    for key in (PUBLIC, ENOCH_PUBLIC):
        assert open_note(NOTE + ENOCH_SIGNATURE, key) == TEXT


def test_a_note_that_the_key_has_not_signed_is_none() -> None:
    assert open_note(NOTE, ENOCH_PUBLIC) is None
    assert open_note(NOTE.replace("you think", "you Think"), PUBLIC) is None
    # Of the same name, and another key.
    assert open_note(NOTE, new_key("PeterNeumann").public) is None
    # One signature of the key holds, another does not.
    other = sign_text("Another text.\n", PRIVATE).rpartition("\n\n")[2]
    assert open_note(NOTE + other, PUBLIC) is None


def test_signatures_of_keys_that_share_only_a_name_or_an_id_are_passed_over() -> None:
    mine = base64.b64decode(SIGNATURE.split()[2])
    foreign = (("PeterNeumann", b"\0" * 4 + mine[4:]), ("Another", mine[:4] + b"\0" * 64))
    for name, made in foreign:
        line = f"\u2014 {name} {base64.b64encode(made).decode()}\n"
        assert open_note(NOTE + line, PUBLIC) == TEXT
        assert open_note(f"{TEXT}\n{line}", PUBLIC) is None


@pytest.mark.parametrize(
    "note",
    [
        "",
        "text",
        f"{TEXT}\n",
        TEXT + SIGNATURE,
        NOTE[:-1],
        NOTE.replace("\u2014", "-"),
        NOTE + "more\n",
        f"a\r\n{NOTE}",
    ],
)
def test_what_is_no_note_is_an_error(note: str) -> None:
    with pytest.raises(InputError, match=r"note"):
        open_note(note, PUBLIC)


def test_a_line_separator_of_unicode_is_no_line_feed() -> None:
    note = sign_text("one\u2028two\x85\n", PRIVATE)
    assert open_note(note, PUBLIC) == "one\u2028two\x85\n"


def test_a_mangled_key_is_none() -> None:
    for cut in range(1, len(PUBLIC)):
        for mangled in (PUBLIC[:cut], PUBLIC[cut:], PUBLIC[:cut] + chr(ord(PUBLIC[cut]) + 1) + PUBLIC[cut + 1 :]):
            with pytest.raises(InputError):
                open_note(NOTE, mangled)
    for cut in range(len(PRIVATE)):
        for mangled in (PRIVATE[:cut], PRIVATE[:cut] + chr(ord(PRIVATE[cut]) + 1) + PRIVATE[cut + 1 :]):
            with pytest.raises(InputError) as error:
                sign_text(TEXT, mangled)
            assert "AYEK" not in str(error.value)
    # A wrong length, and an unknown algorithm, each with the id that belongs to it.
    for mangled in (
        "PeterNeumann+cc469956+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TWBADKEY==",
        "PeterNeumann+173116ae+ZRpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
    ):
        with pytest.raises(InputError):
            open_note(NOTE, mangled)


def test_a_new_key_signs_and_verifies() -> None:
    pair = new_key("example.com/ada")
    assert pair.private.startswith("PRIVATE+KEY+example.com/ada+")
    assert open_note(sign_text(TEXT, pair.private), pair.public) == TEXT
    assert new_key("example.com/ada") != pair


@pytest.mark.parametrize("name", ["", "a b", "a+b", "a\u3000b", "a\nb"])
def test_a_name_that_no_key_can_have_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"example\.com/ada"):
        new_key(name)


def test_the_text_of_a_head_has_the_lines_of_a_checkpoint() -> None:
    text = head_text(Scope("ada"), Head(7, HASH.hex()), Head(12, HASH.hex()))
    spelled = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
    assert text == f"backstory/users/ada\n7\n{spelled}\ntranscript 12 {spelled}\n"
    assert read_head_text(text) == HeadNote("backstory/users/ada", Head(7, HASH.hex()), Head(12, HASH.hex()))
    assert head_text(Scope(), EMPTY, EMPTY).splitlines()[:2] == ["backstory/global", "0"]
    assert read_head_text(f"o\n0\n{spelled}\nan extension\n").transcript is None


@pytest.mark.parametrize(
    "text", [TEXT, "o\n7\n", "o\n07\nAAAA\n", "o\n7\nAAAA\n", "o\nx\n" + "A" * 43 + "=\n", "o\n\n1\n"]
)
def test_what_is_no_text_of_a_head_is_an_error(text: str) -> None:
    with pytest.raises(InputError, match="not over a head"):
        read_head_text(text)


def test_without_the_extra_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    for work in (lambda: new_key("ada"), lambda: sign_text(TEXT, PRIVATE), lambda: open_note(NOTE, PUBLIC)):
        with pytest.raises(ConfigError, match=r"pip install 'backstory\[signing\]'"):
            work()
