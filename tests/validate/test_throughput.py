"""Throughput models on the bundled public series, with their values."""

from __future__ import annotations

import numpy as np
import pytest

from occupancy_probe.study.series import Series, bundled
from occupancy_probe.validate.throughput import (
    active_experts,
    describe,
    fit,
    held_out_errors,
    outlier,
    predict,
)

RTX = "sm120_rtxpro6000_tp2_nomtp_20260517"
B200 = "b200_tp4_nomtp_20260502"


@pytest.fixture(scope="module")
def models():
    return {name: describe(series) for name, series in bundled().items()}


def fits(model):
    return {f.name: f for f in model.fits}


def test_active_experts_saturate():
    assert active_experts(1) == pytest.approx(6)
    assert active_experts(64) == pytest.approx(199.9, abs=0.05)
    assert active_experts(10_000) == pytest.approx(256)


def test_the_line_fits_the_public_series_within_12_5_percent_and_the_experts_form_halves_it(models):
    line, experts = fits(models[RTX])["line"], fits(models[RTX])["experts"]
    assert line.overhead_ms.value == pytest.approx(10.17, abs=0.01)
    assert line.slope_ms.value == pytest.approx(0.9886, abs=1e-4)
    assert line.largest_error == pytest.approx(0.125, abs=5e-4)
    assert experts.overhead_ms.value == pytest.approx(9.243, abs=0.001)
    assert experts.slope_ms.value == pytest.approx(0.2162, abs=1e-4)
    assert experts.largest_error == pytest.approx(0.0625, abs=5e-4)


def test_the_model_is_chosen_by_its_held_out_error(models):
    line, experts = fits(models[RTX])["line"], fits(models[RTX])["experts"]
    assert line.held_out_error == pytest.approx(0.104, abs=1e-3)
    assert experts.held_out_error == pytest.approx(0.0495, abs=5e-4)
    assert {m.chosen for m in models.values()} == {"experts"}


@pytest.mark.parametrize(
    ("concurrency", "step_ms", "predicts", "fits_closer"),
    [
        ((1, 4, 8, 128), (10, 11, 12, 31), "experts", "line"),
        ((2, 32, 64, 96, 128), (10, 18, 24, 32, 30), "line", "experts"),
    ],
)
def test_the_model_that_predicts_held_out_points_is_chosen_not_the_one_that_fits_closer(
    concurrency, step_ms, predicts, fits_closer
):
    """A far point pulls a fit to itself, by any measure of its own errors; predicted, it tells."""
    c, t = np.array(concurrency, float), np.array(step_ms, float)
    model = describe(Series("s", "made up", concurrency, step_ms), flag=False)
    of = fits(model)
    for norm in (np.inf, 2):
        own = {name: np.linalg.norm(fit(name, c, t).at(c) / t - 1, norm) for name in of}
        assert min(own, key=own.get) == fits_closer
    assert of[fits_closer].largest_error < 0.7 * of[predicts].largest_error
    assert of[predicts].held_out_error < 0.8 * of[fits_closer].held_out_error
    assert model.chosen == predicts


def test_saturation_and_half_way_concurrency_of_the_line(models):
    line = fits(models[RTX])["line"]
    assert line.saturation_tokens_per_s.value == pytest.approx(1011, abs=1)
    assert line.half_way_concurrency.value == pytest.approx(10.3, abs=0.05)
    assert fits(models[RTX])["experts"].saturation_tokens_per_s is None


def test_M3_the_point_where_requests_queue_is_flagged_and_not_fitted(models):
    (flagged,) = models[B200].flagged
    assert flagged.concurrency == 24 and flagged.step_ms == 23.24
    assert flagged.expected_ms == pytest.approx(14.5, abs=0.1)
    assert "queueing" in flagged.reason
    assert "output fell from 1138.36 to 792.1 tokens/s" in flagged.reason
    line = fits(models[B200])["line"]
    assert line.overhead_ms.value == pytest.approx(7.056, abs=1e-3)
    assert line.slope_ms.value == pytest.approx(0.3394, abs=1e-4)
    assert len(models[B200].points) == 6  # shown, all the same


def test_nothing_is_flagged_in_a_series_whose_points_are_medians_of_replicates():
    series = bundled()[B200]
    assert not describe(series, flag=False).flagged
    assert fits(describe(series, flag=False))["line"].largest_error > 0.25


def test_no_other_public_point_is_flagged(models):
    assert all(not m.flagged for name, m in models.items() if name != B200)


def test_a_point_that_one_model_explains_is_no_outlier():
    c = np.array([1, 2, 4, 8, 16, 32, 64, 96], float)
    saturating = 5 + 0.1 * active_experts(c)  # far off any line at both ends
    assert outlier(c, saturating) is None
    off = saturating.copy()
    off[4] *= 1.6
    assert outlier(c, off) == 4


def test_four_points_are_too_few_to_flag_one():
    assert outlier(np.array([1.0, 2, 4, 8]), np.array([1.0, 2, 400, 8])) is None


def test_coefficients_are_never_negative():
    of = fit("line", np.array([1.0, 2, 3]), np.array([3.0, 2, 1]))
    assert of.slope == 0 and of.overhead == pytest.approx(2)


def test_an_exact_line_is_found_with_no_error_and_no_width():
    c = (1.0, 8.0, 16.0, 48.0, 96.0)
    model = describe(Series("s", "made up", c, tuple(4 + 0.25 * x for x in c)))
    line = fits(model)["line"]
    assert model.chosen == "line" and line.held_out_error == pytest.approx(0, abs=1e-9)
    assert line.overhead_ms.low == pytest.approx(4) == line.overhead_ms.high
    assert line.half_way_concurrency.value == pytest.approx(16)
    assert predict(model, 32) == pytest.approx(12)


def test_intervals_cover_the_truth_of_noisy_series():
    """200 series of known coefficients: 95 % intervals from a dozen points hold them mostly."""
    c = np.array([1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 80, 96], float)
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(40):
        t = 6 + 0.2 * c + rng.normal(0, 0.5, len(c))
        model = describe(Series("s", "simulated", tuple(c), tuple(t)))
        of = fits(model)["line"].slope_ms
        held += of.low <= 0.2 <= of.high
    assert held >= 34  # 38 expected; the bootstrap of residuals runs a little narrow


def test_held_out_errors_are_predictions_from_the_other_points():
    c, t = np.array([1.0, 2, 3]), np.array([1.0, 2, 6])
    errors = held_out_errors("line", c, t)
    assert errors[2] == pytest.approx(3 / 6 - 1)


def test_the_same_series_gives_the_same_numbers(models):
    assert describe(bundled()[RTX]) == models[RTX]
