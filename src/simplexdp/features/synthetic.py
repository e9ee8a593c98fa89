"""Images drawn from a public seed: the constants of the patch features are computed from them.

Dead leaves (Lee, Mumford and Huang 2001): shapes of all sizes, textured and shaded, that cover one
another, have edges and a spectrum like those of photographs. Silhouettes are a few such shapes
together on black, mostly symmetric, like pictures of single objects. No photograph is used.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Generator = np.random.Generator
OVERSAMPLED = 2  # drawn so many times as large, and averaged
SHAPES = 48


def leaves(count: int, rng: Generator, side: int = 32) -> Floats:
    """Return dead leaves in colour, (count, 3, side, side) in [0, 1]."""
    big = side * OVERSAMPLED
    x, y = _grid(big)
    out = np.empty((count, 3, side, side), np.float32)
    for k in range(count):
        share = rng.random(SHAPES)
        radius = 1.0 / np.sqrt(share / 2.0**2 + (1 - share) / big**2)  # a density of r^-3
        inside = _inside(x, y, rng.random((SHAPES, 2)) * big, radius, rng)
        inside[-1] = True  # what nothing covers
        light = rng.random((SHAPES, 1)) + rng.normal(0, 0.12, (SHAPES, 3)) + rng.normal(0, 0.06, 3)
        top = inside.argmax(0)
        out[k] = _small(light[top].T + _texture(top, x, y, rng, SHAPES), side)
    return out


def silhouettes(count: int, rng: Generator, side: int = 28) -> Floats:
    """Return grey objects on black, (count, 1, side, side) in [0, 1]."""
    big = side * OVERSAMPLED
    x, y = _grid(big)
    out = np.empty((count, 1, side, side), np.float32)
    for k in range(count):
        parts = int(rng.integers(2, 7))
        centre = big * (0.5 + rng.normal(0, 0.17, (parts, 2)))
        radius = big * rng.uniform(0.08, 0.36, parts)
        inside = _inside(x, y, centre, radius, rng)
        if rng.random() < 0.7:
            square = inside.reshape(parts, big, big)
            inside = (square | square[:, :, ::-1]).reshape(parts, -1)
        top = inside.argmax(0)
        light = rng.uniform(0.25, 0.95) + rng.normal(0, 0.12, parts)
        body = light[top] + _texture(top, x, y, rng, parts)
        out[k] = _small(np.where(inside.any(0), body, 0.0)[None], side)
    return out


def _grid(big: int) -> tuple[Floats, Floats]:
    y, x = np.mgrid[0:big, 0:big].astype(np.float32)
    return x.ravel(), y.ravel()


def _inside(
    x: Floats, y: Floats, centre: NDArray[np.float64], radius: NDArray[np.float64], rng: Generator
) -> NDArray[np.bool_]:
    """Return for each shape the pixels in it: turned diamonds, ellipses and rectangles."""
    count = len(radius)
    angle = rng.random(count) * math.pi
    aspect = np.exp(rng.normal(0, 0.4, count))
    kind = rng.integers(0, 3, count)
    cos, sin = (f(angle)[:, None].astype(np.float32) for f in (np.cos, np.sin))
    dx = x - centre[:, :1].astype(np.float32)
    dy = y - centre[:, 1:].astype(np.float32)
    a = np.abs(dx * cos + dy * sin) / (radius * aspect)[:, None].astype(np.float32)
    b = np.abs(dy * cos - dx * sin) / (radius / aspect)[:, None].astype(np.float32)
    inside = np.empty(a.shape, np.bool_)
    for which, gauge in enumerate((np.add, np.hypot, np.maximum)):
        chosen = kind == which
        inside[chosen] = gauge(a[chosen], b[chosen]) <= 1
    return inside


def _texture(
    top: NDArray[np.intp], x: Floats, y: Floats, rng: Generator, count: int
) -> NDArray[np.float64]:
    """Return waves, a slope of light and grain for each pixel, by the shape on top."""
    big = math.isqrt(len(x))
    angle, phase = rng.random(count) * math.pi, rng.random(count) * 2 * math.pi
    rate = np.exp(rng.uniform(math.log(0.15), math.log(1.6), count))
    along = x * np.cos(angle)[top] + y * np.sin(angle)[top]
    waves = np.sin(along * rate[top] + phase[top]) * rng.exponential(0.06, count)[top]
    slope = rng.normal(0, 0.25, (count, 2)) / big
    shade = (x - big / 2) * slope[top, 0] + (y - big / 2) * slope[top, 1]
    cell = int(rng.choice([2, 4, 8]))
    coarse = rng.normal(0, 1, (-(-big // cell),) * 2)
    grain = np.kron(coarse, np.ones((cell, cell)))[:big, :big].ravel()
    return np.asarray(waves + shade + grain * rng.exponential(0.06, count)[top])


def _small(colours: NDArray[np.float64], side: int) -> Floats:
    cells = colours.reshape(len(colours), side, OVERSAMPLED, side, OVERSAMPLED)
    return np.asarray(np.clip(cells.mean((2, 4)), 0, 1), np.float32)
