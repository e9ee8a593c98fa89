"""The data set that needs no download: scikit-learn's handwritten digits."""

from __future__ import annotations

import numpy as np

from simplexdp.data.dataset import Dataset, Split
from simplexdp.data.registry import DIGITS
from simplexdp.data.split import SPLIT_SEED, stratified_split

DIGITS_TEST = 360
DIGITS_PROVENANCE = (
    "scikit-learn's load_digits (8×8, 1,797 images), split 1,437/360 by public label "
    f"with seed {SPLIT_SEED}",
)


def digits() -> Dataset:
    """Return 1,797 digits of 8×8, float32 (N, 1, 8, 8) in [-1, 1]: 1,437 to train, 360 to test.

    The pixels are counts 0..16 by construction of the set, so scaling them to [-1, 1], where
    `to_model_input` puts every image, reads nothing from the data. The split is stratified by the
    public labels with a fixed seed (SPLIT_SEED).
    """
    from sklearn.datasets import load_digits  # a second, and not for those who only look

    from simplexdp.data.preprocessing import Preprocessing

    bunch = load_digits()
    inputs = (np.asarray(bunch.images, dtype=np.float32) / 8.0 - 1.0)[:, None]
    labels = np.asarray(bunch.target, dtype=np.int64)
    train, test = stratified_split(labels, DIGITS_TEST)
    return Dataset(
        name=DIGITS.name,
        train=Split(inputs[train], labels[train]),
        test=Split(inputs[test], labels[test]),
        validation=None,
        class_names=DIGITS.class_names,
        provenance=DIGITS_PROVENANCE,
        preprocessing=Preprocessing(DIGITS.shape, bounds=((0.0, 16.0),)),
    )
