"""Drawing for Pathfinder: dashes, the halos that keep them apart, and discs, as small antialiased patches."""

import io
import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

SCALE = 2  # patches are drawn larger by this factor, then reduced
ROUNDING = 1e-9  # so that rounding errors of sine and cosine do not move a point by one pixel
Point = tuple[int, int]  # y, x
Patch = NDArray[np.float32]  # (2 reach + 1, 2 reach + 1); its centre is the point where it is placed


class Pen(NamedTuple):
    """What all dashes ("paddles") of an image share; `margin` is the width of the halo around a paddle."""

    length: int
    thickness: float
    margin: int

    @property
    def reach(self) -> int:
        """Pixels from the start of a paddle to the edge of its patch, on each side."""
        return self.length + math.ceil(self.thickness) + self.margin


class Paddle(NamedTuple):
    """A dash from a pixel in a direction: y grows with the sine of the angle, x with the cosine."""

    start: Point
    angle: float


class Stroke(NamedTuple):
    """The ink of a paddle and its halo, in [0, 1]."""

    ink: Patch
    halo: Patch


def move(point: Point, angle: float, distance: float) -> Point:
    """The pixel at an angle and a distance from `point`, both coordinates rounded up.

    >>> from math import pi
    >>> from tnn.data.lra.drawing import move
    >>> move((5, 5), pi / 6, 3), move((5, 5), pi, 3)
    ((7, 8), (5, 2))
    """
    y, x = point
    return y + math.ceil(distance * math.sin(angle) - ROUNDING), x + math.ceil(distance * math.cos(angle) - ROUNDING)


@lru_cache(maxsize=4096)  # few angles occur: whole degrees, or from a pixel to another on a circle around it
def draw_paddle(angle: float, pen: Pen) -> Stroke:
    """The patches of a paddle that starts at their centre; they are cached, therefore read-only.

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
        halo |= np.roll(line, (dy, dx), (0, 1))  # the patch is large enough: nothing wraps around
    return Stroke(_reduce(line), _reduce(halo))


@lru_cache(maxsize=16)
def draw_disc(radius: float) -> Patch:
    """The patch of a disc.

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
    """The pixels of a disc, relative to its centre.

    >>> from tnn.data.lra.drawing import disc_pixels
    >>> disc_pixels(1)
    ((-1, 0), (0, -1), (0, 0), (0, 1), (1, 0))
    """
    steps = range(-math.floor(radius), math.floor(radius) + 1)
    return tuple((y, x) for y in steps for x in steps if math.hypot(y, x) <= radius)


def encode_png(pixels: NDArray[np.uint8]) -> bytes:
    """A grey image as the bytes of a PNG file.

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
    """Lanczos; uint8 clips its overshoots. Both sizes are odd, so the centre stays the centre."""
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
        raise ModuleNotFoundError("Pathfinder needs pillow: pip install 'toeplitz-nn[vision]'") from None
    return Image, ImageDraw, Image.Resampling.LANCZOS
