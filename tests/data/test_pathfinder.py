"""Pathfinder: the rules of an image, checked on its record; patches against geometry; the files of a set."""

import math
import sys
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tnn.data.lra import pathfinder
from tnn.data.lra.drawing import Pen, draw_disc, draw_paddle, move
from tnn.data.lra.pathfinder import draw_pathfinder, generate_pathfinder, pathfinder_settings

PENS = [Pen(2, 0.5, 1), Pen(5, 1.5, 2), Pen(5, 1.5, 3)]
SETS = {(32, 14): 20, (32, 9): 10, (32, 6): 30, (128, 14): 1, (128, 6): 9}  # how many drawings of each


@pytest.fixture(scope="module")
def drawings():
    """Pairs of settings and drawing."""
    rng = np.random.default_rng(0)
    settings = {key: pathfinder_settings(*key) for key in SETS}
    return [(settings[key], draw_pathfinder(rng, settings[key])) for key, count in SETS.items() for _ in range(count)]


def put(patch, point, size):
    """A patch on an empty map of the window, with 20 pixels around it."""
    canvas = np.zeros((size + 40, size + 40))
    reach = len(patch) // 2
    y, x = point[0] + 20, point[1] + 20
    canvas[y - reach : y + reach + 1, x - reach : x + reach + 1] = patch
    return canvas


def ends(paddle, length):
    start = np.array(paddle.start, float)
    return start, start + length * np.array([math.sin(paddle.angle), math.cos(paddle.angle)])


def order_of_drawing(drawing):
    """Each paddle with its snake and its index in it: the targets in turn, then each distractor."""
    first, second, *others = range(len(drawing.snakes))
    length = len(drawing.snakes[0].paddles)
    for place, snake in product(range(length), (first, second)):
        yield snake, place, drawing.snakes[snake].paddles[place]
    for snake in others:
        for place, paddle in enumerate(drawing.snakes[snake].paddles):
            yield snake, place, paddle


def test_settings_are_those_of_the_long_range_arena():
    small, large = pathfinder_settings(32), pathfinder_settings(128)
    assert (small.contour_length, small.distractor_length, small.distractors) == (14, 4, 5)
    assert (large.contour_length, large.distractor_length, large.distractors) == (14, 4, 8)
    assert (small.paddle_length, small.thickness, small.margins, small.continuity) == (2, 0.5, (1,), 1.0)
    assert (large.paddle_length, large.thickness, large.margins, large.continuity) == (5, 1.5, (2, 3), 1.8)
    assert (small.seed_distance, small.marker_radius, small.target_contrast, small.distractor_contrast) == (
        7,
        1.5,
        1.5,
        2,
    )
    assert (large.seed_distance, large.marker_radius, large.target_contrast, large.distractor_contrast) == (
        20,
        3,
        0.9,
        0.9,
    )


def test_labels_are_balanced():
    rng, settings = np.random.default_rng(0), pathfinder_settings(32, 6)
    labels = [draw_pathfinder(rng, settings).label for _ in range(200)]
    assert set(labels) == {0, 1}
    assert abs(sum(labels) - 100) < 4 * math.sqrt(200 / 4)


@pytest.mark.slow
def test_markers_are_at_the_ends_of_one_target_if_and_only_if_the_label_is_1(drawings):
    for _, drawing in drawings:
        targets = [snake for snake in drawing.snakes if snake.is_target]
        assert len(targets) == 2
        if targets[0].terminal == targets[1].terminal:  # rare, and then the image has no answer
            continue
        start, end = drawing.markers
        on_one = any((snake.origin, snake.terminal) == (start, end) for snake in targets)
        on_both = any((a.origin, b.terminal) == (start, end) for a, b in (targets, targets[::-1]))
        assert (on_one, on_both) == ((True, False) if drawing.label else (False, True))


@pytest.mark.slow
def test_a_snake_leads_from_its_origin_to_its_terminal(drawings):
    for settings, drawing in drawings:
        length, margin = drawing.pen.length, drawing.pen.margin
        for snake in drawing.snakes:
            tail, head = ends(snake.paddles[0], length)
            assert tuple(tail) == snake.origin
            for paddle in snake.paddles[1:]:
                tip, back = ends(paddle, length)
                assert np.hypot(*(back - head)) == pytest.approx(2 * margin, abs=3)  # as exact as pixels allow
                head = tip
            assert tuple(head) == snake.terminal
            ways = [snake.paddles[0].angle, *(paddle.angle - math.pi for paddle in snake.paddles[1:])]
            for before, after in pairwise(ways):
                turn = abs(math.remainder(after - before, 2 * math.pi))
                assert settings.continuity * turn < math.pi / 2


def test_snakes_are_as_many_and_as_long_as_the_settings_say(drawings):
    for settings, drawing in drawings:
        assert [snake.is_target for snake in drawing.snakes] == [True, True] + [False] * (len(drawing.snakes) - 2)
        assert len(drawing.snakes) - 2 <= settings.distractors
        lengths = {True: settings.contour_length, False: settings.distractor_length}
        assert all(len(snake.paddles) == lengths[snake.is_target] for snake in drawing.snakes)
        assert drawing.pen.margin in settings.margins
    hard = [len(drawing.snakes) - 2 for settings, drawing in drawings if settings == pathfinder_settings(32)]
    assert np.mean(hard) > 4
    margins = {drawing.pen.margin for settings, drawing in drawings if settings.size == 128}
    assert margins == {2, 3}


def test_targets_start_near_the_middle_and_apart(drawings):
    for settings, drawing in drawings:
        (first, second), border = (snake.origin for snake in drawing.snakes[:2]), 2 * settings.seed_distance
        assert all(border <= part < settings.size - border for part in first)
        assert math.dist(first, second) == pytest.approx(settings.seed_distance, abs=math.sqrt(2))


def test_each_paddle_avoids_what_is_occupied(drawings):
    """Occupied are the border and all halos except those of the newest paddles."""
    for settings, drawing in drawings:
        occupied = np.ones((settings.size + 40, settings.size + 40))
        occupied[21:-21, 21:-21] = 0
        newest = {}
        for snake, place, paddle in order_of_drawing(drawing):
            halo = put(draw_paddle(paddle.angle, drawing.pen).halo, paddle.start, settings.size)
            if snake >= 2 and place == 0:  # a new distractor: the previous snake is complete
                occupied = np.maximum(occupied, newest[snake - 1])
                assert occupied[paddle.start[0] + 20, paddle.start[1] + 20] <= 0.3
            if place:
                assert (occupied + halo).max() < 1.8
                occupied = np.maximum(occupied, newest[snake])
            newest[snake] = halo


def test_targets_do_not_touch(drawings):
    """Not at full contrast: only the newest paddle of the other target, not yet occupied, can be touched."""
    for settings, drawing in drawings:
        inks = [
            [put(draw_paddle(paddle.angle, drawing.pen).ink, paddle.start, settings.size) for paddle in snake.paddles]
            for snake in drawing.snakes[:2]
        ]
        for (first, ink), (second, other) in product(enumerate(inks[0]), enumerate(inks[1])):
            if first - second not in (0, 1):
                assert np.minimum(ink, other).max() < 0.5 * min(ink.max(), other.max())


def test_an_image_shows_its_record(drawings):
    for settings, drawing in drawings:
        size, pen = settings.size, drawing.pen
        expected = np.zeros((size + 40, size + 40))
        for snake in drawing.snakes:
            contrast = settings.target_contrast if snake.is_target else settings.distractor_contrast
            for paddle in snake.paddles:
                expected = np.maximum(expected, contrast * put(draw_paddle(paddle.angle, pen).ink, paddle.start, size))
        for marker in drawing.markers:
            expected = np.maximum(expected, put(draw_disc(settings.marker_radius), marker, size))
        expected = expected[20:-20, 20:-20]
        assert drawing.image.shape == (size, size)
        assert drawing.image.dtype == np.uint8
        assert (drawing.image.min(), drawing.image.max()) == (0, 255)
        assert (drawing.image == 0).mean() > 0.3
        np.testing.assert_allclose(drawing.image, 255 * expected / expected.max(), atol=0.51)


@given(st.sampled_from(PENS), st.integers(0, 359))
def test_a_paddle_is_a_line_and_its_halo_goes_a_margin_further(pen, degree):
    ink, halo = draw_paddle(math.radians(degree), pen)
    assert ink.shape == halo.shape == (2 * pen.reach + 1, 2 * pen.reach + 1)
    assert 0 <= ink.min() <= ink.max() <= 1
    points = np.moveaxis(np.indices(ink.shape) - pen.reach, 0, -1)  # (rows, columns, 2), relative to the start
    way = np.array([math.sin(math.radians(degree)), math.cos(math.radians(degree))])
    nearest = np.clip(points @ way, 0, pen.length)[..., None] * way
    distances = np.linalg.norm(points - nearest, axis=-1)
    assert ink[distances > pen.thickness / 2 + 1.3].max() < 0.1
    assert ink[distances < 0.25].min() > 0.15
    assert halo[distances > pen.thickness / 2 + pen.margin + 1.3].max() < 0.1
    assert halo[distances < pen.margin - 0.25].min() > 0.7
    np.testing.assert_allclose((ink[..., None] * points).sum((0, 1)) / ink.sum(), pen.length / 2 * way, atol=0.6)


@pytest.mark.parametrize("radius", [1.5, 3])
def test_a_disc_is_round_and_full(radius):
    disc = draw_disc(radius)
    y, x = np.indices(disc.shape) - len(disc) // 2
    assert disc[np.hypot(y, x) < radius - 0.8].min() > 0.95
    assert disc[np.hypot(y, x) > radius + 0.8].max() < 0.1
    np.testing.assert_allclose(disc, disc.T, atol=0.05)  # rows are reduced first, in eight bits
    np.testing.assert_array_equal(disc, disc[::-1])


@given(st.tuples(st.integers(-50, 150), st.integers(-50, 150)), st.floats(-7, 7), st.integers(0, 20))
def test_a_move_is_rounded_up(point, angle, distance):
    exact = np.array(point) + distance * np.array([math.sin(angle), math.cos(angle)])
    excess = np.array(move(point, angle, distance)) - exact
    assert (excess > -1e-8).all()
    assert (excess < 1).all()


def test_a_seed_makes_one_image():
    settings = pathfinder_settings(32, 6)
    one, same, other = (draw_pathfinder(np.random.default_rng(seed), settings) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.image, same.image)
    assert one[1:] == same[1:]
    assert (one.image != other.image).any()


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(pathfinder, "PART", 4)


def generate(out, **changes):
    generate_pathfinder(out, **({"count": 10, "contour_length": 6, "seed": 3, "workers": 1} | changes))


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def test_a_set_has_the_official_format(tmp_path, small_parts):
    generate(tmp_path)
    root = tmp_path / "curv_baseline"
    assert sorted(path.name for path in (root / "metadata").iterdir()) == ["0.npy", "1.npy", "2.npy"]
    examples = []
    for metadata in sorted((root / "metadata").glob("*.npy"), key=lambda path: int(path.stem)):
        *lines, rest = metadata.read_bytes().decode().split("\n")
        assert rest == ""
        for index, line in enumerate(lines):
            columns = line.split(" ")
            assert columns[2] == str(index)
            assert columns[4:] == ["1.0", "6", "2", "2", "0.5", "1"]
            with Image.open(root / columns[0] / columns[1]) as image:
                assert (image.mode, image.size) == ("L", (32, 32))
                examples.append((np.asarray(image), int(columns[3])))
    assert len(examples) == 10
    assert len(list(root.glob("imgs/*/sample_*.png"))) == 10
    for part in range(3):
        rng = np.random.default_rng([3, part])
        for image, label in examples[4 * part : 4 * part + 4]:
            drawing = draw_pathfinder(rng, pathfinder_settings(32, 6))
            np.testing.assert_array_equal(image, drawing.image)
            assert label == drawing.label


@pytest.mark.parametrize(("contour_length", "folder"), [(9, "curv_contour_length_9"), (14, "curv_contour_length_14")])
def test_each_length_has_its_folder(tmp_path, contour_length, folder):
    generate(tmp_path, count=1, contour_length=contour_length)
    assert [path.name for path in tmp_path.iterdir()] == [folder]


def test_a_set_without_distractors(tmp_path):
    generate(tmp_path, count=5, distractors=0)
    rng, settings = np.random.default_rng([3, 0]), replace(pathfinder_settings(32, 6), distractors=0)
    for index in range(5):
        drawing = draw_pathfinder(rng, settings)
        assert len(drawing.snakes) == 2
        with Image.open(tmp_path / "curv_baseline" / "imgs" / "0" / f"sample_{index}.png") as image:
            np.testing.assert_array_equal(np.asarray(image), drawing.image)


def test_a_set_does_not_depend_on_the_workers(tmp_path, small_parts):
    for workers in (1, 2):
        generate(tmp_path / str(workers), workers=workers)
    assert files(tmp_path / "1") == files(tmp_path / "2")
    generate(tmp_path / "other", seed=4)
    assert files(tmp_path / "other") != files(tmp_path / "1")


@pytest.mark.parametrize("step", range(1, 11))
def test_a_stopped_set_is_continued(tmp_path, small_parts, monkeypatch, step):
    generate(tmp_path / "complete")
    root = tmp_path / "stopped" / "curv_baseline"
    monkeypatch.setattr(pathfinder, "draw_pathfinder", stop_at(step, draw_pathfinder))
    with pytest.raises(KeyboardInterrupt):
        generate(tmp_path / "stopped")
    monkeypatch.setattr(pathfinder, "draw_pathfinder", draw_pathfinder)
    done = (step - 1) // 4
    assert sorted(path.name for path in root.glob("metadata/*")) == [f"{part}.npy" for part in range(done)]
    assert sorted(path.name for path in root.glob("imgs/[0-9]*")) == [str(part) for part in range(done)]
    before = {path: path.stat().st_mtime_ns for path in root.glob("imgs/[0-9]*/*")}
    generate(tmp_path / "stopped")
    assert files(tmp_path / "stopped") == files(tmp_path / "complete")
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())


def stop_at(step, function):
    calls = iter(range(1, step))

    def stopping(*arguments):
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return function(*arguments)

    return stopping


def test_a_part_without_its_metadata_is_made_again(tmp_path, small_parts):
    generate(tmp_path)
    complete = files(tmp_path)
    images, metadata = tmp_path / "curv_baseline" / "imgs", tmp_path / "curv_baseline" / "metadata"
    (metadata / "1.npy").unlink()
    (images / "1" / "sample_9.png").write_bytes(b"of something else")
    for leftover in (images / ".1-a1b2c3d4" / "1" / "sample_0.png", metadata / ".1.npy-a1b2c3d4" / "1.npy"):
        leftover.parent.mkdir(parents=True)  # as SIGKILL leaves it
        leftover.write_bytes(b"unfinished")
    generate(tmp_path)
    assert files(tmp_path) == complete


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 64}, r"size must be 32 \(Pathfinder\) or 128 \(Path-X\); got 64"),
        ({"contour_length": 2}, r"contour_length must be from 3 to 14 .*; got 2"),
        ({"count": 0}, r"count must be at least 1; got 0"),
        ({"seed": -1}, r"seed must be at least 0; got -1"),
        ({"workers": 0}, r"workers must be at least 1; got 0"),
    ],
)
def test_wrong_settings_are_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        generate(tmp_path, **changes)
    assert not list(tmp_path.rglob("*.png"))


def test_a_folder_of_other_settings_is_refused(tmp_path):
    generate(tmp_path, count=1)
    whole = files(tmp_path)
    with pytest.raises(ValueError, match=r"was made with seed = 3, not 5; use the same settings or another folder"):
        generate(tmp_path, count=1, seed=5)
    assert files(tmp_path) == whole


def test_without_pillow_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ModuleNotFoundError, match=r"needs pillow: pip install 'toeplitz-nn\[vision\]'"):
        generate(tmp_path)
    assert not list(tmp_path.iterdir())
