#!/usr/bin/env bash
# From two text files to the table of the paper (Cho et al. 2014, Table 1), on a corpus of yours:
#
#   MOSES_BIN=/opt/moses/bin FAST_ALIGN=/opt/fast_align/build examples/paper/run.sh CONFIG [TARGET or NAME=VALUE of make]...
#
# experiment.mk has the steps, CONFIG what is special about one experiment, docs/experiments/bleu.md what came out. The same command again
# continues where it was interrupted, and makes again what depends on a file or a setting that has changed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

stop() {
    printf 'run.sh: %s\n' "$1" >&2
    exit "${2:-1}"
}

(($#)) || stop "usage: MOSES_BIN=... FAST_ALIGN=... run.sh CONFIG [TARGET or NAME=VALUE of make]...
configurations: $(cd "$here" && printf "%s " *-*.conf smoke.conf)" 2
config=$1
[[ -f $config ]] || stop "$config: there is no such configuration; run.sh alone lists those of $here" 2

[[ -n ${MOSES_BIN:-} ]] || stop "MOSES_BIN is not set; it names the folder of Moses' programs: git clone \
https://github.com/moses-smt/mosesdecoder, ./bjam -j4, then MOSES_BIN=.../mosesdecoder/bin" 2
[[ -n ${FAST_ALIGN:-} ]] || stop "FAST_ALIGN is not set; it names the folder of fast_align and atools: git clone \
https://github.com/clab/fast_align, build it with cmake, then FAST_ALIGN=.../fast_align/build" 2
export MOSES_BIN FAST_ALIGN MOSES_SCRIPTS=${MOSES_SCRIPTS:-$MOSES_BIN/../scripts}
# mert-moses.pl stops where one of mert, extractor, pro, kbmira and evaluator is missing, whichever it uses;
# train-model.perl calls the programs next to its own folder
for program in "$MOSES_BIN"/{moses,extract,score,consolidate,lmplz,build_binary,mert,extractor,pro,kbmira,evaluator} \
    "$FAST_ALIGN"/{fast_align,atools} "$MOSES_SCRIPTS"/../bin/{extract,score,consolidate} \
    "$MOSES_SCRIPTS"/training/{train-model.perl,clean-corpus-n.perl,mert-moses.pl,filter-model-given-input.pl} \
    "$MOSES_SCRIPTS"/{generic/{extract,score}-parallel,tokenizer/{tokenizer,lowercase}}.perl; do
    [[ -x $program ]] || stop "$program: there is no such program"
done
for program in phrase-rescore make perl python3 awk cmp grep gzip sed tar xz; do
    command -v "$program" > /dev/null || stop "$program is not on the PATH"
done
python3 -c 'import phrase_rescore' 2> /dev/null || stop "python3 does not find phrase_rescore; activate its environment"
case $PWD$MOSES_BIN$FAST_ALIGN in *[[:space:]]*) stop "Moses' scripts take no path with a blank in it" ;; esac

exec make --no-print-directory --no-builtin-rules --file "$here/experiment.mk" CONFIG="$config" "${@:2}"
