"""What memory, link and matrix units allow, and how near a run came."""

from __future__ import annotations

import pytest
from bench.steady_engine import MACHINE, SHAPE, TRAFFIC, Steady, measure

from triforce_core.bench.roofline import Bandwidth, Traffic, measure_bandwidth
from triforce_core.bench.table import table
from triforce_core.kernels import HEAD_KIND, bytes_per_weight


def test_a_cache_that_streams_is_measured_by_its_link() -> None:
    """2 GB a pass over 25 GB/s take 0.08 s, and a plain pass takes 0.1 s; the GPU's own memory could go faster."""
    found = measure(Steady(streams=2 * 10**9), [None], bandwidth=Bandwidth(4000, 25.0, 1.0, "a copy"))
    assert found["autoregressive_streamed_gb_per_second"] == pytest.approx(20)
    assert found["triforce_streamed_gb_per_second"] == pytest.approx(10)
    assert found["roofline_tokens_per_second"] == pytest.approx(12.5)
    assert found["autoregressive_share_of_roofline"] == pytest.approx(0.8)
    assert "20.0 GB/s by plain" in table(found)
    assert measure(Steady(), [None])["triforce_streamed_gb_per_second"] == 0


def test_the_roofline_is_bytes_over_measured_bandwidth() -> None:
    found = measure(Steady(), [None])
    tokens = found["context_tokens"] + 16  # half of the answer
    assert found["bytes_per_token"] == 1952 * 4 + tokens * 1000
    assert found["roofline_tokens_per_second"] == pytest.approx(0.15e9 / found["bytes_per_token"])
    assert found["autoregressive_share_of_roofline"] == pytest.approx(10 / found["roofline_tokens_per_second"])
    assert found["inner_step_ms"] == pytest.approx((3 + 1) / 2)  # two passes a round
    assert found["inner_step_over_roofline"] == pytest.approx(2 / ((1952 * 4 + 2000 * 1000) / 0.15e9 * 1e3))
    assert found["copy_gb_per_second"] == 0.15 and found["host_to_device_gb_per_second"] is None
    assert set(found["modelled"]) >= {"bytes_per_token", "roofline_tokens_per_second"} and "modelled" in table(found)
    assert set(found["modelled"]) <= set(found)


def test_on_a_gpu_the_link_and_the_share_of_its_matrix_rate_are_told() -> None:
    found = measure(Steady(), [None], bandwidth=Bandwidth(4000.0, 55.0, 800.0, "a copy"))
    assert found["host_to_device_gb_per_second"] == 55 and found["matrix_teraflops"] == 800
    seconds = found["context_tokens"] / 500
    assert found["prefill_teraflops"] == pytest.approx(TRAFFIC.prefill_flops(found["context_tokens"]) / seconds / 1e12)
    assert found["prefill_share_of_matrix_rate"] == pytest.approx(found["prefill_teraflops"] / 800)
    assert "55.0 GB/s from pinned host memory" in table(found) and "of the large product's rate" in table(found)


def test_several_gpus_each_bring_their_bandwidth() -> None:
    assert Traffic(SHAPE, 4, 1000, gpus=2).seconds(3e8, MACHINE) == TRAFFIC.seconds(3e8, MACHINE) / 2 == 1.0


def test_a_copy_of_the_weights_in_few_bits_has_a_lower_roofline() -> None:
    dials = {"middle_cache": "retrieval", "budget": 0, "retrieval_weights": "int4"}
    head = 100 * 8
    assert TRAFFIC.inner_bytes(dials) == (1952 - head) * bytes_per_weight("int4") + head * bytes_per_weight(HEAD_KIND)
    assert TRAFFIC.inner_bytes({**dials, "middle_cache": "h2o"}) == TRAFFIC.inner_bytes(dials)
    assert TRAFFIC.inner_bytes({**dials, "retrieval_weights": "same"}) == 1952 * 4
    assert TRAFFIC.inner_bytes({**dials, "middle_cache": "top-k"}) is None  # reads all keys: no budget of KV


def test_prefill_counts_products_and_causal_attention() -> None:
    # Two layers of 8 x (8 + 4 + 4 + 8) + 3 x 8 x 16 weights, of the last one only q, k, v; attention in the first.
    assert TRAFFIC.prefill_flops(10) == 2 * 10 * (576 + 8 * 16) + 2 * 10 * 10 * 2 * 4


def test_bandwidth_is_measured_and_says_how() -> None:
    found = measure_bandwidth("cpu", mebibytes=8)
    assert found.copy > 0.05 and "threads" in found.how and found.host_to_device is None
