"""IBM's LogisticRegression on rows from a file, in an interpreter of its own.

    PYTHON benchmarks/diffprivlib_peer.py rows.npz EPSILON SEED C

diffprivlib 0.6.6 does not load beside scikit-learn 1.7 or later, so certified_peers.py starts it
with another interpreter, one that has scikit-learn 1.5. Prints accuracy and seconds as JSON.
"""

from __future__ import annotations

import json
import sys
import time
import warnings

import numpy as np
from diffprivlib.models import LogisticRegression


def main() -> None:
    path, epsilon, seed, weight = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    warnings.filterwarnings("ignore")
    with np.load(path, allow_pickle=False) as file:
        rows, labels, test, held = (file[name] for name in ("rows", "labels", "test", "held"))
    began = time.process_time()
    # Rows have norm at most 1 by the format's range, so the bound reads nothing from the data.
    model = LogisticRegression(epsilon=epsilon, data_norm=1.0, C=float(weight), random_state=seed)
    model.fit(rows.astype(np.float64), labels)
    seconds = time.process_time() - began
    accuracy = float((model.predict(test.astype(np.float64)) == held).mean())
    print(json.dumps({"accuracy": accuracy, "seconds": seconds}))


if __name__ == "__main__":
    main()
