"""Settings of training, by name. No torch here: ``--help`` shows them."""

from __future__ import annotations

from dataclasses import dataclass

from phrase_rescore.errors import OptionError


@dataclass(frozen=True)
class Preset:
    """Sizes, data and recipe; every field is an option of ``train`` and overridden by it.

    Raises OptionError if groups do not fill a minibatch.
    """

    hidden: int
    embedding: int
    maxout: int  # units, each pooling 2
    rank: int  # of the output matrix
    shortlist: int  # words a side
    batch_size: int
    optimizer: str
    learning_rate: float
    objective: str  # the gradient is that of the minibatch's sum or mean
    clip: float  # largest norm of that gradient
    decay: bool  # the rate falls linearly to 0 at the end
    warm_up: float
    paper_initialisation: bool
    group: int = 1  # neighbours in the sorted pairs that are drawn together
    epochs: float = 5.0  # passes over the pairs, unless steps or time are given

    def __post_init__(self) -> None:
        if self.batch_size % self.group:
            what = f"--group {self.group} does not divide --batch-size {self.batch_size}"
            raise OptionError(f"{what}; choose a group that does")


PRESETS = {
    "default": Preset(
        hidden=500, embedding=100, maxout=250, rank=100, shortlist=15_000, batch_size=256, optimizer="adam",
        learning_rate=8e-3, objective="mean", clip=1.0, decay=True, warm_up=0.02, paper_initialisation=False,
    ),
    # Cho et al. (2014), section 4.1; the clipped norm of the summed gradient is from the authors' released code
    "paper": Preset(
        hidden=1000, embedding=100, maxout=500, rank=100, shortlist=15_000, batch_size=64, optimizer="adadelta",
        learning_rate=1.0, objective="sum", clip=1.0, decay=False, warm_up=0.0, paper_initialisation=True,
    ),
}  # fmt: skip
