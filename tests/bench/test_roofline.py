"""What memory, link and matrix units allow, and how near a run came."""

from __future__ import annotations

import pytest
from bench.steady_engine import MACHINE, SHAPE, TRAFFIC, Steady, measure

from triforce_core.bench.roofline import Bandwidth, Traffic, measure_bandwidth
from triforce_core.bench.table import table


def test_a_cache_that_streams_is_measured_by_its_link() -> None:
    """2 GB a pass over 25 GB/s take 0.08 s, and a plain pass takes 0.1 s; the GPU's own memory could go faster."""
    found = measure(Steady(streams=2 * 10**9), [None], bandwidth=Bandwidth(4000, 25.0, "a copy"))
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
    assert found["copy_gb_per_second"] == 0.15 and found["host_to_device_gb_per_second"] is None
    assert set(found["modelled"]) >= {"bytes_per_token", "roofline_tokens_per_second"} and "modelled" in table(found)
    assert set(found["modelled"]) <= set(found)


def test_on_a_gpu_the_link_is_told() -> None:
    found = measure(Steady(), [None], bandwidth=Bandwidth(4000.0, 55.0, "a copy"))
    assert found["host_to_device_gb_per_second"] == 55 and "55.0 GB/s from pinned host memory" in table(found)


def test_several_gpus_each_bring_their_bandwidth() -> None:
    alone = TRAFFIC.least_seconds(1000, MACHINE)
    assert Traffic(SHAPE, 4, 1000, gpus=2).least_seconds(1000, MACHINE) == alone / 2


def test_bandwidth_is_measured_and_says_how() -> None:
    found = measure_bandwidth("cpu", mebibytes=8)
    assert found.copy > 0.05 and "threads" in found.how and found.host_to_device is None
