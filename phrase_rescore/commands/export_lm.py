"""Turn the options of ``phrase-rescore export-lm`` into library calls."""

from __future__ import annotations

import click

from phrase_rescore.commands.options import file_option, lm_option, quiet_option


@click.command(short_help="Write a language model for the decoder.")
@lm_option
@click.option(
    "--format", "form", type=click.Choice(["nplm"]), default="nplm", show_default=True,
    help="nplm: the text format that Moses' feature NeuralLM loads.",
)  # fmt: skip
@file_option("-o", "--out", default="-", metavar="OUT", help="The file to write.  [default: standard output]")
@quiet_option
def command(lm: str, form: str, out: str, quiet: bool) -> None:
    """Write a language model in a format that decoders read.

    \b
    phrase-rescore export-lm -m lm -o lm.nplm

    Moses must be built --with-nplm. These lines of moses.ini then load the model:

    \b
    [feature]
    NeuralLM factor=0 name=CSLM0 order=7 path=/abs/lm.nplm
    [weight]
    CSLM0= 0.1
    """
    from phrase_rescore.commands.progress import say
    from phrase_rescore.files.atomic import atomic_output
    from phrase_rescore.files.paths import Role, Use, check_paths
    from phrase_rescore.models.language_model import as_nplm, load
    from phrase_rescore.moses.nplm import write_nplm

    check_paths([Use("-m", lm, Role.READ_DIRECTORY), Use("-o", out, Role.WRITE)])
    model = load(lm)
    with atomic_output(out) as stream:
        write_nplm(stream, as_nplm(model))
    if not quiet:
        sizes = model.model.config
        say(f"{out}: NeuralLM factor=0 name=CSLM0 order={sizes.order} path={out}")
