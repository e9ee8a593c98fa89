"""The transcript audit: right methods within their claims, each mistake seen, outsiders heard."""

from __future__ import annotations

import dataclasses
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from simplexdp import data, files, methods, noise
from simplexdp.audit import attacks, shadow, transcript
from simplexdp.linear import exact_sums, noisy_gd, whitening
from simplexdp.methods import dpsgd
from simplexdp.methods.dpsgd import step as dpsgd_step
from simplexdp.settings import Settings

HEARD = {
    "certified": {"mean", "moments", "steps"},
    "gaussian-features": {"features"},
    "dpsgd": {"noisy sums"},
}
PAIRS = {"certified": 24, "gaussian-features": 2, "dpsgd": 6}


def settings(method: str) -> Settings:
    options = dict(methods.lookup(method).audited.heard)
    network = {"model": "logistic", "batch_size": 40} if method == "dpsgd" else {}
    steps = None if method == "gaussian-features" else 12
    return Settings(method=method, steps=steps, options=options, **network)  # type: ignore[arg-type]


def heard(images: data.Dataset, method: str, pairs: int | None = None) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    return transcript.audit(settings(method), images, rng, pairs or PAIRS[method], 0.99)


@pytest.mark.parametrize("method", sorted(HEARD))
def test_as_shipped_every_release_tells_what_it_may(images: data.Dataset, method: str) -> None:
    found = heard(images, method)
    assert set(found["releases"]) == HEARD[method]
    assert found["weights_follow"]
    assert found["suspicious"] == []
    assert not transcript.contradicts(found)
    for release in found["releases"].values():
        assert release["low"] <= 1.0
        assert release["high"] > 0.95  # the planted record is near the worst
        assert release["noise"][0] < 1.0 < release["noise"][1]
    # Nearly all of the claim: it is limited by the numbers that were drawn, not by an attack.
    assert found["epsilon_lower"] > 0.8 * found["claim"]["epsilon"]
    assert found["epsilon_lower"] <= found["claim"]["epsilon"] * (1 + 1e-6)


def test_bands_and_tests_of_made_noise() -> None:
    """1,000 numbers of deviation 1.1 in five releases; the record is in four of eight steps."""
    rng = np.random.default_rng(2)
    parts = [1.1 * rng.normal(size=200) for _ in range(5)]
    level = 0.02
    of = transcript.Heard(2.0, shares=[[0.3, 0.0, 0.4, 0.0], [0.0, 0.0, 1.2, 0.5]])
    for part in parts:
        of.add(part)
    numbers = np.concatenate(parts)
    energy = float(numbers @ numbers)
    low, high = (math.sqrt(energy / c) for c in stats.chi2.interval(1 - level, 1000)[::-1])
    found = of.result(None, level)
    assert found["noise"] == pytest.approx([low, high], rel=1e-9)
    assert found["share"] == pytest.approx(1.3 / 2.0)
    assert found["low"] == pytest.approx(1.3 / 2.0 / high, rel=1e-9)
    assert found["high"] == pytest.approx(1.3 / 2.0 / low, rel=1e-9)
    assert (found["releases"], found["numbers"], "sampled" in found) == (8, 1000, False)
    scaled = numbers / math.sqrt(energy / 1000)
    assert found["gaussian_p_value"] == pytest.approx(stats.kstest(scaled, "norm").pvalue)
    product = sum(float(a @ b) for a, b in itertools.pairwise(parts))
    z = product / (energy / 1000 * math.sqrt(800))
    assert found["fresh_p_value"] == pytest.approx(2 * stats.norm.sf(abs(z)))
    again = of.result(0.25, level)
    # Were the record in all four steps, μ would be √2 and √2 times as large.
    assert again["share"] == pytest.approx(1.3 * math.sqrt(2) / 2.0)
    seen = stats.binomtest(4, 8).proportion_ci(1 - level, "exact")
    assert again["sampled"] == pytest.approx([seen.low, seen.high], rel=1e-6)
    assert again["claimed_rate"] == 0.25


def test_what_is_suspicious_and_what_contradicts() -> None:
    fine = {"noise": [0.98, 1.02], "gaussian_p_value": 0.3, "fresh_p_value": 0.4, "low": 0.97}
    assert not transcript.suspicious(fine, 0.01)
    assert not transcript.suspicious({**fine, "sampled": [0.09, 0.2], "claimed_rate": 0.1}, 0.01)
    for wrong in (
        {"gaussian_p_value": 0.009},
        {"fresh_p_value": 0.009},
        {"noise": [0.9, 0.99]},
        {"sampled": [0.11, 0.2], "claimed_rate": 0.1},
    ):
        assert transcript.suspicious({**fine, **wrong}, 0.01)
    result = {"releases": {"a": fine, "b": fine}, "suspicious": [], "weights_follow": True}
    assert not transcript.contradicts(result)
    for wrong in (
        {"releases": {"a": fine, "b": {**fine, "low": 1.01}}},
        {"suspicious": ["a"]},
        {"weights_follow": False},
    ):
        assert transcript.contradicts({**result, **wrong})


def test_one_pair_is_all_that_its_numbers_say(images: data.Dataset) -> None:
    """Levels, widths and the scale from the numbers that are told; a clipped record adds a clip."""
    found = transcript.audit(settings("certified"), images, np.random.default_rng(7), 1, 0.99)
    releases = found["releases"].values()
    level = 0.01 / 9  # three releases, each with a band and two tests
    for release in releases:
        low, high = stats.chi2.interval(1 - level, release["numbers"])
        width = release["noise"][1] / release["noise"][0]
        assert width == pytest.approx(math.sqrt(high / low), rel=1e-9)
        assert 0.9 < release["share"] < 1.0 + 1e-6
        assert release["noise"][0] < 1.0 < release["noise"][1]
    mus = [r["share"] * r["claimed_mu"] / r["noise"][1] for r in releases]
    claimed = math.hypot(*(r["claimed_mu"] for r in releases))
    assert found["scale_lower"] == pytest.approx(math.hypot(*mus) / claimed, rel=1e-9)
    assert found["weights_follow"]
    one, other = (shadow.Shadow(None, torch.nn.Linear(2, 2), None) for _ in range(2))  # type: ignore[arg-type]
    assert transcript._equal(one, one)
    assert not transcript._equal(one, other)


def weaker(share: float) -> Any:
    def release(total: noise.Integers, sigma: float, bits: noise.Bits) -> noise.Integers:
        return noise.release(total, share * sigma, bits)

    return release


@pytest.mark.parametrize(
    ("module", "broken"), [(noisy_gd, {"steps"}), (whitening, {"mean", "moments"})]
)
def test_nine_tenths_of_certified_s_noise_is_caught(
    images: data.Dataset, monkeypatch: pytest.MonkeyPatch, module: Any, broken: set[str]
) -> None:
    monkeypatch.setattr(module, "release", weaker(0.9))
    found = heard(images, "certified")
    assert transcript.contradicts(found)
    assert set(found["suspicious"]) == broken
    for name in broken - {"mean"}:  # of few numbers: its noise is caught, its band may reach 1
        assert found["releases"][name]["low"] > 1.0


def test_nine_tenths_of_dpsgd_s_noise_is_caught(
    images: data.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def weak(model: Any, totals: Any, chosen: Any, rng: Any) -> None:
        less = dataclasses.replace(chosen, noise_multiplier=0.9 * chosen.noise_multiplier)
        dpsgd_step.set_noisy_gradient(model, totals, less, rng)

    monkeypatch.setattr(dpsgd, "set_noisy_gradient", weak)
    found = heard(images, "dpsgd")
    assert found["releases"]["noisy sums"]["low"] > 1.0
    assert found["epsilon_lower"] > found["claim"]["epsilon"]


def test_a_clip_that_is_too_wide_is_caught(
    images: data.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The noise is as it should be; the record adds more than it may."""
    clipped = exact_sums.clipped_coefficients

    def wider(coefficients: Any, norms: Any, clip: float, *rest: Any) -> Any:
        return clipped(coefficients, norms, 1.2 * clip, *rest)

    monkeypatch.setattr(exact_sums, "clipped_coefficients", wider)
    found = heard(images, "certified", 3)
    assert found["suspicious"] == []
    assert found["releases"]["steps"]["low"] > 1.1
    assert transcript.contradicts(found)


def test_a_step_too_many_is_caught(images: data.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = noisy_gd.descend

    def longer(rows: Any, labels: Any, prior: Any, schedule: Any, *rest: Any) -> Any:
        more = dataclasses.replace(schedule, steps=schedule.steps + 4)
        return plain(rows, labels, prior, more, *rest)

    monkeypatch.setattr(noisy_gd, "descend", longer)
    found = heard(images, "certified", 3)
    assert found["releases"]["steps"]["low"] > 1.1  # √(16/12) is 1.15


@pytest.mark.parametrize(
    ("module", "broken"), [(noisy_gd, {"steps"}), (whitening, {"mean", "moments"})]
)
def test_noise_that_is_drawn_once_and_used_again_is_caught(
    images: data.Dataset, monkeypatch: pytest.MonkeyPatch, module: Any, broken: set[str]
) -> None:
    def again(total: noise.Integers, sigma: float, bits: noise.Bits) -> noise.Integers:
        return noise.release(total, sigma, noise.seeded_bits(np.random.default_rng(1)))

    monkeypatch.setattr(module, "release", again)
    found = heard(images, "certified", 4)
    assert set(found["suspicious"]) >= broken
    assert all(found["releases"][name]["fresh_p_value"] < 1e-6 for name in broken)


def test_noise_of_another_law_is_caught(
    images: data.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def laplace(total: noise.Integers, sigma: float, bits: noise.Bits) -> noise.Integers:
        rng = np.random.default_rng(int(bits(1)[0]))
        return total + np.rint(rng.laplace(0, sigma / np.sqrt(2), total.shape)).astype(np.int64)

    monkeypatch.setattr(noisy_gd, "release", laplace)
    found = heard(images, "certified", 2)
    assert found["suspicious"] == ["steps"]
    assert found["releases"]["steps"]["gaussian_p_value"] < 1e-6


def test_what_reaches_the_weights_beside_the_releases_is_caught(
    images: data.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    fold = whitening.Transform.fold
    seen: list[float] = []
    quantize = exact_sums.quantize

    def remembered(rows: torch.Tensor, *rest: Any, **named: Any) -> Any:
        seen.append(float(rows.nansum()))
        return quantize(rows, *rest, **named)

    def leaking(self: Any, weights: Any) -> Any:
        raw, offset = fold(self, weights)
        return raw + 1e-9 * seen[-1], offset

    monkeypatch.setattr(exact_sums, "quantize", remembered)
    monkeypatch.setattr(whitening.Transform, "fold", leaking)
    found = heard(images, "certified", 1)
    assert not found["weights_follow"]
    assert transcript.contradicts(found)
    assert "do not follow" in transcript.described(found)


def test_the_command_refuses_a_method_without_releases(images: data.Dataset) -> None:
    for method in ("plain", "dirichlet"):
        with pytest.raises(ValueError, match=r"call run\.on_release for each"):
            attacks.run(Settings(method=method), "transcript", 1, dataset=images, seed=0)


def test_a_method_from_outside_is_heard(
    images: data.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "methods" / "outside")
    asked = Settings(method="centroids:METHOD")
    found = attacks.run(asked, "transcript", 12, dataset=images, seed=0)
    assert set(found["releases"]) == {"sums"}
    assert found["weights_follow"]
    assert found["releases"]["sums"]["high"] > 0.98
    assert "not above the bound of 1" in found["summary"]
    assert "μ over its claim: sums" in found["summary"]


def test_a_network_with_dropout_is_refused() -> None:
    with pytest.raises(ValueError, match="with dropout"):
        transcript._refuse_dropout(torch.nn.Sequential(torch.nn.Dropout(0.5)))
    transcript._refuse_dropout(torch.nn.Sequential(torch.nn.Dropout(0.0), torch.nn.ReLU()))


def test_a_run_s_own_schedule_is_heard_and_written_into_its_statement(
    images: data.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "load", lambda name, **options: images)
    asked = Settings(data="images", method="certified", steps=8, options={"features": "columns"})
    _, folder = methods.run(asked, tmp_path / "run")
    found = attacks.run(asked, "transcript", folder=folder.path, seed=0)
    assert found["trials"] >= transcript.PAIRS
    assert min(r["numbers"] for r in found["releases"].values()) >= transcript.NUMBERS
    assert found["schedule"]["steps"] == 8
    audited = files.read_json(folder.path / "statement.json")["audited"]
    assert audited["attack"] == "transcript"
    assert audited["summary"].endswith("trained on this run's own schedule")
