"""The pens of Pathfinder: dashes, the halos that keep them apart, and discs, as small antialiased patches."""

import io
import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

SCALE = 2  # patches are drawn this much larger, then reduced
ROUNDING = 1e-9  # a step that should end on a pixel ends there, whatever the last digit of its sine
Point = tuple[int, int]  # y, x
Patch = NDArray[np.float32]  # (2 reach + 1, 2 reach + 1), its middle being the point where it is put


class Pen(NamedTuple):
    """What all dashes ("paddles") of a picture share; `margin` is how far a halo goes around its paddle."""

    length: int
    thickness: float
    margin: int

    @property
    def reach(self) -> int:
        """Pixels from the start of a paddle to the edge of its patch, on each side."""
        return self.length + math.ceil(self.thickness) + self.margin


class Paddle(NamedTuple):
    """A dash that starts at a pixel and runs at an angle: y grows with its sine, x with its cosine."""

    start: Point
    angle: float


class Stroke(NamedTuple):
    """A paddle's ink and its halo, in [0, 1]."""

    ink: Patch
    halo: Patch


def move(point: Point, angle: float, distance: float) -> Point:
    """The pixel at a distance, each coordinate rounded up.

    >>> from math import pi
    >>> from tnn.data.lra.drawing import move
    >>> move((5, 5), pi / 6, 3), move((5, 5), pi, 3)
    ((7, 8), (5, 2))
    """
    y, x = point
    return y + math.ceil(distance * math.sin(angle) - ROUNDING), x + math.ceil(distance * math.cos(angle) - ROUNDING)


@lru_cache(maxsize=4096)  # the angles are whole degrees, or lead from a pixel to one on a circle around it
def draw_paddle(angle: float, pen: Pen) -> Stroke:
    """The patches of a paddle that starts in their middle; they are shared, so read-only.

    >>> from tnn.data.lra.drawing import Pen, draw_paddle
    >>> ink, halo = draw_paddle(0.0, Pen(length=2, thickness=0.5, margin=1))
    >>> ink.shape, (ink[4] > 0.3).astype(int).tolist(), (halo[4] > 0.3).astype(int).tolist()
    ((9, 9), [0, 0, 0, 0, 1, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1, 1, 1, 0])
    """
    image, draw, _ = _pillow()
    middle = pen.reach * SCALE
    end = [round(middle + SCALE * pen.length * part) for part in (math.cos(angle), math.sin(angle))]
    canvas = image.new("L", (2 * middle + 1, 2 * middle + 1))
    draw.Draw(canvas).line([middle, middle, *end], fill=255, width=round(SCALE * pen.thickness))
    line = np.asarray(canvas) > 0
    halo = np.zeros_like(line)
    for dy, dx in disc_pixels(SCALE * pen.margin):
        halo |= np.roll(line, (dy, dx), (0, 1))  # the patch has room enough: nothing comes in on the other side
    return Stroke(_reduce(line), _reduce(halo))


@lru_cache(maxsize=16)
def draw_disc(radius: float) -> Patch:
    """The patch of a disc around its middle.

    >>> from tnn.data.lra.drawing import draw_disc
    >>> (draw_disc(1.5) > 0.5).astype(int).tolist()
    [[0, 0, 0, 0, 0], [0, 1, 1, 1, 0], [0, 1, 1, 1, 0], [0, 1, 1, 1, 0], [0, 0, 0, 0, 0]]
    """
    middle = math.ceil(radius) * SCALE
    disc = np.zeros((2 * middle + 1, 2 * middle + 1), bool)
    for dy, dx in disc_pixels(SCALE * radius):
        disc[middle + dy, middle + dx] = True
    return _reduce(disc)


@lru_cache(maxsize=16)
def disc_pixels(radius: float) -> tuple[Point, ...]:
    """The pixels, relative to its middle, of a disc.

    >>> from tnn.data.lra.drawing import disc_pixels
    >>> disc_pixels(1)
    ((-1, 0), (0, -1), (0, 0), (0, 1), (1, 0))
    """
    steps = range(-math.floor(radius), math.floor(radius) + 1)
    return tuple((y, x) for y in steps for x in steps if math.hypot(y, x) <= radius)


def encode_png(pixels: NDArray[np.uint8]) -> bytes:
    """The bytes of a PNG file with a grey picture.

    >>> import numpy as np
    >>> from tnn.data.lra.drawing import encode_png
    >>> encode_png(np.zeros((2, 2), np.uint8))[1:4]
    b'PNG'
    """
    image, _, _ = _pillow()
    file = io.BytesIO()
    image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def _reduce(large: NDArray[np.bool_]) -> Patch:
    """By Lanczos' filter, whose overshoots eight bits cut off; both sides are odd, so that the middle stays it."""
    image, _, lanczos = _pillow()
    side = large.shape[0] // SCALE + 1
    small = image.fromarray(large.astype(np.uint8) * 255).resize((side, side), lanczos)
    patch: Patch = np.asarray(small).astype(np.float32) / np.float32(255)
    patch.flags.writeable = False
    return patch


def _pillow() -> tuple[Any, Any, Any]:
    try:
        from PIL import Image, ImageDraw
    except ModuleNotFoundError:
        raise ModuleNotFoundError("Pathfinder's pictures need pillow: pip install 'toeplitz-nn[vision]'") from None
    return Image, ImageDraw, Image.Resampling.LANCZOS
