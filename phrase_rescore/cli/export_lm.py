"""Turn the options of ``phrase-rescore export-lm`` into library calls."""

from __future__ import annotations

from phrase_rescore.cli import options
from phrase_rescore.cli.options import device_option, lm_option, path_argument, path_option, quiet_option
from phrase_rescore.errors import OptionError
from phrase_rescore.files.paths import Role


@options.command(short_help="Write a language model for the decoder.")
@path_argument("arpa", required=False)
@lm_option()
@path_option("-o", "--out", role=Role.WRITE, default="-", metavar="OUT", help="The file to write.  [default: standard output]")
@device_option("cpu")
@quiet_option
def command(arpa: str | None, lm: str, out: str, device: str, quiet: bool) -> None:
    """Write a language model in a format that decoders read: without ARPA, the text format of NPLM.

    \b
    phrase-rescore export-lm -m lm -o lm.nplm
    phrase-rescore export-lm lm.arpa -m lm -o cslm.arpa

    Moses must be built --with-nplm to read the first. These lines of moses.ini then load it:

    \b
    [feature]
    NeuralLM factor=0 name=CSLM0 order=7 path=/abs/lm.nplm
    [weight]
    CSLM0= 0.1

    With ARPA, an n-gram model of the same text, its n-grams stay and get the probabilities of the network, those of words that
    the network does not know excepted; back-off weights are made anew so that every context sums to one. KenLM and every
    decoder read the result.
    """
    from phrase_rescore.cli.terminal import say
    from phrase_rescore.files.outputs import atomic_output
    from phrase_rescore.lm.checkpoint import as_nplm, load, warnings
    from phrase_rescore.lm.nplm import write_nplm

    if out.endswith((".gz", ".bz2", ".xz", ".zst")):
        raise OptionError(f"cannot write {out}: NPLM and KenLM's build_binary read plain text")
    model = load(lm)
    for warning in warnings(model, lower_orders=True):
        say(f"warning: {warning}")
    if arpa:
        from phrase_rescore.files.blocks import read_rows
        from phrase_rescore.files.inputs import display_name, open_input
        from phrase_rescore.lm.arpa import ArpaReader, write_arpa
        from phrase_rescore.lm.export import NetworkArpa
        from phrase_rescore.runtime import prepare, resolve_device, usable_cores

        prepare(usable_cores())
        name = display_name(arpa)
        with open_input(arpa) as stream, atomic_output(out) as output:
            found = NetworkArpa(ArpaReader(read_rows(stream), name), model, name, resolve_device(device))
            write_arpa(output, found.header.counts, found.ngrams())
        if not found.has_unknown:
            say(f"warning: {name} has no <unk>, what decoders give to other words is theirs; make it with lmplz")
        if not quiet and out != "-":
            say(f"{out}: {sum(found.header.counts):,} n-grams")
        return
    with atomic_output(out) as output:
        write_nplm(output, as_nplm(model))
    if not quiet and out != "-":
        say(f"{out}: NeuralLM factor=0 name=CSLM0 order={model.model.config.order} path={out}")
