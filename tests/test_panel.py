import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from arflow_eval import refusal
from arflow_eval.contracts import FrameId
from arflow_eval.panel import bundled, plan

CONF = Path(__file__).parent.parent / "conf" / "panel"
SPLIT = json.loads((bundled.DATA / "pusht_split.json").read_text())
NAMES = ("pusht", "pusht_q4", "pusht_full", "pusht_sealed")


def configured(name: str) -> dict[str, object]:
    return yaml.safe_load((CONF / f"{name}.yaml").read_text())


def frames_of(name: str) -> plan.Plan:
    return plan.read_plan(bundled.DATA / f"{name}.json", digest=str(configured(name)["digest"]))


def test_training_public_and_sealed_episodes_partition_the_corpus() -> None:
    every = SPLIT["training"] + SPLIT["public"] + SPLIT["sealed"]
    assert sorted(every) == list(range(206))
    assert (len(SPLIT["training"]), len(SPLIT["public"]), len(SPLIT["sealed"])) == (124, 41, 41)


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_lists_frames_of_its_own_part_alone(name: str) -> None:
    part = "sealed" if name == "pusht_sealed" else "public"
    assert {frame.episode for frame in frames_of(name).frames} == set(SPLIT[part])


def test_the_quarter_is_one_of_the_four_core_frames_of_each_episode() -> None:
    whole, quarter = frames_of("pusht").core, frames_of("pusht_q4").core
    assert set(quarter) <= set(whole)
    assert len(whole) == 4 * len(quarter) == 164
    assert len({frame.episode for frame in quarter}) == 41


def test_the_full_panel_has_every_frame_of_its_episodes() -> None:
    corpus = bundled.demonstrations()
    assert len(frames_of("pusht_full").frames) == sum(map(corpus.length, SPLIT["public"]))


def test_only_the_sealed_panel_is_sealed() -> None:
    assert [name for name in NAMES if configured(name)["sealed"]] == ["pusht_sealed"]


def test_statistics_are_those_of_the_training_episodes() -> None:
    corpus = bundled.demonstrations()
    states = np.concatenate([corpus.states[corpus.rows(e)] for e in SPLIT["training"]])
    assert np.allclose(bundled.statistics().state_mean, states.astype(float).mean(axis=0))
    assert np.allclose(bundled.statistics().state_std, states.astype(float).std(axis=0))


@pytest.fixture(scope="module")
def panel() -> bundled.PushT:
    settings = configured("pusht")
    return bundled.pusht(name="pusht", plan="pusht.json", digest=str(settings["digest"]), steps=50)


def test_an_observation_ends_with_the_present_and_knows_earlier_actions_only(
    panel: bundled.PushT,
) -> None:
    corpus = bundled.demonstrations()
    seen = panel.observe(5)
    start = corpus.starts[seen.frame.episode]
    assert len(seen.states) == seen.frame.frame_index + 1 == len(seen.actions) + 1
    assert seen.index == start + seen.frame.frame_index
    assert (seen.state == corpus.states[seen.index]).all()
    assert (seen.states[0] == corpus.states[start]).all()


def test_steps_past_the_episodes_end_are_invalid_and_none_of_the_next_episode(
    panel: bundled.PushT,
) -> None:
    corpus = bundled.demonstrations()
    targets = panel.targets(range(len(panel.frames)))
    left = corpus.starts[panel.frames.episode + 1] - panel.frames.index
    assert (targets.valid.sum(axis=1) == np.minimum(left, 50)).all()
    row = int(left.argmin())
    last = corpus.actions[corpus.starts[panel.frames.episode[row] + 1] - 1]
    assert (targets.truth[row, left[row] :] == last).all()
    assert (targets.truth[row, 0] == corpus.actions[panel.frames.index[row]]).all()


def write(path: Path, core: list[FrameId]) -> str:
    return plan.write_plan(path, core=core, settings={"version": 1})


def test_a_changed_plan_is_damage(tmp_path: Path) -> None:
    digest = write(tmp_path / "plan.json", [FrameId("a/b", 0, 0)])
    write(tmp_path / "plan.json", [FrameId("a/b", 0, 1)])
    with pytest.raises(refusal.Refusal, match="expected the pinned") as refused:
        plan.read_plan(tmp_path / "plan.json", digest=digest)
    assert refused.value.exit_code == refusal.DAMAGE


def test_an_empty_plan_is_a_usage_error(tmp_path: Path) -> None:
    digest = write(tmp_path / "plan.json", [])
    with pytest.raises(refusal.Refusal, match="lists no frames") as refused:
        plan.read_plan(tmp_path / "plan.json", digest=digest)
    assert refused.value.exit_code == refusal.USAGE


def test_a_frame_listed_twice_is_damage(tmp_path: Path) -> None:
    write(tmp_path / "plan.json", [FrameId("a/b", 0, 0)] * 2)
    with pytest.raises(refusal.Refusal, match="lists a frame twice"):
        plan.read_plan(tmp_path / "plan.json", digest=None)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"core": [["a/b", 0]], "labeled": []}', '{"core": 1}']
)
def test_a_file_that_is_no_plan_is_a_usage_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(refusal.Refusal, match="cannot be read") as refused:
        plan.read_plan(tmp_path / "plan.json", digest=None)
    assert refused.value.exit_code == refusal.USAGE


@pytest.mark.parametrize(
    "frame", [("other/repo", 0, 0), ("lerobot/pusht", 206, 0), ("lerobot/pusht", 0, 9999)]
)
def test_frames_that_the_data_lacks_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frame: tuple[str, int, int]
) -> None:
    (tmp_path / "pusht.npz").symlink_to(bundled.DATA / "pusht.npz")
    digest = write(tmp_path / "plan.json", [FrameId(*frame)])
    monkeypatch.setattr(bundled, "DATA", tmp_path)
    with pytest.raises(refusal.Refusal, match="the plan lists"):
        bundled.pusht(name="mine", plan="plan.json", digest=digest, steps=50)


def test_sealed_frames_are_guarded_whatever_their_plan_is_called(tmp_path: Path) -> None:
    digest = write(tmp_path / "mine.json", list(frames_of("pusht_sealed").core[:1]))
    with pytest.raises(refusal.Refusal, match="sealed") as refused:
        bundled.pusht(name="mine", plan=str(tmp_path / "mine.json"), digest=digest, steps=50)
    assert refused.value.exit_code == refusal.GUARD


def test_other_statistics_are_another_panel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, panel: bundled.PushT
) -> None:
    changed = tmp_path / "stats.json"
    changed.write_text(bundled.STATISTICS.read_text().replace("39.0", "40.0"))
    monkeypatch.setattr(bundled, "STATISTICS", changed)
    other = bundled.pusht(name="pusht", plan="pusht.json", digest=None, steps=50)
    assert other.digest != panel.digest


def test_the_corpus_is_the_published_file() -> None:
    raw = (bundled.DATA / "pusht.npz").read_bytes()
    assert hashlib.sha256(raw).hexdigest() == bundled.SHA256
    assert bundled.SHA256 in (bundled.DATA / "NOTICE.md").read_text()


def test_adding_an_episode_changes_no_other_episodes_frames() -> None:
    few = plan.pick_core({1: 50, 2: 60}, repo="a/b", per_episode=4, seed=3)
    more = plan.pick_core({1: 50, 2: 60, 7: 80}, repo="a/b", per_episode=4, seed=3)
    assert few == more[:8]
