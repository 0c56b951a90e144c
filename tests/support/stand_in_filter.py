"""Stands in for ``filter-model-given-input.pl``: keeps the rows whose source is in the input. Arguments: TARGET INI INPUT."""

import gzip
import re
import sys
from pathlib import Path


def main() -> None:
    target, ini, sentences = map(Path, sys.argv[1:])
    target.mkdir()
    text = ini.read_text()
    (path,) = re.findall(r"^PhraseDictionaryMemory .*\bpath=(\S+)", text, re.MULTILINE)
    lines = sentences.read_text().splitlines()
    rows = gzip.decompress(Path(path).read_bytes()).decode().splitlines(keepends=True)
    kept = [row for row in rows if any(f" {row.split(' ||| ')[0]} " in f" {line} " for line in lines)]
    made = target / "phrase-table.0-0.1.1.gz"
    made.write_bytes(gzip.compress("".join(kept).encode()))
    (target / "moses.ini").write_text(text.replace(f"path={path}", f"path={made}"))


if __name__ == "__main__":
    main()
