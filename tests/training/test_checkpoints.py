"""Checkpoints: complete or absent, checked whole, ordered by step."""

import json
import os
import shutil

import pytest

from tnn.training import checkpoints

FILES = {"model.safetensors": b"weights" * 99, "optimizer.pt": b"moments" * 99, "trainer_state.json": b"{}"}


def write(folder, step, best=None):
    unfinished = folder / "checkpoints" / ".unfinished" / f"checkpoint-{step}"
    unfinished.mkdir(parents=True)
    for name, content in FILES.items():
        (unfinished / name).write_bytes(content + bytes([step]))
    (unfinished / "training_args.bin").write_bytes(b"a pickle")
    return checkpoints.publish(unfinished, folder, best)


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "deleted": lambda path: path.unlink(),
    "emptied": lambda path: path.write_bytes(b""),
    "truncated": lambda path: os.truncate(path, path.stat().st_size - 1),
    "flipped": flip,
}


def test_what_is_published(tmp_path):
    path = write(tmp_path, 5)
    assert path == tmp_path / "checkpoints" / "checkpoint-5"
    assert {file.name for file in path.iterdir()} == {*FILES, "manifest.json"}  # no pickle
    assert [folder.name for folder in path.parent.iterdir()] == ["checkpoint-5"]
    assert checkpoints.find_damage(path) is None
    assert checkpoints.last_checkpoint(tmp_path) == path


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
def test_damage_is_found_and_named(tmp_path, name, damage):
    write(tmp_path, 5)
    path = write(tmp_path, 10)
    DAMAGES[damage](path / name)
    assert checkpoints.find_damage(path).startswith(name)
    reported = []
    assert checkpoints.choose_checkpoint(tmp_path, reported.append).name == "checkpoint-5"
    assert len(reported) == 1
    assert str(path) in reported[0]
    assert name in reported[0]
    assert not path.exists()


def test_what_does_not_belong_is_damage(tmp_path):
    path = write(tmp_path, 5)
    (path / "scaler.pt").write_bytes(b"would be loaded")
    assert checkpoints.find_damage(path) == "scaler.pt is not in its manifest.json"
    (path / "scaler.pt").rename(path / ".notes")
    assert checkpoints.find_damage(path) is None
    shutil.copytree(path, path.with_name("checkpoint-7"))
    assert checkpoints.find_damage(path.with_name("checkpoint-7")) == "manifest.json is of step 5"


@pytest.mark.parametrize("text", ["[]", "{}", "null", '{"content": 3, "sha256": ""}', "[" * 10_000])
def test_a_manifest_of_another_shape(tmp_path, text):
    path = write(tmp_path, 5)
    (path / "manifest.json").write_text(text)
    assert checkpoints.find_damage(path) == "manifest.json is damaged"


def test_if_none_is_whole_nothing_is_removed(tmp_path):
    for step in (5, 10):
        (write(tmp_path, step) / "optimizer.pt").unlink()
    with pytest.raises(ValueError, match=r"no checkpoint in .* is whole: checkpoint-10: optimizer.pt is missing"):
        checkpoints.choose_checkpoint(tmp_path, print)
    assert len(checkpoints.list_checkpoints(tmp_path)) == 2


def test_an_unfinished_one_is_no_damage(tmp_path):
    (tmp_path / "checkpoints" / ".unfinished" / "checkpoint-5").mkdir(parents=True)
    reported = []
    assert checkpoints.choose_checkpoint(tmp_path, reported.append) is None
    assert not reported
    assert not list((tmp_path / "checkpoints").iterdir())


def test_a_run_that_needs_the_best_weights_needs_them_whole(tmp_path):
    for step in (2, 4, 6):
        write(tmp_path, step, best=min(step, 4))
    flip(tmp_path / "checkpoints" / "checkpoint-4" / "model.safetensors")
    damage = checkpoints.find_damage(tmp_path / "checkpoints" / "checkpoint-6")
    assert damage.startswith("checkpoint-4, which has the best weights: model.safetensors")
    assert checkpoints.choose_checkpoint(tmp_path, lambda text: None).name == "checkpoint-2"


def test_the_clock_does_not_matter(tmp_path):
    for step in (8, 9, 10, 11):
        path = write(tmp_path, step)
        os.utime(path, (2_000_000_000 - step * 86_400,) * 2)
    assert checkpoints.last_checkpoint(tmp_path).name == "checkpoint-11"
    checkpoints.rotate(tmp_path, keep=2, best=8)
    assert [path.name for path in checkpoints.list_checkpoints(tmp_path)] == [
        "checkpoint-11",
        "checkpoint-10",
        "checkpoint-8",
    ]


def test_the_manifest_has_sizes_and_checksums(tmp_path):
    content = json.loads((write(tmp_path, 5, best=5) / "manifest.json").read_text())["content"]
    assert (content["step"], content["best"]) == (5, 5)
    assert content["files"]["trainer_state.json"]["size"] == 3
    assert len(content["files"]["trainer_state.json"]["sha256"]) == 64
