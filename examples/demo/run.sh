#!/usr/bin/env bash
# The demo from data to annotated phrase table; `make demo` runs it. Usage: run.sh VENV_DIR BUILD_DIR
set -euo pipefail

if [[ $# -ne 2 ]]; then
    echo "usage: $0 VENV_DIR BUILD_DIR" >&2
    exit 2
fi
bin=$1/bin
build=$2
here=$(dirname "$0")
table=$build/phrase-table.gz
annotated=$build/phrase-table.annotated.gz

heading() { printf '\n== %s\n' "$1"; }
explain() { printf '   %s\n' "$@"; }
rescore() {
    printf '\n$ phrase-rescore %s\n' "$*" >&2 # as the tool's own report does, so that stdout is free for its output
    "$bin/phrase-rescore" "$@"
}
# Every awk below reads its input to the end, so that no gzip dies of a closed pipe.
rows_of() { gzip -dc "$1" | LC_ALL=C awk -F ' [|][|][|] ' -v source="$2" '$1 == source'; }

mkdir -p "$build"

heading "1. A phrase table"
explain "A real one, English to French: the short messages of free software and their translations," \
    "with relative frequencies, lexical weights, word alignments and counts as Moses extracts them."
if [[ -e $table ]]; then
    explain "It is there already: $table"
else
    "$bin/python" "$here/build_table.py" --downloads "$build/downloads" -o "$table"
fi

heading "2. Train the RNN Encoder-Decoder on its phrase pairs"
explain "90 seconds, and a network a quarter as wide as the paper's. At the end it is tested on sources held out of" \
    "training: the negative log-likelihood (NLL) of a pair and the perplexity of a word, where lower is better," \
    "and then the same with the sources exchanged among the pairs. The more that control is worse, the better the" \
    "network reads its source, and does not only write French."
rm -rf "$build/model.training" # of a demo that was interrupted
rescore train "$table" -m "$build/model" --max-time 90s --eval-every 100 --hidden 256 --overwrite

heading "3. Append the columns to every row"
rescore annotate "$table" -m "$build/model" -o "$annotated"

heading "4. Before and after"
explain "The third field of a row holds its scores: p(s|t), lex(s|t), p(t|s), lex(t|s). The fifth and the sixth are new:" \
    "the network's p(t|s), and exp(number of target words that the network does not know)." \
    "Before:"
rows_of "$table" search
explain "After:"
rows_of "$annotated" search

heading "5. A row with an unknown word"
explain "The last score is 1 = exp(0) where every target word is known, and exp(1) = 2.718282 where one is not," \
    "so that the decoder can learn a weight for such rows of its own. The first of them:"
gzip -dc "$annotated" | LC_ALL=C awk -F ' [|][|][|] ' '
    { n = split($3, scores, " ") }
    scores[n] + 0 != 1 { if (!unknown++) print }
    END { printf "   (%d of %d rows have one)\n", unknown, NR }'

heading "6. Take the columns off again"
explain "Nothing else was touched: what is left is the input, byte for byte."
rescore strip "$annotated" -o - | cmp - <(gzip -dc "$table")
explain "Identical."
