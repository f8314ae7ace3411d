"""Pathfinder: do two discs mark the two ends of the same dashed contour? The generator of images and data sets.

Images are made as in Long-Range Arena. Two target contours grow in turn, dash by dash; each dash turns a little and
avoids what is already drawn. Then shorter distractors fill the remaining room. One disc marks the start of a target,
the other one the end of the same target (label 1) or of the other target (label 0).
"""

import math
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tnn._files import atomic_path, write_text
from tnn.data.lra.drawing import Paddle, Pen, Point, disc_pixels, draw_disc, draw_paddle, encode_png, move
from tnn.data.lra.generation import LARGEST_SEED, check_count, make_parts, output_folder, remove_leftovers

CONTOUR_LENGTHS = range(3, 15)  # dashes of a target; the benchmark has 6, 9 and 14
PART = 1000  # images per folder
BORDER = 1  # pixels that no dash may reach
PADDLE_TRIES = 3
DISTRACTOR_TRIES = 5
LEAST_WEIGHT = 1e-4  # of all continuations together; below it a contour is stuck
FREE = 0.3  # a pixel with at most this occupancy is free
LEAST_FREE = 0.01  # share of free pixels below which no more distractors are added
MOST_OVERLAP = 1.8  # of a new halo with the existing ones

Map = NDArray[np.float32]


@dataclass(frozen=True)
class PathfinderSettings:
    """What all images of a set share. Lengths are in pixels, those of contours in dashes."""

    size: int
    paddle_length: int
    thickness: float
    margins: tuple[int, ...]  # one of them is chosen at random for each image
    contour_length: int
    distractor_length: int
    distractors: int
    continuity: float  # the higher, the straighter
    seed_distance: int  # between the starts of the two targets
    marker_radius: float
    target_contrast: float
    distractor_contrast: float


class Snake(NamedTuple):
    """A contour. Its first paddle runs forwards from its start, all other paddles run backwards."""

    paddles: tuple[Paddle, ...]
    is_target: bool

    @property
    def origin(self) -> Point:
        """The tip where the contour begins."""
        return self.paddles[0].start

    @property
    def terminal(self) -> Point:
        """The tip where the contour ends."""
        return self.paddles[-1].start


class Drawing(NamedTuple):
    """An image, its label, and what it was drawn from: the first two snakes are the targets."""

    image: NDArray[np.uint8]  # (size, size)
    label: int
    pen: Pen
    snakes: tuple[Snake, ...]
    markers: tuple[Point, Point]


def pathfinder_settings(size: int = 32, contour_length: int = 14) -> PathfinderSettings:
    """The settings of Pathfinder (size 32) or Path-X (128). Contours have 14 dashes, fewer in easier sets.

    >>> from tnn.data.lra.pathfinder import pathfinder_settings
    >>> settings = pathfinder_settings(128)
    >>> settings.distractor_length, settings.distractors
    (4, 8)
    """
    if size not in (32, 128):
        raise ValueError(f"size must be 32 (Pathfinder) or 128 (Path-X); got {size}")
    if contour_length not in CONTOUR_LENGTHS:
        raise ValueError(f"contour_length must be from 3 to 14 (the benchmark has 14); got {contour_length}")
    distractor_length = contour_length // 3
    if size == 32:
        return PathfinderSettings(
            size=32,
            paddle_length=2,
            thickness=0.5,
            margins=(1,),
            contour_length=contour_length,
            distractor_length=distractor_length,
            distractors=20 // distractor_length,
            continuity=1.0,
            seed_distance=7,
            marker_radius=1.5,
            target_contrast=2 * 0.75,
            distractor_contrast=2,
        )
    return PathfinderSettings(
        size=128,
        paddle_length=5,
        thickness=1.5,
        margins=(2, 3),
        contour_length=contour_length,
        distractor_length=distractor_length,
        distractors=35 // distractor_length,
        continuity=1.8,
        seed_distance=20,
        marker_radius=3,
        target_contrast=0.9,
        distractor_contrast=0.9,
    )


def generate_pathfinder(
    out: Path,
    *,
    size: int = 32,
    seed: int = 0,
    count: int = 200_000,
    contour_length: int = 14,
    distractors: int | None = None,
    workers: int | None = None,
) -> None:
    """Write a set in the official layout: out/curv_contour_length_14/imgs/K/sample_N.png and .../metadata/K.npy.

    A metadata file is text with one line per image: folder, file, index, label, continuity, dashes of a target and of a
    distractor, length, thickness and margin of a dash. The images depend on the seed, not on the number of workers.
    `distractors` is their number per image if there is room; None: as in the benchmark. After an interruption the same
    call continues with the missing parts of 1000 images.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from tnn.data.lra.pathfinder import generate_pathfinder
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     generate_pathfinder(Path(folder), count=1, contour_length=6)
    ...     Path(folder, "curv_baseline", "metadata", "0.npy").read_text()
    'imgs/0 sample_0.png 0 ... 1.0 6 2 2 0.5 1\\n'
    """
    settings = pathfinder_settings(size, contour_length)
    if distractors is not None:
        settings = replace(settings, distractors=check_count("distractors", distractors))
    seed, count = check_count("seed", seed, most=LARGEST_SEED), check_count("count", count, least=1)
    encode_png(np.zeros((1, 1), np.uint8))  # if pillow is missing, fail before anything is written
    folder = Path(out) / ("curv_baseline" if contour_length == 6 else f"curv_contour_length_{contour_length}")
    made_with: dict[str, int | float | str] = {
        "generator": "pathfinder",
        "size": settings.size,
        "contour_length": settings.contour_length,
        "distractors": settings.distractors,
        "seed": seed,
        "count": count,
    }
    with output_folder(folder, made_with):
        for name in ("imgs", "metadata"):
            (folder / name).mkdir(exist_ok=True)
        images = {part: min(PART, count - start) for part, start in enumerate(range(0, count, PART))}
        missing = [part for part in images if not _metadata(folder, part).exists()]
        make = partial(_make_part, folder, settings, seed, images)
        make_parts(make, missing, workers=workers, what=f"Pathfinder, {PART} images each")


def _make_part(folder: Path, settings: PathfinderSettings, seed: int, images: dict[int, int], part: int) -> None:
    rng = np.random.default_rng([seed, part])
    image_folder, metadata = folder / "imgs" / str(part), _metadata(folder, part)
    shutil.rmtree(image_folder, ignore_errors=True)  # of a run that was killed before it wrote the metadata
    remove_leftovers(image_folder)
    remove_leftovers(metadata)
    lengths = f"{settings.continuity} {settings.contour_length} {settings.distractor_length}"
    lines = []
    with atomic_path(image_folder) as temporary:
        temporary.mkdir()
        for index in range(images[part]):
            drawing = draw_pathfinder(rng, settings)
            (temporary / f"sample_{index}.png").write_bytes(encode_png(drawing.image))
            pen = f"{drawing.pen.length} {drawing.pen.thickness} {drawing.pen.margin}"
            lines.append(f"imgs/{part} sample_{index}.png {index} {drawing.label} {lengths} {pen}\n")
    write_text(metadata, "".join(lines))  # last: it marks the part as complete


def _metadata(folder: Path, part: int) -> Path:
    return folder / "metadata" / f"{part}.npy"


def draw_pathfinder(rng: np.random.Generator, settings: PathfinderSettings) -> Drawing:
    """One image with a random label.

    >>> import numpy as np
    >>> from tnn.data.lra.pathfinder import draw_pathfinder, pathfinder_settings
    >>> drawing = draw_pathfinder(np.random.default_rng(0), pathfinder_settings(32))
    >>> drawing.image.shape, [len(snake.paddles) for snake in drawing.snakes[:2]]
    ((32, 32), [14, 14])
    """
    label = int(rng.integers(2))
    margin = settings.margins[rng.integers(len(settings.margins))]
    pen = Pen(settings.paddle_length, settings.thickness, margin)
    targets, occupied = _grow_targets(rng, settings, pen)
    snakes = (*targets, *_grow_distractors(rng, settings, pen, occupied))
    marked = int(rng.integers(2))
    markers = targets[marked].origin, targets[marked if label else 1 - marked].terminal
    return Drawing(_paint(settings, pen, snakes, markers), label, pen, snakes, markers)


class _Tip(NamedTuple):
    """The state of a growing snake: its last paddle, the pixel around which that turned, and its direction."""

    paddle: Paddle
    pivot: Point
    angle: float


# Maps are larger than the window by `_room` on each side, so nothing has to be clipped; all of that is occupied.


def _room(pen: Pen) -> int:
    """How many pixels beyond the window a snake may look: three steps, each one pixel longer because of rounding."""
    return 3 * (pen.length + 2 * pen.margin + 2)


@lru_cache(maxsize=16)
def _outside(size: int, pen: Pen, border: int = BORDER) -> NDArray[np.bool_]:
    """True outside the window and in its border."""
    inside = np.zeros((size - 2 * border, size - 2 * border), bool)
    return np.pad(inside, _room(pen) + border, constant_values=True)


def _grow_targets(rng: np.random.Generator, settings: PathfinderSettings, pen: Pen) -> tuple[list[Snake], Map]:
    """The two targets, and the map of what they occupy."""
    while True:
        occupied = _outside(settings.size, pen).astype(np.float32)
        tips = _seed_targets(rng, settings, pen)
        if paddles := _grow(rng, settings.continuity, pen, occupied, tips, settings.contour_length):
            return [Snake(tuple(each), is_target=True) for each in paddles], occupied


def _seed_targets(rng: np.random.Generator, settings: PathfinderSettings, pen: Pen) -> list[_Tip]:
    """The starts of the two targets, or an empty list if one of them would leave the window."""
    angle = _random_degree(rng)
    free = _free_at_first(settings.size, 2 * settings.seed_distance, pen, angle)
    if not len(free):
        return []
    tail = _choose(rng, free)
    other = move(tail, rng.uniform(0, 2 * math.pi), settings.seed_distance)
    tips = [_start(tail, angle, pen), _start(other, _random_degree(rng), pen)]
    return tips if all(_is_inside(tip, settings.size, pen) for tip in tips) else []


def _grow_distractors(
    rng: np.random.Generator, settings: PathfinderSettings, pen: Pen, occupied: Map
) -> Iterator[Snake]:
    for _ in range(settings.distractors):
        for _ in range(DISTRACTOR_TRIES):
            angle = _random_degree(rng)
            free = _free_tails(occupied > FREE, settings.size, pen, angle)
            if len(free) < LEAST_FREE * settings.size**2:
                return
            tip = _start(_choose(rng, free), angle, pen)
            tips = [tip] if _is_inside(tip, settings.size, pen) else []
            attempt = occupied.copy()
            if paddles := _grow(rng, settings.continuity, pen, attempt, tips, settings.distractor_length):
                occupied = attempt
                yield Snake(tuple(paddles[0]), is_target=False)
                break


def _free_tails(taken: NDArray[np.bool_], size: int, pen: Pen, angle: float) -> NDArray[np.int16]:
    """The pixels of the window where a paddle can start: the full part of its halo touches nothing."""
    room, reach = _room(pen), pen.reach
    meets = np.zeros((size, size), bool)
    for y, x in np.argwhere(draw_paddle(angle, pen).halo >= 1) + (room - reach):
        meets |= taken[y : y + size, x : x + size]
    return np.argwhere(~meets).astype(np.int16)  # (tails, 2)


@lru_cache(maxsize=1024)
def _free_at_first(size: int, border: int, pen: Pen, angle: float) -> NDArray[np.int16]:
    return _free_tails(_outside(size, pen, border), size, pen, angle)


def _random_degree(rng: np.random.Generator) -> float:
    return math.radians(rng.integers(360))


def _choose(rng: np.random.Generator, points: NDArray[np.int16]) -> Point:
    y, x = points[rng.integers(len(points))].tolist()
    return y, x


def _start(tail: Point, angle: float, pen: Pen) -> _Tip:
    head = move(tail, angle, pen.length)
    return _Tip(Paddle(tail, angle), move(head, angle + math.pi, pen.length + pen.margin), angle)


def _is_inside(tip: _Tip, size: int, pen: Pen) -> bool:
    """Whether both ends of the tip's line, the head and the pivot, are in the window."""
    head = move(tip.paddle.start, tip.angle, pen.length)
    return all(0 <= part < size for part in (*head, *tip.pivot))


def _grow(
    rng: np.random.Generator, continuity: float, pen: Pen, occupied: Map, tips: list[_Tip], length: int
) -> list[list[Paddle]]:
    """The paddles of each snake; they start at `tips` and grow in turn. An empty list if one of them gets stuck.

    A paddle is marked as occupied only when the next one is drawn, which has to come close to it. So a snake may touch
    the newest paddle of the other one, and the last paddle of the first of two snakes is never marked.
    """
    paddles = [[tip.paddle] for tip in tips]
    for _ in range(length - 1):
        for snake, tip in enumerate(tips):
            longer = _extend(rng, continuity, pen, occupied, tip)
            if longer is None:
                return []
            _occupy(occupied, tip.paddle, pen)
            tips[snake] = longer
            paddles[snake].append(longer.paddle)
    if tips:
        _occupy(occupied, tips[-1].paddle, pen)
    return paddles


def _extend(rng: np.random.Generator, continuity: float, pen: Pen, occupied: Map, tip: _Tip) -> _Tip | None:
    """The tip after one more paddle, which turns around the next pivot; None if there is no room."""
    ways = _ways(tip.angle, continuity, pen, occupied.shape[1])
    y, x = tip.pivot
    near = occupied.take(ways.discs + (y * occupied.shape[1] + x)).max(axis=0)  # (ways,)
    sums = (ways.weights * (1 - near)).cumsum()
    if sums[-1] < LEAST_WEIGHT:
        return None
    for _ in range(PADDLE_TRIES):
        chosen = int(sums.searchsorted(rng.random() * sums[-1], side="right"))
        angle, (dy, dx) = ways.angles[chosen], ways.ends[chosen]
        paddle = Paddle((y + dy, x + dx), angle + math.pi)
        if (_around(occupied, paddle, pen) + draw_paddle(paddle.angle, pen).halo).max() < MOST_OVERLAP:
            return _Tip(paddle, (y + ways.step[0], x + ways.step[1]), angle)
    return None


class _Ways(NamedTuple):
    """The ways in which a snake can continue; all points are relative to its pivot."""

    step: Point  # to the next pivot
    ends: list[Point]  # of the next paddle
    angles: list[float]  # from the next pivot to these ends
    weights: NDArray[np.float64]  # (ways,)
    discs: NDArray[np.int64]  # (pixels, ways): the surroundings of each end, as indices into a flattened map


@lru_cache(maxsize=4096)  # as for paddles
def _ways(angle: float, continuity: float, pen: Pen, width: int) -> _Ways:
    step = move((0, 0), angle, pen.length + 2 * pen.margin)
    radius = pen.length + pen.margin
    around = np.arange(0, 2 * math.pi, 1 / radius)  # a pixel apart
    circle = np.unique(np.floor(radius * np.stack([np.sin(around), np.cos(around)], axis=1)).astype(int), axis=0)
    angles = np.arctan2(circle[:, 0], circle[:, 1])
    turns = np.abs((angles - angle + math.pi) % (2 * math.pi) - math.pi)
    possible = continuity * turns < math.pi / 2  # all other ways have weight 0
    ends, angles, turns = circle[possible] + step, angles[possible], turns[possible]
    y, x = np.moveaxis(ends + np.array(disc_pixels(pen.margin))[:, None] + _room(pen), -1, 0)  # (pixels, ways) each
    points = [(int(y), int(x)) for y, x in ends]
    return _Ways(step, points, angles.tolist(), np.cos(continuity * turns) ** 2, y * width + x)


def _occupy(occupied: Map, paddle: Paddle, pen: Pen) -> None:
    view = _around(occupied, paddle, pen)
    np.maximum(view, draw_paddle(paddle.angle, pen).halo, out=view)


def _around(whole: Map, paddle: Paddle, pen: Pen) -> Map:
    """The part of a map that a paddle's patches cover."""
    return _square(whole, paddle.start, pen.reach, _room(pen))


def _square(whole: Map, middle: Point, reach: int, room: int) -> Map:
    y, x = (part + room - reach for part in middle)
    return whole[y : y + 2 * reach + 1, x : x + 2 * reach + 1]


def _paint(
    settings: PathfinderSettings, pen: Pen, snakes: Iterable[Snake], markers: Iterable[Point]
) -> NDArray[np.uint8]:
    room = _room(pen)
    canvas = np.zeros((settings.size + 2 * room, settings.size + 2 * room), np.float32)
    for snake in snakes:
        contrast = settings.target_contrast if snake.is_target else settings.distractor_contrast
        for paddle in snake.paddles:
            view = _around(canvas, paddle, pen)
            np.maximum(view, contrast * draw_paddle(paddle.angle, pen).ink, out=view)
    disc = draw_disc(settings.marker_radius)
    for marker in markers:
        view = _square(canvas, marker, len(disc) // 2, room)
        np.maximum(view, disc, out=view)
    image = canvas[room:-room, room:-room]
    return np.rint(255 * (image - image.min()) / np.ptp(image)).astype(np.uint8)
