"""Which data are held out: those of the smallest hashes, a choice that depends on the data alone."""

from collections.abc import Callable
from typing import Any


class Smallest:
    """Keeps the items of the smallest hashes while items go by: at most as many as weigh ``most``, and a ``share`` of all.

    An item is a tuple that begins with its hash, a number below 2⁶⁴. What cannot be chosen any more is forgotten: call
    ``forget`` when ``weight`` is above twice ``most``, and no more is ever remembered.
    """

    def __init__(self, most: int, share: float, weigh: Callable[[tuple[Any, ...]], int] = lambda item: 1) -> None:
        self.most, self.share, self._weigh = most, share, weigh
        self.limit = 1 << 64  # hashes from here on cannot be chosen
        self.seen = self.weight = 0  # items that went by, weight of those that are kept
        self.kept: list[tuple[Any, ...]] = []

    def forget(self) -> None:
        """Forget the items that cannot be chosen: those from which on all together would weigh more than ``most``."""
        self.kept.sort()
        self.weight = 0
        for i, item in enumerate(self.kept):
            weight = self._weigh(item)
            if self.weight + weight > self.most:
                self.limit = item[0]
                del self.kept[i:]
                break
            self.weight += weight

    def chosen(self) -> list[tuple[Any, ...]]:
        """Return the chosen items when all have gone by."""
        self.forget()
        return self.kept[: int(self.share * self.seen)]

    def threshold(self) -> int:
        """Return the hash below which items are chosen when all have gone by: equal hashes together or not at all."""
        allowed = len(self.chosen())
        return self.kept[allowed][0] if allowed < len(self.kept) else self.limit
