"""Signed notes of heads: Ed25519 in the C2SP signed-note format of transparency logs.

A note is a text, an empty line, and signature lines. The text of a head's note has the lines of a C2SP checkpoint:

    backstory/users/ada                              origin: `backstory/` and the scope's folder; the global one: global
    7                                                the ledger's last seq
    CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=     its hash, 32 bytes in base64
    transcript 12 h1EN4b7Y…                          the transcript's last seq and hash, where it is not empty

    — example.com/ada Az3grlgt…                      key name, and base64 of the 4-byte key id and the signature

The hash is the hash of a chain, not the root of a Merkle tree, so there are no inclusion proofs. The extra [signing]
installs the library `cryptography`, which is loaded on first use.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import TYPE_CHECKING

import msgspec

from backstory.ledger.core.commit import Head
from backstory.ledger.core.errors import ConfigError, InputError
from backstory.ledger.core.scope import Scope

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_DASH = "\u2014"
_ED25519 = b"\x01"
_KEY_BYTES = 32
_ID_BYTES = 4
_HASH_BYTES = 32
_LONGEST_NOTE = 1 << 20
_PRIVATE = "PRIVATE+KEY+"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}", re.ASCII)
_TRANSCRIPT = re.compile(r"transcript (\S+) (\S+)")


class KeyPair(msgspec.Struct, frozen=True):
    """A private key to sign with and a public key to verify with, in the spelling of notes."""

    private: str
    public: str


class HeadNote(msgspec.Struct, frozen=True):
    """The content of a head's note; `transcript` is None if it has none."""

    origin: str
    ledger: Head
    transcript: Head | None


def new_key(name: str) -> KeyPair:
    """Make a new Ed25519 key pair.

    Args:
        name: The signer, as a URL without its scheme: `example.com/ada`. No spaces and no plus signs.

    Raises:
        InputError: The name is empty, or holds a space, a plus sign or a control character.
        ConfigError: The extra [signing] is not installed.
    """
    _must_be_name(name)
    private = _ed25519().generate()
    seed, public = private.private_bytes_raw(), private.public_key().public_bytes_raw()
    digits = _key_id(name, public).hex()
    return KeyPair(
        f"{_PRIVATE}{name}+{digits}+{_base64(_ED25519 + seed)}", f"{name}+{digits}+{_base64(_ED25519 + public)}"
    )


def sign_text(text: str, private: str) -> str:
    """Sign a text.

    Args:
        text: The text, which ends in a line feed.
        private: The private key, `PRIVATE+KEY+name+id+base64`.

    Returns:
        The note.

    Raises:
        InputError: The key or the text is invalid.
        ConfigError: The extra [signing] is not installed.
    """
    name, key = _private_key(private)
    _must_be_text(text, "the text")
    signature = _key_id(name, key.public_key().public_bytes_raw()) + key.sign(text.encode())
    return f"{text}\n{_DASH} {name} {_base64(signature)}\n"


def open_note(note: str, public: str) -> str | None:
    """Verify a note.

    Args:
        note: The note.
        public: The trusted key, `name+id+base64`.

    Returns:
        The signed text; None if the key has no valid signature of it.

    Raises:
        InputError: The note or the key is invalid.
        ConfigError: The extra [signing] is not installed.
    """
    name, key = _public_key(public)
    text, signatures = _parted(note)
    from cryptography.exceptions import InvalidSignature

    known = _key_id(name, key.public_bytes_raw())
    mine = [made[_ID_BYTES:] for signer, made in signatures if signer == name and made[:_ID_BYTES] == known]
    try:
        # The format requires that one invalid signature of a known key refuses the whole note.
        for signature in mine:
            key.verify(signature, text.encode())
    except InvalidSignature:
        return None
    return text if mine else None


def head_text(scope: Scope, ledger: Head, transcript: Head) -> str:
    """Return the heads of a scope's two streams as the text of a note."""
    lines = [origin_of(scope), str(ledger.seq), _base64(bytes.fromhex(ledger.hash))]
    if transcript.seq:
        lines.append(f"transcript {transcript.seq} {_base64(bytes.fromhex(transcript.hash))}")
    return "".join(f"{line}\n" for line in lines)


def read_head_text(text: str) -> HeadNote:
    """Read the text of a head's note; unknown extension lines are ignored.

    Raises:
        InputError: It is not the text of a checkpoint.
    """
    lines = text.removesuffix("\n").split("\n")
    if len(lines) < 3 or not all(lines):  # noqa: PLR2004 origin, size, hash
        raise InputError("the note is not over a head: its text must have the lines origin, seq and hash")
    stated = next((found for line in lines[3:] if (found := _TRANSCRIPT.fullmatch(line))), None)
    return HeadNote(lines[0], _head(lines[1], lines[2]), None if stated is None else _head(stated[1], stated[2]))


def origin_of(scope: Scope) -> str:
    """Return the origin line of a scope's notes, which is unique to the scope."""
    return f"backstory/{scope.folder or 'global'}"


def _head(seq: str, digest: str) -> Head:
    raw = _decoded(digest)
    if not _NUMBER.fullmatch(seq) or raw is None or len(raw) != _HASH_BYTES:
        raise InputError(f"the note is not over a head: {seq[:40]!r} {digest[:80]!r} is not a seq and a hash")
    return Head(int(seq), raw.hex())


# Notes.


def _parted(note: str) -> tuple[str, list[tuple[str, bytes]]]:
    """Split a note into its text and its signatures."""
    _must_be_text(note, "the note")
    text, gap, rest = note.rpartition("\n\n")
    lines = rest.removesuffix("\n").split("\n")
    if not gap or len(note) > _LONGEST_NOTE:
        raise InputError("this is not a signed note: it needs a text, an empty line and signature lines")
    signatures = []
    for line in lines:
        dash, _, signed = line.partition(" ")
        name, _, spelled = signed.partition(" ")
        made = _decoded(spelled)
        if dash != _DASH or not name or made is None or len(made) <= _ID_BYTES:
            raise InputError(f"this is not a signed note: {line[:80]!r} is not a signature line")
        signatures.append((name, made))
    return f"{text}\n", signatures


def _must_be_text(text: str, what: str) -> None:
    if not text.endswith("\n") or any(char < " " and char != "\n" for char in text):
        raise InputError(f"{what} must end in a line feed and hold no other control character")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{what} must not contain a lone surrogate") from error


# Keys.


def _must_be_name(name: str) -> None:
    if not name or "+" in name or any(char.isspace() or char < " " for char in name):
        raise InputError(
            f"{name[:80]!r} cannot name a key: give a name without spaces and plus signs, such as example.com/ada"
        )


def _private_key(spelled: str) -> tuple[str, Ed25519PrivateKey]:
    # The messages do not quote the key, which is a secret.
    wrong = "this is not a private key for notes, PRIVATE+KEY+name+id+base64: make one with `keygen`"
    spelled = spelled.strip()
    if not spelled.startswith(_PRIVATE):
        raise InputError(wrong)
    name, digits, raw = _key_parts(spelled.removeprefix(_PRIVATE), wrong)
    key = _ed25519().from_private_bytes(raw)
    if _key_id(name, key.public_key().public_bytes_raw()).hex() != digits:
        raise InputError(wrong)
    return name, key


def _public_key(spelled: str) -> tuple[str, Ed25519PublicKey]:
    spelled = spelled.strip()
    if spelled.startswith(_PRIVATE):
        # The message does not quote the key, which is a secret.
        raise InputError("this is a private key: verify notes with the public one, which `keygen` printed")
    wrong = f"{spelled[:80]!r} is not a key to verify notes with, name+id+base64: see `keygen`"
    name, digits, raw = _key_parts(spelled, wrong)
    if _key_id(name, raw).hex() != digits:
        raise InputError(wrong)
    _ed25519()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    return name, Ed25519PublicKey.from_public_bytes(raw)


def _key_parts(spelled: str, wrong: str) -> tuple[str, str, bytes]:
    """Return name, id and the 32 bytes of a key; the base64 may hold plus signs, the name may not."""
    name, _, rest = spelled.partition("+")
    digits, _, encoded = rest.partition("+")
    raw = _decoded(encoded)
    if raw is None or raw[:1] != _ED25519 or len(raw) != 1 + _KEY_BYTES:
        raise InputError(wrong)
    _must_be_name(name)
    return name, digits, raw[1:]


def _key_id(name: str, public: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + _ED25519 + public).digest()[:_ID_BYTES]


def _ed25519() -> type[Ed25519PrivateKey]:
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError as error:
        raise ConfigError("signed heads need cryptography: pip install 'backstory[signing]'") from error
    return Ed25519PrivateKey


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
