"""The published settings, against values typed from the sources and against a peer accountant."""

from __future__ import annotations

import math

import dp_accounting
import pytest
from dp_accounting import rdp

from simplexdp import Plan, mechanism, models
from simplexdp.data.augment import AUGMENTATIONS
from simplexdp.paper import recipes
from simplexdp.settings import Settings


@pytest.mark.parametrize(
    ("name", "model", "records", "batch", "steps", "epochs", "lr"),
    [
        ("cifar10", "resnet18", 50_000, 250, 20_000, 100, 0.1),
        ("mnist", "inception", 60_000, 250, 9_600, 40, 0.1),
        ("fashion-mnist", "inception", 60_000, 250, 9_600, 40, 0.1),
        ("dermamnist", "resnet9", 7_007, 70, 6_006, 60, 0.05),
        ("svhn", "resnet18", 73_257, 250, 11_722, 40, 0.1),
    ],
)
def test_the_papers_settings(
    name: str, model: str, records: int, batch: int, steps: int, epochs: int, lr: float
) -> None:
    found = recipes.recipe(name)
    assert (found.model, found.records, found.batch_size) == (model, records, batch)
    assert (found.steps, found.epochs, found.lr) == (steps, epochs, lr)
    assert (found.alpha, found.delta, found.norm) == (3.0, 1e-5, "batch")
    assert found.augment == (("random_crop", "horizontal_flip") if name == "cifar10" else ())
    assert found.sample_rate * steps == pytest.approx(epochs, rel=1e-3)


@pytest.mark.parametrize("name", recipes.names())
def test_every_recipe_is_a_run_that_can_be_built(name: str) -> None:
    found = recipes.recipe(name)
    assert found.model in models.names()
    assert set(found.augment) <= set(AUGMENTATIONS)
    assert found.epsilons
    assert found.source
    fields = {*vars(found), *found.options}
    assert set(found.unchecked) <= fields
    if found.epochs is not None and found.steps is not None:
        assert found.steps * found.sample_rate == pytest.approx(found.epochs, rel=2e-3)
    settings = recipes.settings(name)
    assert isinstance(settings, Settings)
    assert (settings.data, settings.model, settings.lr) == (found.data, found.model, found.lr)
    shape = (3, 32, 32) if found.data in ("cifar10", "svhn") else (1, 28, 28)
    models.build(found.model, shape, 10, found.norm)
    if found.method == "dpsgd":
        assert found.norm != "batch"


@pytest.mark.parametrize(
    "name",
    [name for name in recipes.names() if "noise_multiplier" in recipes.recipe(name).options],
)
def test_the_published_noise_and_steps_meet_the_published_budget(name: str) -> None:
    """Re-accounted by dp-accounting's Rényi accountant, Poisson batches, add or remove one.

    Published budgets of 3 used an older conversion and cost about 2.6 today, so the check is that
    a recipe is neither above its budget (1 % for rounding) nor far below it.
    """
    found = recipes.recipe(name)
    if found.steps is None:
        pytest.skip("the source's number of steps is not at hand")
    accountant = rdp.RdpAccountant()
    event = dp_accounting.PoissonSampledDpEvent(
        found.sample_rate, dp_accounting.GaussianDpEvent(found.options["noise_multiplier"])
    )
    accountant.compose(event, found.steps)
    epsilon = accountant.get_epsilon(found.delta)
    assert 0.8 * found.epsilons[0] < epsilon < 1.01 * found.epsilons[0]


def test_given_settings_are_put_over_the_recipe() -> None:
    settings = recipes.settings("fashion-mnist", epsilon=2.0, lr=None, seed=3)
    assert (settings.epsilon, settings.lr, settings.seed) == (2.0, None, 3)
    assert (settings.steps, settings.batch_size, settings.norm) == (9_600, 250, "batch")


def test_given_epochs_replace_the_steps() -> None:
    settings = recipes.settings("fashion-mnist", epochs=3)
    assert (settings.steps, settings.epochs) == (None, 3)


def test_given_options_are_merged() -> None:
    settings = recipes.settings("dpsgd-fashion-mnist", options={"x": 1})
    assert settings.options == {"clip": 1.0, "x": 1}
    assert recipes.recipe("dpsgd-fashion-mnist").options == {"clip": 1.0}


def test_the_default_budget_is_the_only_one_or_one() -> None:
    assert recipes.settings("fashion-mnist").epsilon == 1.0
    assert recipes.settings("de2022-wrn-40-4-eps8").epsilon == 8.0


def test_an_unknown_recipe_names_the_closest() -> None:
    with pytest.raises(ValueError, match=r"'fashionmnist' \(closest: fashion-mnist\)") as error:
        recipes.recipe("fashionmnist")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("data", "method", "model", "epsilon", "wanted"),
    [
        # Tables 1 to 5 of the paper, typed from it.
        ("cifar10", "dirichlet", "resnet18", 1.0, (82.96, 1.46)),
        ("cifar10", "dirichlet", "resnet18", 8.0, (88.61, 0.34)),
        ("cifar10", "dirichlet", "resnet18", None, (92.35, None)),
        ("cifar10", "dpsgd", "wrn-40-4", 1.0, (56.4, None)),
        ("cifar10", "gaussian-features", "resnet18", 4.46, (79.0, None)),
        ("mnist", "dirichlet", "inception", 0.5, (99.28, 0.072)),
        ("mnist", "dpsgd", "dpnas", 3.0, (98.57, None)),
        ("mnist", "dpsgd", "tanh-cnn", 2.93, (98.1, None)),
        ("fashion-mnist", "dirichlet", "inception", 1.0, (86.35, 3.79)),
        ("fashion-mnist", "dpsgd", "inception", 1.0, (80.60, 0.71)),
        ("dermamnist", "dirichlet", "resnet9", 7.42, (76.31, 1.15)),
        ("svhn", "dirichlet", "resnet18", 3.0, (92.39, 0.34)),
        ("svhn", "dpsgd", "resnet18", 8.0, (86.75, 0.34)),
        ("svhn", "dirichlet", "resnet18", 5.0, None),
    ],
)
def test_published_accuracies(
    data: str,
    method: str,
    model: str,
    epsilon: float | None,
    wanted: tuple[float, float | None] | None,
) -> None:
    assert recipes.published_accuracy(data, method, model, epsilon) == wanted


def test_the_validation_split_is_kept_apart() -> None:
    held_out = {
        row["epsilon"]: (row["mean"], row["std"])
        for row in recipes.published()["accuracy"]
        if (row["data"], row["method"], row["split"]) == ("dermamnist", "dirichlet", "validation")
    }
    assert (held_out[1.0], held_out[7.42]) == ((74.98, 2.04), (76.49, 1.45))
    found = recipes.published_accuracy("dermamnist", "dirichlet", "resnet9", 1.0)
    assert found == (74.32, 1.84)


def test_the_tables_are_whole() -> None:
    content = recipes.published()
    # 23 values of r* by data set and six by alpha, one of them at the common alpha of 3.
    assert len(content["r_star"]) == 23 + 6
    keys = [
        (row["data"], row["split"], row["method"], row["model"], row["recipe"], row["epsilon"])
        for row in content["accuracy"]
    ]
    assert len(keys) == len(set(keys))
    assert all(0 < row["mean"] < 100 for row in content["accuracy"])
    assert all(row["recipe"] in (None, *recipes.names()) for row in content["accuracy"])
    curves = content["learning_rate_figure"]["curves"]
    assert [curve["alpha"] for curve in curves] == [0.1, 0.2, 0.3, 0.5, 1, 2, 3, 5, 10]
    assert all(11 <= len(curve["points"]) <= 13 for curve in curves)
    assert [point["mean"] for point in content["sampling_rate_study"]["points"]] == [
        89.41,
        82.94,
        71.18,
        56.49,
    ]


@pytest.mark.parametrize("name", ["cifar10", "cifar10-adam", "mnist", "fashion-mnist", "svhn"])
def test_a_norm_that_the_paper_does_not_state_is_marked(name: str) -> None:
    """It says batch normalisation of DermaMNIST's ResNet-9 alone."""
    assert "norm" in recipes.recipe(name).unchecked
    assert "norm" not in recipes.recipe("dermamnist").unchecked


def test_learning_rate_undoes_the_attenuation():
    """γ·κ is the geometric middle of where the nine curves of the paper's figure are best."""
    curves = recipes.published()["learning_rate_figure"]["curves"]
    best = [max((p["accuracy"], p["lr"]) for p in c["points"])[1] * c["kappa"] for c in curves]
    assert len(best) == 9
    middle = math.sqrt(min(best) * max(best))
    for alpha in (0.3, 3.0, 10.0):
        plan = Plan(
            epsilon=1.0, delta=1e-5, records=50_000, batch_size=250, steps=20_000, alpha=alpha
        )
        kappa = float(mechanism.attenuation(0.9, plan.r, alpha))
        assert plan.learning_rate() * kappa == pytest.approx(middle, rel=0.02)
        assert plan.learning_rate("momentum") == pytest.approx(0.1 * plan.learning_rate())
        assert plan.learning_rate("adam") == 0.001
