"""Turn the options of ``phrase-rescore export-lm`` into a call of the library."""

from phrase_rescore.cli import options
from phrase_rescore.cli.options import device_option, lm_option, path_argument, path_option, quiet_option
from phrase_rescore.files.paths import Role


@options.command(
    short_help="Write a language model for the decoder.",
    then=lambda values: "" if values["arpa"] else "phrase-rescore moses-ini moses.ini --lm {out} -o moses.lm.ini",
)
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
    from phrase_rescore.api import export_lm
    from phrase_rescore.cli.terminal import say, warn

    written = export_lm(lm, out, arpa, device=device, warn=warn)
    if not quiet and out != "-":
        say(written)
