#!/usr/bin/env python3
"""Train every method on the digits from known seeds and compare the weights' digests.

`python benchmarks/digests.py` compares with tests/digests.json, which was written before the
redesign of 0.2.0; `--write FILE` writes new ones. Digests are of one machine: other vector
instructions round otherwise, so on another processor the script only says so.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

KEPT = Path(__file__).resolve().parent.parent / "tests" / "digests.json"
SGD = "--batch-size 8 --steps 200 --seed 1"
CASES = {
    "dirichlet": f"--method dirichlet {SGD}",
    "dirichlet defaults": "--method dirichlet --seed 0",
    "dirichlet full": f"--method dirichlet {SGD} --estimator full",
    "dirichlet pld": f"--method dirichlet {SGD} --accountant pld --epsilon 2",
    "dirichlet visible": f"--method dirichlet {SGD} --accountant visible --epsilon 8",
    "dirichlet adam": f"--method dirichlet {SGD} --optimizer adam",
    "dirichlet momentum": f"--method dirichlet {SGD} --optimizer momentum --alpha 10",
    "dirichlet weights": f"--method dirichlet {SGD} --option class_weights=balanced",
    "dirichlet warmup": f"--method dirichlet {SGD} --option warmup=50 --lr 2",
    "dirichlet augmented": f"--method dirichlet {SGD} --augment random_crop,horizontal_flip",
    "dirichlet workers": f"--method dirichlet {SGD} --workers 2",
    "dirichlet cnn": "--method dirichlet --batch-size 8 --steps 40 --seed 2 --model resnet9",
    "plain": f"--method plain {SGD}",
    "plain batch norm": "--method plain --model resnet9 --norm batch --steps 30 --seed 3",
    "plain weights": f"--method plain {SGD} --optimizer adamw --option class_weights=balanced",
    "plain epochs": "--method plain --batch-size 20 --epochs 2 --seed 3 --model logistic",
    "dpsgd": "--method dpsgd --seed 4",
    "dpsgd averaged": "--method dpsgd --batch-size 64 --steps 40 --seed 4 "
    "--option weight_average=0.99 --option rescale_to_unit_norm=true --option clip=0.5",
    "dpsgd copies": "--method dpsgd --batch-size 64 --steps 20 --seed 4 --epsilon 4 "
    "--augment random_crop,horizontal_flip --option augmentation_multiplicity=3",
    "dpsgd group norm": "--method dpsgd --batch-size 32 --steps 6 --seed 4 --model resnet9 "
    "--norm batch --option replace_batch_norm=true",
    "certified": "--method certified --seed 5",
    "certified columns": "--method certified --seed 5 --option features=columns --epsilon 4",
    "certified random": "--method certified --seed 5 --option features=random --steps 50 --lr 100",
    "gaussian features": "--method gaussian-features --seed 6",
    "gaussian features replaced": "--method gaussian-features --seed 6 --epsilon 4 "
    "--option relation=replace-input --option dimensions=32 --option features=columns",
    "gaussian features trained": "--method gaussian-features --seed 6 --option form=trained "
    "--batch-size 32 --steps 60",
}
OWN_LOOP = """
import hashlib, numpy as np, torch, simplexdp
from sklearn.datasets import load_digits
torch.set_num_threads(1)
X, y = load_digits(return_X_y=True)
x, t = torch.tensor(X / 8 - 1, dtype=torch.float32), torch.tensor(y)
torch.manual_seed(0)
net = torch.nn.Linear(64, 10)
plan = simplexdp.Plan(1.0, 1e-5, len(t), batch_size=8, steps=200, seed=3)
optimizer = torch.optim.SGD(net.parameters(), lr=plan.learning_rate())
criterion = plan.loss(simplexdp.balanced_weights(t, 10))
for a, b in plan.batches((x, t)):
    optimizer.zero_grad()
    criterion(net(a), b).backward()
    optimizer.step()
own = simplexdp.CertifiedClassifier(epsilon=2.0, bounds=(0, 16), random_state=7).fit(X, y)
found = [p.detach().numpy().tobytes() for p in net.parameters()]
print(hashlib.sha256(b"".join(found)).hexdigest())
print(hashlib.sha256(own.weights_.tobytes() + own.bias_.tobytes()).hexdigest())
"""


def of_weights(path: Path) -> str:
    """Return a digest of every tensor's name, type, shape and values."""
    from safetensors.numpy import load_file

    digest = hashlib.sha256()
    for name, value in sorted(load_file(path).items()):
        digest.update(f"{name} {value.dtype} {value.shape};".encode() + value.tobytes())
    return digest.hexdigest()


def one(case: str, folder: Path) -> dict[str, object]:
    """Train one case in a process of its own."""
    out = folder / case.replace(" ", "-")
    command = [sys.executable, "-m", "simplexdp", "train", "--data", "digits", "--json", "--quiet"]
    command += [*CASES[case].split(), "--threads", "1", "--out", str(out)]
    command += ["--ledger", str(folder / f"{out.name}.ledger")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{case}: {done.stderr}")
    accuracy = json.loads(done.stdout)["accuracy"]
    return {"weights": of_weights(out / "model.safetensors"), "accuracy": accuracy}


def main() -> int:
    """Compare, or write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    from simplexdp import runs

    os.environ["OMP_NUM_THREADS"] = "1"
    cases = [case for case in CASES if asked.only in case]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        found = dict(zip(cases, pool.map(lambda c: one(c, Path(folder)), cases), strict=True))
    if not asked.only or asked.only in "own loop":
        own = subprocess.run([sys.executable, "-c", OWN_LOOP], capture_output=True, text=True)
        loop, estimator = own.stdout.split()
        found |= {"own loop": {"weights": loop}, "estimator": {"weights": estimator}}
    machine = {k: runs.machine()[k] for k in ("processor", "instructions", "torch")}
    if asked.write:
        asked.write.write_text(json.dumps({"machine": machine, "cases": found}, indent=1) + "\n")
        return 0
    kept = json.loads(KEPT.read_text())
    wrong = [case for case, of in found.items() if kept["cases"][case] != of]
    if kept["machine"] != machine:
        print("the digests are of another machine:", kept["machine"])
    print(f"{len(found) - len(wrong)} of {len(found)} are the same bit for bit")
    print("\n".join(f"another: {case}" for case in wrong))
    return 1 if wrong and kept["machine"] == machine else 0


if __name__ == "__main__":
    sys.exit(main())
