#!/usr/bin/env bash
# From train-model.perl's output to a tuned system with a significance test; what every step is for: docs/moses.md.
#
#   MOSES=/opt/moses MODEL=/exp/model INI=/exp/mert/moses.ini TEXT=/exp/train.fr TUNE=/exp/dev TEST=/exp/test SRC=en TGT=fr \
#       WORK=/exp/rnn run.sh
#
# It stops at the first step that fails and says which. The same command again continues there.
set -euo pipefail

usage() {
    cat >&2 <<'END'
usage: VARIABLE=value ... run.sh
  MOSES    a Moses installation: $MOSES/bin, $MOSES/scripts
  MODEL    a model folder of train-model.perl: $MODEL/phrase-table.gz, $MODEL/moses.ini
  TEXT     text in the target language, tokenized as the training text: its target side, or more
  TUNE     stem of the tuning set, tokenized likewise: $TUNE.$SRC, $TUNE.$TGT
  TEST     stem of the test set
  SRC TGT  endings of their files, such as en and fr
  WORK     folder for all that is made
These may be left out:
  INI=$MODEL/moses.ini            the baseline, best a tuned one: its weights are those that tuning starts from
  TABLE=$MODEL/phrase-table.gz    its phrase table, as text
  TRAIN_OPTIONS=                  of phrase-rescore train
  LM_OPTIONS=                     of phrase-rescore train-lm
  BITEXT=                         stem of the training text, $BITEXT.$SRC and $BITEXT.$TGT: a translation model joins the lists
  NMT_OPTIONS=                    of phrase-rescore train-nmt
  INVERSE=no                      yes: a second model, of p(source | target)
  TUNER=mert                      mira: batch MIRA
  RUNS=1                          tuning runs; 3 for a paper
  RETUNE_BASELINE=no              yes: the baseline is tuned as often, from the same weights
  CHECK_SENTENCES=300             of the tuning set, decoded to see that weights of zero change nothing
  THREADS=1                       of the decoder
END
    exit 2
}

stop() {
    printf 'run.sh: %s\n' "$1" >&2
    exit 1
}

# ---- settings

for name in MOSES MODEL TEXT TUNE TEST SRC TGT WORK; do
    if [[ -z ${!name:-} ]]; then
        printf 'run.sh: %s is not set\n' "$name" >&2
        usage
    fi
done
INI=${INI:-$MODEL/moses.ini}
TABLE=${TABLE:-$MODEL/phrase-table.gz}
TRAIN_OPTIONS=${TRAIN_OPTIONS:-}
LM_OPTIONS=${LM_OPTIONS:-}
BITEXT=${BITEXT:-}
NMT_OPTIONS=${NMT_OPTIONS:-}
INVERSE=${INVERSE:-no}
TUNER=${TUNER:-mert}
RUNS=${RUNS:-1}
RETUNE_BASELINE=${RETUNE_BASELINE:-no}
CHECK_SENTENCES=${CHECK_SENTENCES:-300}
THREADS=${THREADS:-1}
SETTINGS="MOSES MODEL INI TABLE TEXT TUNE TEST SRC TGT TRAIN_OPTIONS LM_OPTIONS BITEXT NMT_OPTIONS INVERSE TUNER RUNS RETUNE_BASELINE CHECK_SENTENCES"

moses=$MOSES/bin/moses
filter=$MOSES/scripts/training/filter-model-given-input.pl
mert=$MOSES/scripts/training/mert-moses.pl
annotated=$WORK/phrase-table.rnn.gz
ini=$WORK/rnn.ini

for name in MOSES MODEL INI TABLE TEXT TUNE TEST WORK ${BITEXT:+BITEXT}; do
    case ${!name} in
        *[[:space:]]*) stop "$name=${!name}: Moses' scripts take no path with a blank in it" ;;
        /*) ;;
        *) stop "$name=${!name}: give the whole path, from / on; tuning runs the decoder in a folder of its own" ;;
    esac
done
for program in "$moses" "$filter" "$mert" "$MOSES"/bin/{extractor,mert,pro,kbmira,evaluator}; do # mert-moses.pl wants all
    [[ -x $program ]] || stop "$program: no such program; MOSES names an installation with bin and scripts"
done
command -v phrase-rescore > /dev/null || stop "phrase-rescore is not on the PATH"
for file in "$INI" "$TABLE" "$TEXT" "$TUNE.$SRC" "$TUNE.$TGT" "$TEST.$SRC" "$TEST.$TGT" ${BITEXT:+"$BITEXT.$SRC" "$BITEXT.$TGT"}; do
    [[ -s $file ]] || stop "$file: no such file, or empty"
done
if relative=$(grep -nE '^[^#]*[[:blank:]]path=[^/]' "$INI"); then
    stop "$INI:${relative%%:*}: a relative path; write it from / on, tuning runs the decoder in a folder of its own"
fi
[[ $TUNER == mert || $TUNER == mira ]] || stop "TUNER=$TUNER: mert or mira"
[[ $RUNS =~ ^[1-9][0-9]*$ ]] || stop "RUNS=$RUNS: a number from 1 on"

mkdir -p "$WORK/done" "$WORK/logs"
for name in $SETTINGS; do printf '%s=%s\n' "$name" "${!name}"; done > "$WORK/settings.now"
if [[ -e $WORK/settings ]] && ! changed=$(diff "$WORK/settings" "$WORK/settings.now"); then
    stop "$WORK was begun with other settings; choose another WORK, or delete it:
$changed"
fi
mv "$WORK/settings.now" "$WORK/settings"

# ---- steps: each once; a half done one starts over

current=
exec 3>&2 # a step that fails has its own standard error in its log
report() {
    local status=$?
    if ((status)) && [[ -n $current ]]; then
        tail -n 15 "$WORK/logs/$current.log" >&3
        printf 'run.sh: FAILED in step %s: %s\n' "$current" "$WORK/logs/$current.log" >&3
        printf 'run.sh: the same command again continues from this step\n' >&3
    fi
}
trap report EXIT

step() { # NAME COMMAND...
    current=$1
    if [[ -e $WORK/done/$current ]]; then
        printf 'run.sh: %s: done before\n' "$current" >&2
    else
        printf 'run.sh: %s\n' "$current" >&2
        "${@:2}" > "$WORK/logs/$current.log" 2>&1
        touch "$WORK/done/$current"
    fi
    current=
}

train() { # MODEL_DIR COMMAND INPUT OPTION... (or another INPUT)
    local resume=
    [[ ! -e $1/config.json ]] || return 0 # it appears when it is complete
    [[ ! -e $1.training ]] || resume=--resume
    phrase-rescore "$2" "$3" -m "$1" -q "${@:4}" $resume
}

annotate() {
    local models=(-m "$WORK/forward")
    if [[ $INVERSE == yes ]]; then models+=(-m "$WORK/inverse"); fi
    phrase-rescore annotate "$TABLE" "${models[@]}" -q --overwrite -o "$annotated"
}

filtered() { # FOLDER INI INPUT: a model of the input's phrases alone. The script takes no folder that is there.
    rm -rf "$1"
    "$filter" "$1" "$2" "$3"
}

decode() { # INI INPUT OUTPUT OPTION...
    "$moses" -config "$1" -input-file "$2" -threads "$THREADS" "${@:4}" > "$3.part"
    [[ $(wc -l < "$3.part") -eq $(wc -l < "$2") ]] || stop "$3.part has another number of lines than $2"
    mv "$3.part" "$3"
}

zero_weights() {
    local check=$WORK/zero
    mkdir -p "$check"
    head -n "$CHECK_SENTENCES" "$TUNE.$SRC" > "$check/input"
    phrase-rescore moses-ini "$INI" --table "$annotated" --weights zero -q --overwrite -o "$check/zero.ini"
    filtered "$check/filtered.baseline" "$INI" "$check/input"
    filtered "$check/filtered.zero" "$check/zero.ini" "$check/input"
    decode "$check/filtered.baseline/moses.ini" "$check/input" "$check/baseline.out"
    decode "$check/filtered.zero/moses.ini" "$check/input" "$check/zero.out"
    cmp "$check/baseline.out" "$check/zero.out" || stop "with weights of zero the annotated table gives another output \
than the baseline ($check/*.out): ini and table do not belong together"
    rm -rf "$check/filtered.baseline" "$check/filtered.zero"
}

small_weights() {
    phrase-rescore moses-ini "$INI" --table "$annotated" --overwrite -o "$ini" # its log has the --range for mert-moses.pl
}

tune() { # SYSTEM INI RUN, in a folder of its own that holds the finished iterations
    local folder=$WORK/tune.$1.$3 options=()
    mkdir -p "$folder"
    rm -f "$folder/features.list"                      # mert-moses.pl would believe an old one
    ln -sfn "$WORK/filtered.$1" "$folder/filtered"     # and filters nothing where this is there
    if [[ -s $folder/finished_step.txt ]]; then options+=(--continue); fi
    if [[ $TUNER == mira ]]; then
        options+=(--batch-mira --return-best-dev)
    elif [[ $1 == rnn ]]; then
        options+=("$(grep -o -e '--range=[^ ]*' "$WORK/logs/small-weights.log")")
    fi
    "$mert" "$TUNE.$SRC" "$TUNE.$TGT" "$moses" "$2" --working-dir "$folder" --mertdir "$MOSES/bin" \
        --rootdir "$MOSES/scripts" --decoder-flags "-threads $THREADS" ${options[@]+"${options[@]}"}
    [[ -s $folder/moses.ini ]] || stop "$folder/moses.ini: not there after tuning"
}

translate() { # NAME INI: both sets, with the phrases of each, and their 200-best lists
    local set folder
    for set in tune test; do
        local stem=$TUNE
        if [[ $set == test ]]; then stem=$TEST; fi
        folder=$WORK/filtered.$1.$set
        filtered "$folder" "$2" "$stem.$SRC"
        decode "$folder/moses.ini" "$stem.$SRC" "$WORK/$set.$1.out" -n-best-list "$WORK/$set.$1.nbest" 200 distinct
        rm -rf "$folder"
    done
}

rerank() { # SYSTEM RUN: language and translation model in the lists of both sets, weights by those of the tuning set
    local set stem name=$1.$2 weights=$WORK/$1+lm.$2.ini
    for set in tune test; do
        stem=$TUNE
        if [[ $set == test ]]; then stem=$TEST; fi
        phrase-rescore rescore "$WORK/$set.$name.nbest" -m "$WORK/lm" ${BITEXT:+-m "$WORK/nmt" --source "$stem.$SRC"} -q \
            --overwrite -o "$WORK/$set.$name.nbest.gz"
    done
    phrase-rescore tune "$WORK/tune.$name.nbest.gz" --reference "$TUNE.$TGT" --seed "$2" --overwrite -o "$weights"
    for set in tune test; do
        phrase-rescore rescore "$WORK/$set.$name.nbest.gz" --weights "$weights" --best -q --overwrite -o "$WORK/$set.$1+lm.$2.out"
    done
    rm "$WORK"/{tune,test}."$name".nbest
}

outputs() { # SET SYSTEM TUNED: the outputs of its runs, a comma between
    local list=$WORK/$1.$2.out run
    if [[ $3 == yes ]]; then
        list=
        for ((run = 1; run <= RUNS; run++)); do list+=${list:+,}$WORK/$1.$2.$run.out; done
    fi
    printf '%s=%s' "$2" "$list"
}

compare() {
    phrase-rescore evaluate -q \
        --set tune "$TUNE.$TGT" "$(outputs tune baseline "$RETUNE_BASELINE")" "$(outputs tune rnn yes)" "$(outputs tune rnn+lm yes)" \
        --set test "$TEST.$TGT" "$(outputs test baseline "$RETUNE_BASELINE")" "$(outputs test rnn yes)" "$(outputs test rnn+lm yes)" \
        > "$WORK/evaluation.txt"
}

step info phrase-rescore info "$TABLE"
# shellcheck disable=SC2086 # these options are words
{
    step train-forward train "$WORK/forward" train "$TABLE" --pairs "$WORK/pairs" $TRAIN_OPTIONS
    if [[ $INVERSE == yes ]]; then
        step train-inverse train "$WORK/inverse" train "$TABLE" --pairs "$WORK/pairs" --inverse $TRAIN_OPTIONS
    fi
    step train-lm train "$WORK/lm" train-lm "$TEXT" $LM_OPTIONS
    if [[ $BITEXT ]]; then step train-nmt train "$WORK/nmt" train-nmt "$BITEXT.$SRC" "$BITEXT.$TGT" $NMT_OPTIONS; fi
}
step annotate annotate
step zero-weights zero_weights
step small-weights small_weights
step filter-rnn filtered "$WORK/filtered.rnn" "$ini" "$TUNE.$SRC"
for ((run = 1; run <= RUNS; run++)); do
    step "tune-rnn-$run" tune rnn "$ini" "$run"
    step "translate-rnn-$run" translate "rnn.$run" "$WORK/tune.rnn.$run/moses.ini"
    step "rerank-rnn-$run" rerank rnn "$run"
done
if [[ $RETUNE_BASELINE == yes ]]; then
    step filter-baseline filtered "$WORK/filtered.baseline" "$INI" "$TUNE.$SRC"
    for ((run = 1; run <= RUNS; run++)); do
        step "tune-baseline-$run" tune baseline "$INI" "$run"
        step "translate-baseline-$run" translate "baseline.$run" "$WORK/tune.baseline.$run/moses.ini"
    done
else
    step translate-baseline translate baseline "$INI"
fi
step evaluate compare
cat "$WORK/evaluation.txt"
