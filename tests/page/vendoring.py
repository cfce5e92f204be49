"""Vendored libraries of the page: fetches them from the npm registry as `web/vendor/manifest.json` pins them.

Each archive must have the digest in the manifest, as the registry states it (`dist.integrity`). A file is taken as it
is, but for the edits that the manifest lists: a browser resolves relative imports only. Licences are taken along.

    python tests/page/vendoring.py            # fetch, edit, write; the manifest gets the new digests
    python tests/page/vendoring.py --check    # compare the files with the manifest, without a network
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import msgspec

VENDOR = Path(__file__).resolve().parents[2] / "backstory/page/web/vendor"
MANIFEST = VENDOR / "manifest.json"


class Edit(msgspec.Struct, frozen=True):
    """A text that stands once in a file, and what replaces it; without `find`, `replace` is added at the end."""

    replace: str
    find: str | None = None


class File(msgspec.Struct, omit_defaults=True):
    """A file of a package, and where it is written; `sha256` is that of the written file."""

    source: str
    target: str
    edits: tuple[Edit, ...] = ()
    sha256: str = ""


class Package(msgspec.Struct, omit_defaults=True):
    """A package of the registry; `integrity` is the digest of its archive."""

    name: str
    version: str
    license: str
    integrity: str
    files: tuple[File, ...]


class Manifest(msgspec.Struct):
    """All packages."""

    packages: tuple[Package, ...]


def read_manifest() -> Manifest:
    return msgspec.json.decode(MANIFEST.read_bytes(), type=Manifest)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def differences(manifest: Manifest, folder: Path = VENDOR) -> list[str]:
    """Return what is not as the manifest says: changed, missing and unlisted files."""
    listed = {file.target: file.sha256 for package in manifest.packages for file in package.files}
    there = {
        path.relative_to(folder).as_posix(): digest(path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MANIFEST.name
    }
    found = [f"{name} is missing" for name in listed if name not in there]
    found += [f"{name} is not in the manifest" for name in there if name not in listed]
    return found + [f"{name} was changed" for name in listed if name in there and there[name] != listed[name]]


def fetch(package: Package, folder: Path) -> dict[str, bytes]:
    """Download a package, check its digest, and return its files.

    Raises:
        SystemExit: The archive is another one than the manifest names.
    """
    wanted = f"{package.name}@{package.version}"
    made = subprocess.run(
        ["npm", "pack", wanted, "--silent", "--pack-destination", str(folder)],
        check=True,
        capture_output=True,
        text=True,
        cwd=folder,
    )
    archive = folder / made.stdout.strip().splitlines()[-1]
    algorithm, _, expected = package.integrity.partition("-")
    actual = base64.b64encode(hashlib.new(algorithm, archive.read_bytes()).digest()).decode()
    if actual != expected:
        raise SystemExit(f"the archive of {wanted} has the digest {algorithm}-{actual}, not {package.integrity}")
    with tarfile.open(archive) as opened:
        return {
            member.name.partition("/")[2]: content.read()
            for member in opened
            if member.isfile() and (content := opened.extractfile(member)) is not None
        }


def edited(content: bytes, edits: tuple[Edit, ...], name: str) -> bytes:
    """Apply edits to a file.

    Raises:
        SystemExit: A text that is to be replaced does not stand there once.
    """
    text = content.decode()
    for edit in edits:
        if edit.find is None:
            text += edit.replace
        elif text.count(edit.find) != 1:
            raise SystemExit(f"{name} has {text.count(edit.find)} times {edit.find!r}: change the edit in the manifest")
        else:
            text = text.replace(edit.find, edit.replace)
    return text.encode()


def write(manifest: Manifest) -> None:
    """Fetch all packages and write their files and the manifest."""
    with tempfile.TemporaryDirectory() as folder:
        for package in manifest.packages:
            content = fetch(package, Path(folder))
            for file in package.files:
                made = edited(content[file.source], file.edits, f"{package.name}/{file.source}")
                target = VENDOR / file.target
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(made)
                file.sha256 = digest(made)
    MANIFEST.write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        found = differences(read_manifest())
        sys.stderr.writelines(f"{line}\n" for line in found)
        return 1 if found else 0
    write(read_manifest())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
