"""Stands in for ``moses`` where there is none, so that the tests against the real one are themselves run.

It shows that those tests work, and nothing about Moses. It reads what they give it: an ini with one text table, sentences of
a few words that the table covers. Phrases in the order of the source, every segmentation and translation, the best 50.
"""

import gzip
import math
import sys
from collections import defaultdict
from pathlib import Path


def read_ini(path: Path) -> tuple[str, int, dict[str, list[float]]]:
    lines = path.read_text().splitlines()
    (feature,) = [line.split() for line in lines if line.startswith("PhraseDictionaryMemory ")]
    values = dict(word.split("=", 1) for word in feature[1:])
    named = [line.split() for line in lines[lines.index("[weight]") + 1 :] if line]
    return values["path"], int(values["num-features"]), {words[0][:-1]: [float(w) for w in words[1:]] for words in named}


def read_table(path: str, n: int) -> dict[str, list[tuple[str, list[float]]]]:
    table = defaultdict(list)
    for row in gzip.decompress(Path(path).read_bytes()).decode().splitlines():
        src, tgt, scores = (field.strip() for field in row.split("|||")[:3])
        logs = [max(math.log(p), -100.0) if p else -100.0 for p in map(float, scores.split())]
        if len(logs) != n:
            sys.exit(f"{path}: {len(logs)} scores, num-features={n}")
        table[src].append((tgt, logs))
    return table


def main() -> None:
    arguments = sys.argv[1:]
    options = {
        name: arguments[i + 1] for i, name in enumerate(arguments[:-1]) if name in ("-config", "-input-file", "-n-best-list")
    }
    path, n, weights = read_ini(Path(options["-config"]))
    if len(weights["TranslationModel0"]) != n:
        sys.exit(f"{len(weights['TranslationModel0'])} weights, num-features={n}")
    table = read_table(path, n)
    lists = []
    for number, line in enumerate(Path(options["-input-file"]).read_text().splitlines()):
        source, found = line.split(), []

        def extend(start: int, pairs: list[tuple[int, int, str, list[float]]], source=source, found=found) -> None:
            if start == len(source):
                found.append(pairs)
            for end in range(start + 1, len(source) + 1):
                for tgt, logs in table.get(" ".join(source[start:end]), ()):
                    extend(end, [*pairs, (start, end, tgt, logs)])

        extend(0, [])
        candidates = []
        for pairs in found:
            words = " ".join(pair[2] for pair in pairs).split()
            sums = [sum(column) for column in zip(*(pair[3] for pair in pairs), strict=True)]
            values = {"WordPenalty0": [-len(words)], "PhrasePenalty0": [len(pairs)], "TranslationModel0": sums}
            total = sum(w * v for name in values for w, v in zip(weights[name], values[name], strict=True))
            spans, at = [], 0
            for start, end, tgt, _ in pairs:
                length = len(tgt.split())
                ends = (end - 1, at + length - 1)
                spans.append("=".join(str(a) if a == b else f"{a}-{b}" for a, b in zip((start, at), ends, strict=True)))
                at += length
            features = " ".join(f"{name}= {' '.join(f'{v:g}' for v in vs)}" for name, vs in values.items())
            entry = f"{number} ||| {' '.join(words)}  ||| {features} ||| {total:g} ||| {' '.join(spans)}\n"
            candidates.append((total, " ".join(words), entry))
        candidates.sort(key=lambda candidate: (-candidate[0], candidate[1]))
        print(candidates[0][1], end=" \n")
        lists += [entry for _, _, entry in candidates[:50]]
    Path(options["-n-best-list"]).write_text("".join(lists))


if __name__ == "__main__":
    main()
