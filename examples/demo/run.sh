#!/usr/bin/env bash
# The whole job on real text, without Moses; `make demo` runs it. Usage: run.sh VENV_DIR BUILD_DIR
# What is in BUILD_DIR already is not made again. PHRASES, LM and NMT say how long the trainings are: by passes, since by the
# clock a busy machine would train worse models.
set -euo pipefail

if [[ $# -ne 2 ]]; then
    echo "usage: $0 VENV_DIR BUILD_DIR" >&2
    exit 2
fi
read -ra PHRASES <<< "${PHRASES:---epochs 1}"
read -ra LM <<< "${LM:---epochs 8}"
read -ra NMT <<< "${NMT:---epochs 6}"
here=$(realpath "$(dirname "$0")")
PATH=$(realpath "$1/bin"):$PATH
mkdir -p "$2/logs"
cd "$2"
tools=$(realpath --relative-to=. "$here")
beside=

heading() { printf '\n== %s\n' "$1"; }
explain() { printf '   %s\n' "$@"; }
failed() { # LOG
    tail -n 15 "$1" >&2
    printf 'run.sh: FAILED: the log is %s; the same command again continues here\n' "$PWD/$1" >&2
    exit 1
}
result() { # LOG: the lines that say what came of it
    grep -E ' messages, | rows, |held-out: |wrong sources: |BLEU ' "$1" | sed 's/^phrase-rescore: //; s/^/   /' || true
}
missing() { # FILE
    if [[ ! -e $1 ]]; then return 0; fi
    explain "$1 is there"
    return 1
}
make() { # FILE COMMAND...: run the command that makes FILE, unless it is there
    missing "$1" || return 0
    printf '\n$ %s\n' "${*:2}"
    local log=logs/$1.log
    "${@:2}" 2> "$log" || failed "$log"
    result "$log"
}
decode() { # LIST SOURCE WEIGHTS TABLE
    make "$1" "$tools/decoder.py" "$2" --table "$4" --text train.fr --weights "$3" -o "$1"
}
trap '[[ -z $beside ]] || kill "$beside" 2> /dev/null' EXIT

explain "Everything is made in $2; commands are shown as you would type them there." \
    "What is there already is not made again: delete it if you want it anew."

heading "1. Texts and a phrase table"
explain "The messages of free software and their French translations. 500 messages for tuning and 1,000 for the test" \
    "are held out; the phrase table is extracted from the others. The first time some 90 MB are downloaded."
if [[ ! -e train.fr ]]; then rm -f phrase-table.gz; fi
make phrase-table.gz "$tools/build_table.py" --downloads downloads -o .

heading "2. A phrase-based system"
explain "There is no Moses here. decoder.py, a small beam search, stands in for it and writes n-best lists as Moses does." \
    "Its weights come from two rounds: decode the tuning set, tune."
missing start.ini && printf '%s\n' '[weight]' 'Distortion0= 0.3' 'LM0= 0.5' 'WordPenalty0= -1' 'PhrasePenalty0= 0.2' \
    'TranslationModel0= 0.2 0.2 0.2 0.2' > start.ini
decode dev.1.nbest.gz dev.en start.ini phrase-table.gz
make round1.ini phrase-rescore tune dev.1.nbest.gz --reference dev.fr --weights none -o round1.ini
decode dev.2.nbest.gz dev.en round1.ini phrase-table.gz
make baseline.ini phrase-rescore tune dev.1.nbest.gz dev.2.nbest.gz --reference dev.fr --weights none -o baseline.ini
decode test.nbest.gz test.en baseline.ini phrase-table.gz
make test.out phrase-rescore rescore test.nbest.gz --best --source test.en -o test.out

heading "3. Step 1: two columns in the phrase table"
explain "A network is trained on the phrase pairs, a minute of two cores. Its p(target | source) becomes a column of the table." \
    "Perplexity is that of a word of pairs held out. With wrong sources it must be much worse."
rm -rf rnn.training # of a demo that was interrupted
make rnn phrase-rescore train phrase-table.gz -m rnn "${PHRASES[@]}" --hidden 256
make phrase-table.rnn.gz phrase-rescore annotate phrase-table.gz -m rnn -o phrase-table.rnn.gz
printf '\n   A row before and after: p(target | source), and exp(number of target words that the network does not know).\n'
for table in phrase-table.gz phrase-table.rnn.gz; do
    gzip -dc "$table" | LC_ALL=C awk -F ' [|][|][|] ' '$1 == "search" && $2 == "rechercher" { print "   " $0 }'
done
missing start.rnn.ini && sed '/^TranslationModel0=/s/$/ 0.04 0/' baseline.ini > start.rnn.ini # the weights of moses-ini
decode dev.rnn.nbest.gz dev.en start.rnn.ini phrase-table.rnn.gz
make rnn.ini phrase-rescore tune dev.rnn.nbest.gz --reference dev.fr --weights none -o rnn.ini
decode test.rnn.nbest.gz test.en rnn.ini phrase-table.rnn.gz
make test.rnn.out phrase-rescore rescore test.rnn.nbest.gz --best --source test.en -o test.rnn.out

heading "4. Step 2: models of whole sentences in the n-best lists"
explain "A language model and a translation model are trained side by side, a core each: some three minutes if nothing else runs."
rm -rf nlm.training nmt.training
if missing nlm; then
    command=(phrase-rescore train-lm train.fr -m nlm "${LM[@]}" --threads 1 --hidden 256 --embedding 128)
    printf '\n$ %s &\n' "${command[*]}"
    "${command[@]}" 2> logs/nlm.log &
    beside=$!
fi
make nmt phrase-rescore train-nmt train.en train.fr -m nmt "${NMT[@]}" --threads 1 --hidden 192 --embedding 128
if [[ $beside ]]; then
    printf '\n$ wait\n'
    wait "$beside" || failed logs/nlm.log
    beside=
    result logs/nlm.log
fi
for set in dev test; do
    make "$set.all.nbest.gz" phrase-rescore rescore "$set.rnn.nbest.gz" -m nlm -m nmt --source "$set.en" -o "$set.all.nbest.gz"
done
make weights.ini phrase-rescore tune dev.all.nbest.gz --reference dev.fr -o weights.ini
make test.all.out phrase-rescore rescore test.all.nbest.gz --weights weights.ini --best --source test.en -o test.all.out

heading "5. What it gained on the 1,000 messages of the test"
command=(phrase-rescore evaluate --metrics bleu --set test test.fr before=test.out columns=test.rnn.out both=test.all.out)
printf '$ %s\n\n' "${command[*]}"
if [[ ! -e evaluation.txt ]]; then
    "${command[@]}" 2> logs/evaluation.log > evaluation.unfinished || failed logs/evaluation.log
    mv evaluation.unfinished evaluation.txt
fi
cat evaluation.txt
printf '\n'
explain "A real Moses adds lexicalized reordering, longer phrases and n-grams, and more rounds of tuning, so it starts higher." \
    "Your own system needs its phrase-table.gz, moses.ini and n-best lists: go on at README.md, Quick start."
