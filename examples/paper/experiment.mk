# The steps of an experiment, in their order. run.sh calls it; a configuration sets what stands in capitals under "Settings".
#
# A step writes its output under another name and renames it when it is complete. It is made again if a file that it depends on
# is newer: its inputs, and settings/NAME, which changes only with these settings.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.SECONDARY:
.SECONDEXPANSION:
.NOTPARALLEL:
.DEFAULT_GOAL := page

# ---- Settings; in brackets, what the same is called in a configuration of Moses' EMS

HERE := $(patsubst %/,%,$(dir $(abspath $(lastword $(MAKEFILE_LIST)))))
NAME := $(basename $(notdir $(CONFIG)))
WORK := $(abspath $(or $(WORK),paper-work))# for all that is made
DATA := $(abspath $(HERE)/../../../shared/data)#  of the bitexts
RESULTS = $(HERE)/results/$(NAME)#            what outlives the run: .tar.xz of counts and .md, the page
THREADS := $(shell nproc)

SRC =#                        [input-extension]
TGT =#                        [output-extension]
TRAIN =#                      stem [raw-stem] of $(TRAIN).$(SRC) and $(TRAIN).$(TGT), or of the same with .xz or .gz
DEV =#                        to tune on [TUNING: raw-input, raw-reference]
TEST =#                       to judge on [EVALUATION: raw-input, raw-reference]
TOKENIZE = no#                yes: tokenize and lower-case all text as Moses does
TRAIN_SEGMENTS =#             take so many segments only, spread evenly over the file
DEV_SEGMENTS =
TEST_SEGMENTS =
LM_ORDER = 5#                 [LM: order]
TRAIN_OPTIONS = --max-steps 5000#      of phrase-rescore train
CSLM_OPTIONS = --epochs 15#   of phrase-rescore train-lm
MODEL_OF =#                   take corpus, tables, language model and networks of this configuration instead
SYSTEMS = baseline kneser-ney rnn rnn+wp
RUNS = 3#                     tunings of each system
BASELINE_RUNS = $(RUNS)
TUNER = mert#                 or mira: batch MIRA [tuning-settings]
ITERATIONS = 6
LIMIT = 200#                  of cube pruning and of the stacks [decoder-settings]
HEADROOM = oracle coverage search#        bounds to measure, see below
COLUMNS = baseline rnn+wp#    of headroom "columns": systems of a table, the first to compare with, the last to make the lists
COLUMN_TRAIN_OPTIONS = $(TRAIN_OPTIONS)#  of phrase-rescore train on half of the text
COLUMN_SEGMENTS = 5600#       lists of each half

include $(HERE)/systems.conf
include $(CONFIG)

NETWORKS := $(patsubst network.%,%,$(filter network.%,$(.VARIABLES)))
W := $(WORK)/$(NAME)
M := $(if $(MODEL_OF),$(WORK)/$(MODEL_OF),$(W))

# ---- Words of the steps

# $(call begin,NAME): say which step begins; what its programs say goes to logs/NAME.log
define begin
name='$(1)'; log=$(W)/logs/$$name.log; mkdir -p $(@D) $(W)/logs; exec 3>&2 >"$$log" 2>&1
printf '%(%H:%M:%S)T %s: %s\n' -1 $(NAME) "$$name" >&3
trap 's=$$?; if ((s == 0)); then printf "%s\t%s\n" "$$name" $$SECONDS >>$(W)/logs/seconds.tsv; else tail -n 15 "$$log" >&3; \
printf "%s: FAILED in %s: %s\nthe same command again continues from this step\n" $(NAME) "$$name" "$$log" >&3; fi' EXIT
endef

# $(call text,STEM): print a file of text that may be compressed
text = { if [[ -e $(1) ]]; then cat $(1); elif [[ -e $(1).xz ]]; then xzcat $(1).xz; else zcat $(1).gz; fi; }
text_files = $(wildcard $(foreach end,$(SRC) $(TGT),$(1).$(end) $(1).$(end).xz $(1).$(end).gz))
# $(call prepared,LANGUAGE): tokenized and lower-cased, if asked for
prepared = $(if $(filter yes,$(TOKENIZE)),perl $(MOSES_SCRIPTS)/tokenizer/tokenizer.perl -q -l $(1) | perl $(MOSES_SCRIPTS)/tokenizer/lowercase.perl,cat)
# $(call some,N): N lines spread evenly, all without N
some = $(if $(1),awk -v n=$(1) '{ line[NR] = $$0 } END { for (i = 1; i <= NR; i++) if (NR <= n || int(i * n / NR) > int((i - 1) * n / NR)) print line[i] }',cat)

# $(call align,FOLDER,STEM): print the alignment of STEM.$(SRC) and STEM.$(TGT). Both directions at once, one thread each: several
# threads of fast_align add up in an order of their own, and the alignment is another one each time
define align
{ paste -d '\t' $(2).$(SRC) $(2).$(TGT) | sed 's/\t/ ||| /' >$(1)/bitext
	OMP_NUM_THREADS=1 $(FAST_ALIGN)/fast_align -i $(1)/bitext -d -o -v >$(1)/forward.align &
	OMP_NUM_THREADS=1 $(FAST_ALIGN)/fast_align -i $(1)/bitext -d -o -v -r >$(1)/reverse.align
	wait $$!
	$(FAST_ALIGN)/atools -i $(1)/forward.align -j $(1)/reverse.align -c grow-diag-final-and; }
endef

ifneq ($(filter decoder,$(foreach system,$(SYSTEMS),$(cslm.$(system)))),)
ifneq ($(wildcard $(MOSES_BIN)/moses),)
ifeq ($(shell grep -l NeuralLMWrapper $(MOSES_BIN)/moses),)
$(error $(MOSES_BIN)/moses knows no NeuralLM; build Moses --with-nplm=DIR (docs/lm.md), or leave systems with cslm = decoder out)
endif
endif
endif

# $(call begun,FILES): continue a training that was interrupted, unless it is one of older files
define begun
resume=
if [[ -d $(@D).training ]]; then
    resume=--resume
    for file in $(1); do if [[ $$file -nt $(@D).training/state.json ]]; then resume=; fi; done
    [[ $$resume ]] || rm -rf $(@D).training
fi
endef

# $(call search,LIMIT): options of the decoder
search = -search-algorithm 1 -cube-pruning-pop-limit $(1) -stack $(1)

# $(call setting,NAME,TEXT): settings/NAME, which changes when the text does
define setting
$(W)/settings/$(1): FORCE
	@mkdir -p $$(@D)
	printf '%s\n' '$(strip $(2))' | cmp -s - $$@ || printf '%s\n' '$(strip $(2))' >$$@
endef
FORCE:
$(eval $(call setting,corpus,$(SRC) $(TGT) $(TRAIN) $(TRAIN_SEGMENTS) $(TOKENIZE)))
$(eval $(call setting,sets,$(SRC) $(TGT) $(DEV) $(DEV_SEGMENTS) $(TEST) $(TEST_SEGMENTS) $(TOKENIZE)))
$(eval $(call setting,lm,$(LM_ORDER)))
$(foreach network,$(NETWORKS),$(eval $(call setting,network.$(network),$(TRAIN_OPTIONS) $(network.$(network)))))
$(eval $(call setting,cslm,$(CSLM_OPTIONS)))
$(eval $(call setting,tune,$(TUNER) $(ITERATIONS) $(LIMIT)))
$(foreach system,$(sort $(SYSTEMS) rnn),$(eval $(call setting,system.$(system),$(system.$(system)) $(cslm.$(system)) $(lists.$(system)))))

# ---- Corpus, alignment, phrase tables, language model, networks: of this configuration, or of MODEL_OF

ifeq ($(MODEL_OF),)

$(W)/corpus/train.$(SRC): $(call text_files,$(TRAIN)) $(W)/settings/corpus
	@$(call begin,corpus)
	for language in $(SRC) $(TGT); do
	    $(call text,$(TRAIN).$$language) | $(call some,$(TRAIN_SEGMENTS)) | $(call prepared,$$language) >$(@D)/all.$$language
	done
	perl $(MOSES_SCRIPTS)/training/clean-corpus-n.perl $(@D)/all $(SRC) $(TGT) $(@D)/clean 1 80
	mv $(@D)/clean.$(TGT) $(@D)/train.$(TGT)
	mv $(@D)/clean.$(SRC) $@
	rm $(@D)/all.*

$(W)/model/aligned.grow-diag-final-and: $(W)/corpus/train.$(SRC)
	@$(call begin,align)
	$(call align,$(@D),$(W)/corpus/train) >$@.part
	mv $@.part $@
	rm $(@D)/bitext $(@D)/*.align

$(W)/lm/$(TGT).blm: $(W)/lm/$(TGT).arpa.gz
	@$(call begin,language-model)
	$(MOSES_BIN)/build_binary $< $@.part
	mv $@.part $@

$(W)/lm/$(TGT).arpa.gz: $(W)/corpus/train.$(SRC) $(W)/settings/lm
	@$(call begin,ngrams)
	$(MOSES_BIN)/lmplz -o $(LM_ORDER) -S 20% -T $(@D)/ --discount_fallback <$(W)/corpus/train.$(TGT) | gzip -n >$@.part
	touch -r "$$(ls -t $^ | head -n 1)" $@.part # as old as if it had never been deleted
	mv $@.part $@

train_model = perl $(MOSES_SCRIPTS)/training/train-model.perl -root-dir $(W) -corpus $(W)/corpus/train -f $(SRC) -e $(TGT) \
	-alignment grow-diag-final-and -sort-buffer-size 1G -cores $(THREADS) -lm 0:$(LM_ORDER):$(W)/lm/$(TGT).blm:8

$(W)/model/phrase-table.gz: $(W)/model/aligned.grow-diag-final-and
	@$(call begin,extract-and-score)
	rm -f $@ $(@D)/lex.* $(@D)/extract.* # train-model.perl keeps what it finds
	$(train_model) -first-step 4 -last-step 6 -phrase-translation-table $(@D)/new
	mv $(@D)/new.gz $@

$(W)/model/phrase-table.kneser-ney.gz $(W)/model/phrase-table.good-turing.gz: \
$(W)/model/phrase-table.%.gz: $(W)/model/phrase-table.gz
	@$(call begin,score-$*)
	$(train_model) -first-step 6 -last-step 6 -phrase-translation-table $(@D)/new.$* \
	    -score-options $(if $(filter kneser-ney,$*),--KneserNey,--GoodTuring)
	mv $(@D)/new.$*.gz $@

$(W)/model/moses.ini: $(W)/model/phrase-table.gz $(W)/lm/$(TGT).blm
	@$(call begin,ini)
	$(train_model) -first-step 9 -last-step 9 -phrase-translation-table $(@D)/phrase-table -config $@.part
	mv $@.part $@

$(NETWORKS:%=$(W)/%/config.json): $(W)/%/config.json: $(W)/model/phrase-table.gz $(W)/settings/network.%
	@$(call begin,train-$*)
	$(call begun,$^)
	phrase-rescore train $< -m $(@D) --pairs $(W)/pairs --threads $(THREADS) $(TRAIN_OPTIONS) $(network.$*) --overwrite $$resume

$(W)/cslm/config.json: $(W)/corpus/train.$(SRC) $(W)/settings/cslm
	@$(call begin,train-cslm)
	$(call begun,$^)
	phrase-rescore train-lm $(W)/corpus/train.$(TGT) -m $(@D) --threads $(THREADS) $(CSLM_OPTIONS) --overwrite $$resume

# The network as Moses' feature NeuralLM reads it
$(W)/lm/cslm.nplm: $(W)/cslm/config.json
	@$(call begin,export-cslm)
	phrase-rescore export-lm --overwrite -m $(<D) -o $@

else

$(M)/%: FORCE
	@$(HERE)/run.sh $(dir $(CONFIG))$(MODEL_OF).conf $@ WORK=$(WORK)

endif

# ---- Sets, and the tables filtered to them

$(W)/corpus/dev.$(SRC) $(W)/corpus/test.$(SRC): $(W)/corpus/%.$(SRC): $(call text_files,$(DEV)) $(call text_files,$(TEST)) $(W)/settings/sets
	@$(call begin,$*)
	$(if $(filter dev,$*),stem=$(DEV),stem=$(TEST))
	for language in $(TGT) $(SRC); do
	    $(call text,$$stem.$$language) | $(call some,$(if $(filter dev,$*),$(DEV_SEGMENTS),$(TEST_SEGMENTS))) \
	        | $(call prepared,$$language) >$(@D)/$*.$$language.part
	    mv $(@D)/$*.$$language.part $(@D)/$*.$$language
	done

$(W)/filtered/%.gz: $(M)/model/phrase-table$$(if $$(filter-out plain,$$*),.$$*).gz $(M)/model/moses.ini \
    $(W)/corpus/dev.$(SRC) $(W)/corpus/test.$(SRC)
	@$(call begin,filter-$*)
	rm -rf $(@D)/$*
	cat $(W)/corpus/dev.$(SRC) $(W)/corpus/test.$(SRC) >$(@D)/$*.text
	sed -E 's#^(PhraseDictionaryMemory .*path=)[^ ]*#\1$(basename $<)#' $(M)/model/moses.ini >$(@D)/$*.ini
	perl $(MOSES_SCRIPTS)/training/filter-model-given-input.pl $(@D)/$* $(@D)/$*.ini $(@D)/$*.text
	mv $(@D)/$*/phrase-table.*.gz $@
	rm -r $(@D)/$* $(@D)/$*.ini $(@D)/$*.text

# ---- Systems and their runs: SYSTEM.1, SYSTEM.2, …

runs_of = $(shell seq $(if $(filter baseline,$(1)),$(BASELINE_RUNS),$(RUNS)))
every_run := $(foreach system,$(SYSTEMS),$(foreach run,$(call runs_of,$(system)),$(system).$(run)))

models = $(addprefix $(M)/,$(addsuffix /config.json,$(filter $(NETWORKS),$(system.$(1)))))
column = $(patsubst column=%,%,$(filter column=%,$(system.$(1))))
# Files of the language model that a system has: of the feature that decodes with it, or of what scores its n-best lists
cslm_files = $(addprefix $(M)/,$(if $(filter decoder,$(cslm.$(1))),lm/cslm.nplm))

$(W)/systems/%/phrase-table.gz: $(W)/filtered/$$(firstword $$(system.$$*)).gz $$(call models,$$*) $$(call column,$$*) $(W)/settings/system.$$*
	@$(call begin,system-$*)
	$(if $(call models,$*),phrase-rescore annotate --overwrite $< $(foreach word,$(wordlist 3,99,$(system.$*)),$(if $(filter $(NETWORKS),$(word)),$(M)/$(word),$(word))) -o $@,\
	$(if $(call column,$*),phrase-rescore annotate --overwrite $< $(addprefix --scores ,$(call column,$*)) -o $@,\
	cp $< $@.part && mv $@.part $@))

# What system.NAME calls column=$(W)/columns/… (by name, since make applies a rule for any name once in a chain)
$(foreach name,mass posterior pmi per-word discounted,$(W)/columns/$(name).gz): $(W)/columns/%.gz: $(W)/systems/rnn/phrase-table.gz
	@$(call begin,column-$*)
	python3 $(HERE)/derived.py $* $< | gzip -n >$@.part
	mv $@.part $@

# With the weights of train-model.perl
$(W)/systems/baseline/moses.ini: $(W)/systems/baseline/phrase-table.gz $(M)/model/moses.ini
	@$(call begin,ini-baseline)
	sed -E 's#^(PhraseDictionaryMemory .*path=)[^ ]*#\1$<#' $(M)/model/moses.ini >$@.part
	mv $@.part $@

# ---- Tuning. tuning/baseline.0 begins with the weights of train-model.perl, all others with its weights, disturbed by their seed

system_of = $(basename $(1))
run_of = $(subst .,,$(suffix $(1)))
start_of = $(if $(filter baseline.0,$(1)),$(W)/systems/baseline/moses.ini,$(W)/tuning/$(1)/start.ini)

reranked_run = $(lists.$(call system_of,$(1)))
decoded_runs := $(foreach run,$(every_run),$(if $(call reranked_run,$(run)),,$(run)))
reranked_runs := $(filter-out $(decoded_runs),$(every_run))
ifneq ($(filter-out $(call runs_of,baseline),$(if $(reranked_runs),$(call runs_of,other))),)
$(error a system with lists = baseline re-ranks those of the baseline's run of the same number: BASELINE_RUNS is below RUNS)
endif

$(decoded_runs:%=$(W)/tuning/%/start.ini): $(W)/tuning/%/start.ini: $(W)/tuning/baseline.0/moses.ini \
    $(W)/systems/$$(call system_of,$$*)/phrase-table.gz $$(call cslm_files,$$(call system_of,$$*))
	@$(call begin,start-$*)
	table=$(word 2,$^)
	sed -E "s#^(PhraseDictionaryMemory .*path=)[^ ]*#\1$$table#" $< >$@.tuned
	$(if $(word 2,$(system.$(call system_of,$*))),\
	    phrase-rescore moses-ini --overwrite $@.tuned --table $$table --columns $(words $(subst $(comma), ,$(word 2,$(system.$(call system_of,$*))))) --weights $(word 2,$(system.$(call system_of,$*))) -o $@.tuned)
	$(if $(filter %.nplm,$^),phrase-rescore moses-ini --overwrite $@.tuned --lm $(filter %.nplm,$^) -o $@.tuned)
	python3 $(HERE)/disturb.py $(call run_of,$*) <$@.tuned >$@.part
	mv $@.part $@
	rm $@.tuned

$(patsubst %,$(W)/tuning/%/moses.ini,baseline.0 $(decoded_runs)): $(W)/tuning/%/moses.ini: $$(call start_of,$$*) $(W)/corpus/dev.$(SRC) $(W)/settings/tune
	@$(call begin,tune-$*)
	rm -rf $(@D)/mert
	perl $(MOSES_SCRIPTS)/training/mert-moses.pl $(W)/corpus/dev.$(SRC) $(W)/corpus/dev.$(TGT) $(MOSES_BIN)/moses $< \
	    --working-dir $(@D)/mert --mertdir $(MOSES_BIN) --rootdir $(MOSES_SCRIPTS) --no-filter-phrase-table \
	    --decoder-flags "-threads $(THREADS) $(call search,$(LIMIT))" --maximum-iterations $(ITERATIONS) --return-best-dev \
	    --predictable-seeds --threads $(THREADS) $(if $(filter mira,$(TUNER)),--batch-mira)
	mv $(@D)/mert/moses.ini $@
	rm -f $(@D)/mert/*.gz $(@D)/mert/*.dat $(@D)/mert/*.out

# ---- Tuning of what re-ranks the n-best lists of another system's run of the same number

baseline_run = $(lists.$(call system_of,$(1)))$(suffix $(1))

$(W)/nbest/%.gz: $(W)/tuning/$$(basename $$*)/moses.ini $(W)/corpus/$$(subst .,,$$(suffix $$*)).$(SRC) $(M)/cslm/config.json
	@$(call begin,nbest-$*)
	$(MOSES_BIN)/moses -config $< -input-file $(word 2,$^) -threads $(THREADS) $(call search,$(LIMIT)) -n-best-list $(@D)/$*.list 200 distinct
	phrase-rescore rescore --overwrite $(@D)/$*.list -m $(M)/cslm -o $@
	rm $(@D)/$*.list

$(reranked_runs:%=$(W)/tuning/%/start.ini): $(W)/tuning/%/start.ini: $(W)/tuning/$$(call baseline_run,$$*)/moses.ini $(W)/settings/system.$$(call system_of,$$*)
	@$(call begin,start-$*)
	sed -n '/^\[weight\]/,$$p' $< >$@.part
	mv $@.part $@

$(reranked_runs:%=$(W)/tuning/%/moses.ini): $(W)/tuning/%/moses.ini: $(W)/tuning/%/start.ini $(W)/nbest/$$(call baseline_run,$$*).dev.gz $(W)/corpus/dev.$(SRC)
	@$(call begin,tune-$*)
	phrase-rescore tune --overwrite $(word 2,$^) --reference $(W)/corpus/dev.$(TGT) --seed $(call run_of,$*) --weights $< -o $@

# ---- Evaluation: output with its phrases, and without

$(foreach run,$(reranked_runs),$(W)/evaluation/$(run).dev.out $(W)/evaluation/$(run).test.out): $(W)/evaluation/%.out: \
    $(W)/tuning/$$(basename $$*)/moses.ini $(W)/nbest/$$(call baseline_run,$$(basename $$*))$$(suffix $$*).gz
	@$(call begin,rerank-$*)
	phrase-rescore rescore --overwrite -q $(word 2,$^) --weights $< --best -o $@

$(W)/evaluation/%.seg: $(W)/tuning/$$(basename $$*)/moses.ini $(W)/corpus/$$(subst .,,$$(suffix $$*)).$(SRC)
	@$(call begin,decode-$*)
	$(MOSES_BIN)/moses -config $< -input-file $(word 2,$^) -threads $(THREADS) $(call search,$(LIMIT)) -report-segmentation >$@.part
	[[ $$(wc -l <$@.part) -eq $$(wc -l <$(word 2,$^)) ]]
	mv $@.part $@

$(W)/evaluation/%.out: $(W)/evaluation/%.seg
	@sed -E 's/ \|[0-9]+-[0-9]+\|//g; s/ +$$//' $< >$@.part
	mv $@.part $@

comma := ,
# $(call extract_with,NAME,STEMS): extract pairs of STEMS.$(SRC) and STEMS.$(TGT) into NAME.extract.gz
define extract_with
for language in $(SRC) $(TGT); do
    cat $(2).$$language >$(@D)/$(1).$$language
    cat $(M)/corpus/train.$$language $(@D)/$(1).$$language >$(@D)/all.$$language
done
$(call align,$(@D),$(@D)/all) | tail -n $$(wc -l <$(@D)/$(1).$(SRC)) >$(@D)/$(1).align
$(MOSES_BIN)/extract $(@D)/$(1).$(TGT) $(@D)/$(1).$(SRC) $(@D)/$(1).align $(@D)/extract 7 --GZOutput
mv $(@D)/extract.gz $@
rm $(@D)/{all,$(1)}.{$(SRC),$(TGT)} $(@D)/$(1).align $(@D)/extract* $(@D)/{bitext,forward.align,reverse.align}
endef

# ---- Headroom: what any score could give (headroom.py), around the baseline's first tuning

$(W)/headroom/nbest.gz: $(W)/tuning/baseline.1/moses.ini $(W)/corpus/test.$(SRC)
	@$(call begin,nbest)
	$(MOSES_BIN)/moses -config $< -input-file $(word 2,$^) -threads $(THREADS) $(call search,$(LIMIT)) -n-best-list $(@D)/nbest 200 distinct
	gzip -n <$(@D)/nbest >$@.part
	mv $@.part $@
	rm $(@D)/nbest

$(W)/headroom/oracle.json: $(W)/headroom/nbest.gz
	@$(call begin,oracle)
	python3 $(HERE)/headroom.py oracle $< $(W)/corpus/test.$(TGT) >$@.part
	mv $@.part $@

$(W)/headroom/coverage.json: $(W)/evaluation/baseline.1.test.seg $(W)/systems/baseline/phrase-table.gz
	@$(call begin,coverage)
	python3 $(HERE)/headroom.py coverage $< $(W)/corpus/test.$(SRC) $(word 2,$^) >$@.part
	mv $@.part $@

# The same weights with wider search, on every fifth segment, since 5000 takes ten times as long as 200
$(W)/headroom/search.%.out: $(W)/tuning/baseline.1/moses.ini $(W)/corpus/test.$(SRC)
	@$(call begin,search-$*)
	awk 'NR % 5 == 0' $(word 2,$^) >$(@D)/$*.src
	$(MOSES_BIN)/moses -config $< -input-file $(@D)/$*.src -threads $(THREADS) $(call search,$*) >$@.part
	mv $@.part $@

$(W)/headroom/search.json: $(foreach limit,200 2000 5000,$(W)/headroom/search.$(limit).out)
	@$(call begin,search-errors)
	awk 'NR % 5 == 0' $(W)/corpus/test.$(TGT) >$(@D)/search.ref
	phrase-rescore evaluate -q --metrics bleu --format json --set test $(@D)/search.ref \
	    $(foreach limit,200 2000 5000,$(limit)=$(@D)/search.$(limit).out) >$@.part
	mv $@.part $@

# Pairs of other text, which is aligned with the training text: of dev and test for the cheat, of MORE_TEXT for more-text
$(W)/headroom/sets.extract.gz: $(M)/corpus/train.$(SRC) $(W)/corpus/dev.$(SRC) $(W)/corpus/test.$(SRC)
	@$(call begin,extract-sets)
	$(call extract_with,sets,$(W)/corpus/{dev$(comma)test})

$(W)/headroom/more.extract.gz: $(M)/corpus/train.$(SRC)
	@$(call begin,extract-more)
	$(call extract_with,more,$(MORE_TEXT))

$(W)/headroom/cheat.gz: $(W)/filtered/plain.gz $(W)/headroom/sets.extract.gz
	@$(call begin,cheat)
	python3 $(HERE)/headroom.py column $(word 2,$^) $< | gzip -n >$@.part
	mv $@.part $@

$(W)/columns/more-text.gz: $(W)/filtered/plain.gz $(W)/headroom/more.extract.gz
	@$(call begin,column-more-text)
	python3 $(HERE)/headroom.py recount $(word 2,$^) $< | gzip -n >$@.part
	mv $@.part $@

# Columns in lists: each half of the training text is translated by tables, n-grams and networks of the other half. The halves
# are experiments of their own, which end with their systems; blocks of 20 lines belong together, since neighbours are alike
$(eval $(call setting,halves,$(COLUMN_SEGMENTS)))
$(eval $(call setting,columns,$(COLUMNS) $(COLUMN_TRAIN_OPTIONS)))
half = $(HERE)/run.sh $(CONFIG) WORK=$(W)/halves NAME=$(1) SYSTEMS='$(COLUMNS)' TRAIN=$(W)/halves/$(1).train \
    DEV=$(W)/halves/$(1).other TEST=$(W)/halves/$(1).other TRAIN_SEGMENTS= DEV_SEGMENTS= TEST_SEGMENTS= TOKENIZE=no MODEL_OF= \
    TRAIN_OPTIONS='$(COLUMN_TRAIN_OPTIONS)' MORE_TEXT=$(W)/halves/$(1).rest

$(W)/halves/%.text: $(M)/corpus/train.$(SRC) $(W)/settings/halves
	@$(call begin,half-$*)
	for language in $(SRC) $(TGT); do
	    text=$(M)/corpus/train.$$language
	    awk 'int((NR - 1) / 20) % 2 == $*' $$text >$(@D)/$*.train.$$language
	    awk 'int((NR - 1) / 20) % 2 != $*' $$text >$(@D)/$*.rest.$$language
	    $(call some,$(COLUMN_SEGMENTS)) <$(@D)/$*.rest.$$language >$(@D)/$*.other.$$language
	done
	# What is in no list is more text
	paste -d '\t' $(@D)/$*.rest.{$(SRC),$(TGT)} | LC_ALL=C grep -vxF -f <(paste -d '\t' $(@D)/$*.other.{$(SRC),$(TGT)}) >$(@D)/$*.rest || [[ $$? -eq 1 ]]
	cut -f 1 $(@D)/$*.rest >$(@D)/$*.rest.$(SRC)
	cut -f 2 $(@D)/$*.rest >$(@D)/$*.rest.$(TGT)
	rm $(@D)/$*.rest
	touch $@

$(W)/halves/%.systems: $(W)/halves/%.text $(W)/settings/columns
	@$(call begin,systems-$*)
	$(call half,$*) tables systems
	touch $@

of_lists := systems/$(lastword $(COLUMNS))/phrase-table.gz
$(W)/halves/%/$(of_lists): $(W)/halves/%.systems ;

$(W)/halves/%/lists.gz: $(W)/tuning/$(lastword $(COLUMNS)).1/moses.ini $(W)/halves/%/$(of_lists)
	@$(call begin,lists-$*)
	sed -E 's#^(PhraseDictionaryMemory .*path=)[^ ]*#\1$(@D)/$(of_lists)#
	    s#^(KENLM .*path=)[^ ]*#\1$(@D)/lm/$(TGT).blm#' $< >$(@D)/moses.ini
	$(MOSES_BIN)/moses -config $(@D)/moses.ini -input-file $(@D)/corpus/dev.$(SRC) -threads $(THREADS) $(call search,$(LIMIT)) \
	    -n-best-list $(@D)/lists 100 distinct -include-segmentation-in-n-best
	gzip -n <$(@D)/lists >$@.part
	mv $@.part $@
	rm $(@D)/lists

$(W)/headroom/columns.json: $(W)/halves/0/lists.gz $(W)/halves/1/lists.gz $(W)/halves/0.systems $(W)/halves/1.systems
	@$(call begin,columns)
	python3 $(HERE)/columns.py $(W)/tuning/$(lastword $(COLUMNS)).1/moses.ini $(SRC) $(TGT) $(W)/halves/0 $(W)/halves/1 $(COLUMNS) >$@.part
	mv $@.part $@

# ---- Results: counts of every segment, settings, weights and bounds, without text. They outlive the rest

counts := $(foreach name,dev test,$(foreach run,$(every_run),$(W)/counts/$(run).$(name)))
bounds := $(foreach bound,$(HEADROOM),$(W)/headroom/$(bound).json)

$(counts): $(W)/counts/%: $(W)/evaluation/%.out
	@$(call begin,count-$*)
	phrase-rescore evaluate -q --set $(subst .,,$(suffix $*)) $(W)/corpus/$(subst .,,$(suffix $*)).$(TGT) \
	    $(basename $(basename $*))=$< --statistics $@.part.gz
	gunzip -f $@.part.gz
	mv $@.part $@

$(RESULTS).tar.xz: $(counts) $(bounds)
	@$(call begin,record)
	python3 $(HERE)/record.py $(W) $(M) $(SRC) $(TGT) '$(SYSTEMS)' \
	    $(foreach name,TRAIN DEV TEST TOKENIZE TRAIN_SEGMENTS DEV_SEGMENTS TEST_SEGMENTS LM_ORDER TRAIN_OPTIONS CSLM_OPTIONS MODEL_OF TUNER ITERATIONS LIMIT,\
	    '$(name)=$(subst $(DATA)/,,$($(name)))') $(foreach system,$(SYSTEMS),'system.$(system)=$(strip $(subst $(W)/,,$(system.$(system))) $(addprefix cslm=,$(cslm.$(system))) $(addprefix lists=,$(lists.$(system))))') >$(W)/counts/experiment.json
	tar --create --xz --owner=0 --group=0 --mode=644 --mtime=@0 --file $@.part -C $(W)/counts experiment.json $(notdir $(counts))
	mv $@.part $@

$(RESULTS).md: $(RESULTS).tar.xz
	@$(call begin,page)
	python3 $(HERE)/page.py $< >$@.part
	mv $@.part $@

.PHONY: page tables networks systems tunings outputs
page: $(RESULTS).md
	@cat $<
tables: $(M)/model/phrase-table.gz $(M)/model/moses.ini
networks: $(foreach system,$(SYSTEMS),$(call models,$(system))) $(if $(strip $(foreach system,$(SYSTEMS),$(cslm.$(system)) $(lists.$(system)))),$(M)/cslm/config.json)
systems: $(foreach system,$(SYSTEMS),$(W)/systems/$(system)/phrase-table.gz)
tunings: $(foreach run,$(every_run),$(W)/tuning/$(run)/moses.ini)
outputs: $(foreach run,$(every_run),$(W)/evaluation/$(run).dev.out $(W)/evaluation/$(run).test.out)
