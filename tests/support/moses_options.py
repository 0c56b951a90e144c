"""The options of Moses' programs that our pages and examples may use, each program with the file of Moses that defines them.

Without the dashes: moses and its Perl scripts take one or two. All from the source of February 2025.
"""

from __future__ import annotations

OPTIONS: dict[str, set[str]] = {
    # moses/Parameter.cpp, moses/parameters/NBestOptions.cpp
    "moses": {
        "config", "input-file", "threads", "n-best-list", "labeled-n-best-list", "include-segmentation-in-n-best",
        "show-weights", "weight-overwrite", "feature-overwrite",
    },
    # scripts/training/mert-moses.pl
    "mert-moses.pl": {
        "working-dir", "mertdir", "rootdir", "decoder-flags", "range", "batch-mira", "return-best-dev", "continue", "nbest",
        "no-filter-phrase-table",
    },
    # scripts/training/filter-model-given-input.pl
    "filter-model-given-input.pl": {"Binarizer", "MinScore", "Hierarchical"},
    # scripts/training/train-model.perl
    "train-model.perl": {
        "root-dir", "corpus", "f", "e", "alignment", "reordering", "lm", "external-bin-dir", "score-options", "first-step",
        "last-step", "config", "phrase-translation-table", "NoLex",
    },
    # misc/processPhraseTableMin.cpp
    "processPhraseTableMin": {
        "in", "out", "nscores", "rankscore", "encoding", "maxrank", "landmark", "fingerprint", "threads", "quantize",
        "join-scores", "no-alignment-info", "T",
    },
    # probingpt/CreateProbingPT.cpp
    "CreateProbingPT": {
        "input-pt", "output-dir", "num-scores", "num-lex-scores", "log-prob", "max-cache-size", "scfg",
    },
    # OnDiskPt/Main.cpp: seven values, of which filter-model-given-input.pl adds the last two
    "CreateOnDiskPt": set(),
}  # fmt: skip
