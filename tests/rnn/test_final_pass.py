"""After the last measurement the held-out pairs are learnt as well, no more and no less than the others."""

import json
import random
import re
from pathlib import Path

import pytest
from small_trainings import Stopped, Training, files

from phrase_rescore.data.ragged import EncodedPairs, Ragged
from phrase_rescore.errors import OptionError
from phrase_rescore.rnn.network import ModelConfig, RNNEncoderDecoder
from phrase_rescore.rnn.task import FinalPassTask, PhrasePairTask, matched_by_length
from phrase_rescore.training.config import Observer

pytestmark = pytest.mark.slow


def numbered(first: int, n: int) -> EncodedPairs:
    """Pairs that can be told by their source."""
    return EncodedPairs(Ragged.of([[first + i] for i in range(n)]), Ragged.of([[2 + i % 5, 3] for i in range(n)]))


@pytest.fixture
def training(tmp_path: Path) -> Training:
    """400 sources of ten targets each, which nothing but learning them tells: two sources are held out."""
    draw = random.Random(1)
    kinds = [draw.randrange(20) for _ in range(400)]
    pairs = "".join(f"w{i}\tx{kinds[i]} y{k}\n" for i in range(400) for k in range(10))
    (tmp_path / "pairs.tsv").write_text(pairs)
    training = Training((str(tmp_path / "pairs.tsv"),), str(tmp_path / "model"))
    return training.but(learning_rate=1e-2, max_steps=200, eval_every=100, held_out=40)


def test_half_of_a_minibatch_was_held_out_and_a_pass_learns_each_pair_once() -> None:
    task = PhrasePairTask(RNNEncoderDecoder(ModelConfig(200, 10, 8, 4, 4, 4)), numbered(50, 100), numbered(10, 30), 16, 1)
    batches, held_out = FinalPassTask(task, 16).batches(), []
    for _ in range(15):  # four passes of 3.75 minibatches
        sources = next(batches).src.ids
        assert len(sources) == 16
        assert sources[8:].min() >= 50
        held_out += list(sources[:8])
    assert sorted(held_out) == sorted(list(range(10, 40)) * 4)
    assert sorted(held_out[:30]) == list(range(10, 40))


def test_they_are_compared_with_pairs_of_their_lengths() -> None:
    def pairs(*lengths: tuple[int, int]) -> EncodedPairs:
        sides = ([[2] * n for n in side] for side in zip(*lengths, strict=True))
        return EncodedPairs(*map(Ragged.of, sides))

    def lengths(found: EncodedPairs) -> list[tuple[int, int]]:
        return sorted(zip(found.src.lengths.tolist(), found.tgt.lengths.tolist(), strict=True))

    training = pairs(*[(1, 1)] * 50, *[(2, 3)] * 2, (3, 2), (4, 4))
    found = matched_by_length(training, pairs((2, 3), (1, 1), (2, 3), (2, 3), (9, 9), (3, 2)), seed=1)
    assert lengths(found) == [(1, 1), (2, 3), (2, 3), (2, 3), (3, 2), (4, 4)], "few come again, for (9, 9) the nearest"
    assert lengths(matched_by_length(training, pairs((9, 9), (1, 9)), seed=1)) == [(2, 3), (4, 4)], "none is as long"
    sources = matched_by_length(numbered(50, 100), numbered(10, 30), seed=1).src.ids
    assert len(set(sources.tolist())) == 30, "no pair stands for two while there are others"


def test_held_out_pairs_come_to_cost_what_others_cost(training: Training) -> None:
    """And what is reported of them as held-out loss is from before."""
    without = training.but(model_dir=f"{training.model_dir}.without").run().training
    told: list[str] = []
    found = training.but(final_pass=True).run(Observer(told.append)).training
    assert found["distinct_pairs"]["held_out"] == 20
    for figure in ("held_out", "held_out_other_sources", "best_step", "steps"):
        assert found[figure] == without[figure]
    assert without["final_pass"] is None
    (before,) = (re.fullmatch(r"final pass, step 0: held-out pairs (.*) nats/pair, training pairs (.*)", line) for line in told
                 if line.startswith("final pass, step 0"))  # fmt: skip
    assert before
    held_out, learnt = float(before[1]), float(before[2])
    assert held_out == pytest.approx(found["held_out"]["loss"], abs=1e-3)
    assert held_out > learnt + 1
    final = found["final_pass"]
    assert abs(final["held_out"] - final["training"]) < 0.1
    assert final["training"] < learnt + 0.3, "nothing is forgotten for it"


def test_killed_in_the_final_pass(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    training = training.but(final_pass=True)
    training.but(model_dir=f"{training.model_dir}.whole").run()
    evaluate, calls = FinalPassTask.evaluate, []

    def stop_at_the_third(task: FinalPassTask) -> dict[str, float]:
        calls.append(1)
        if len(calls) == 3:
            raise Stopped
        return evaluate(task)

    with monkeypatch.context() as patched, pytest.raises(Stopped):
        patched.setattr(FinalPassTask, "evaluate", stop_at_the_third)
        training.run()
    with pytest.raises(OptionError, match="final_pass true → false"):
        training.but(final_pass=False, resume=True).run()
    training.but(resume=True).run()
    assert files(Path(training.model_dir)) == files(Path(f"{training.model_dir}.whole"))
    log = (Path(training.model_dir) / "train.log.jsonl").read_text()
    assert [json.loads(line)["step"] for line in log.splitlines()] == [100, 200]


@pytest.mark.parametrize(("option", "value"), [("final_pass", True), ("patience", 3)])
def test_what_needs_held_out_pairs_is_refused_without(training: Training, option: str, value: object) -> None:
    name = {"final_pass": "--final-pass", "patience": "--patience 3"}[option]
    steps: list[int] = []
    few = Path(training.inputs[0]).with_name("few.tsv")
    few.write_bytes(b"".join(b"%d\tx\n" % i for i in range(199)))
    changes: tuple[dict[str, object], ...] = ({"held_out": 0}, {"inputs": (str(few),)}, {"held_out": 9})
    for change in changes:
        with pytest.raises(OptionError, match=f"{name} needs held-out data, but there are none; hold out more"):
            training.but(**change, **{option: value}).run(Observer(on_step=lambda step, *_: steps.append(step)))
        assert not Path(training.model_dir).exists()
        assert not training.state_dir.exists()
    assert steps == []


def test_without_held_out_pairs_training_goes_to_its_end(training: Training) -> None:
    found = training.but(held_out=0, max_steps=6, eval_every=1).run().training
    assert (found["steps"], found["distinct_pairs"]["held_out"], found["final_pass"]) == (6, 0, None)
