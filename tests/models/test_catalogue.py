"""Checkpoints that are here, their needs, which draft for which; and fetching one, from a hub on this machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from engine.tiny import write_model
from models.fake_hub import REVISION, FakeHub, serve
from safetensors.torch import save
from tokenizer_folders import hugging_face_folder

from tests import forked
from tests.gguf_files import write_gguf
from triforce_core.config import EngineConfig
from triforce_core.device.memory_plan import size
from triforce_core.device.shard import ALONE
from triforce_core.engine.loading import choose, fingerprint
from triforce_core.engine.tune import open_profile, subject
from triforce_core.errors import ConfigError, ModelNotFoundError
from triforce_core.events import CuratedModel, DraftPromise, Fit, ModelFound
from triforce_core.models import hub as hub_module
from triforce_core.models import survey
from triforce_core.models.command import _words
from triforce_core.models.hub import Offer
from triforce_core.models.survey import Survey

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A large model, a small one of the same family, one with another vocabulary, and three that cannot be used."""
    root = tmp_path_factory.mktemp("shelf")
    write_model(root / "family" / "large", layers=4, heads=4, seed=0)
    write_model(root / "family" / "small", layers=1, heads=1, seed=1)
    other = write_model(root / "stranger", layers=1, heads=1, seed=2)
    for name in ("tokenizer.model", "prompt.json"):
        (other / name).unlink()
    hugging_face_folder(other, "bytes")
    (write_model(root / "cut", layers=1, heads=1, seed=3) / "model.safetensors").write_bytes(b"\x10")
    mixture = write_model(root / "mixture", layers=1, heads=1, seed=4)
    (mixture / "config.json").write_text(json.dumps({"architectures": ["MixtralForCausalLM"]}))
    (root / "empty").mkdir()
    (root / "empty" / "config.json").write_text((root / "family" / "small" / "config.json").read_text())
    return root


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.utils._cache_manager.HF_HUB_CACHE", str(tmp_path / "none"))


def found(shelf: Path, **settings: object) -> dict[str, ModelFound]:
    folders = (str(shelf), str(shelf / "family"), str(shelf / "nowhere"))
    config = EngineConfig(model_folders=folders, mode="cpu", kv="same", **settings)
    models = [model for model in Survey(config).check() if isinstance(model, ModelFound)]
    assert len({model.model for model in models}) == len(models), "each once"
    return {model.name: model for model in models}


def test_what_is_here_and_what_it_needs(shelf: Path) -> None:
    models = found(shelf, max_context=2048)
    assert list(models) == ["builtin", "cut", "empty", "large", "small", "mixture", "stranger"]
    large = models["large"]
    assert large.info is not None and large.info.plan is not None and large.problem == ""
    assert large.info.plan.context == 2048 and large.longest == large.max_context == 4096
    assert large.info.plan.kv == 2048 * large.info.kv_bytes_per_token
    assert large.info.draft_name == "small" and large.info.plan.draft_weights > 0
    assert models["builtin"].info.plan.context == 2048 and models["builtin"].draft == "builtin"
    for name, words in (("cut", "model.safetensors is damaged or incomplete"), ("empty", "There is no tokenizer"),
                        ("mixture", "MixtralForCausalLM is not supported")):
        assert models[name].info is None and words in models[name].problem, name


def test_each_way_has_a_speed_and_one_is_best(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "memory_rate", lambda device: 1e9)
    large = found(shelf)["large"]
    assert {fit.context for fit in large.fits} == {4096} and large.fits[0].weights == "same"
    assert all(fit.tokens_per_second > 0 for fit in large.fits if fit.mode)
    assert large.best == large.fits[0] and not large.best.rounds
    words = "\n".join(_words(large))
    assert f"4,096: cpu, {size(large.fits[0].need)}, at most about" in words and "best here" not in words

    def unknown(device: torch.device) -> float:
        raise ConfigError("The GPU has no memory free to measure with")

    monkeypatch.setattr(survey, "memory_rate", unknown)
    listed = Survey(EngineConfig(model_folders=(str(shelf),), mode="cpu")).check()
    names = []
    with pytest.raises(ConfigError, match="no memory free"):
        for model in listed:
            names.append(model.name)
    assert "stranger" in names, "what is here is listed all the same"


def test_the_built_in_pair_is_never_recommended_in_four_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    rounded = Fit("int4", 131_072, "on-chip", 1, "int8", 95.0)
    monkeypatch.setattr(survey.Survey, "_fits", lambda self, found, rate: (Fit("same", 8192, "cpu", 1), rounded))
    own = next(iter(survey.Survey(EngineConfig(device="cpu")).check()))
    assert own.source == "built-in" and own.best is not None and own.best.weights == "same"
    assert [fit.weights for fit in own.fits] == ["same"]


def test_the_best_way_rounds_least_where_it_is_usable() -> None:
    slow = Fit("same", 131_072, "offload", 1, tokens_per_second=1.0)
    fast = Fit("same", 8192, "on-chip", 1, tokens_per_second=60.0)
    rounded = Fit("int4", 131_072, "on-chip", 1, "int8", 95.0)
    assert survey.best_of([fast, slow, Fit("int8", 131_072), rounded]) == rounded
    usable = replace(slow, tokens_per_second=20.0)
    assert survey.best_of([fast, usable, rounded]) == usable
    assert survey.best_of([slow, replace(rounded, tokens_per_second=2.0)]).weights == "int4"
    assert survey.best_of([Fit("same", 8192)]) is None
    assert rounded.flags == ("--weights", "int4", "--kv", "int8") and rounded.rounds
    assert not Fit("same", 8192, "cpu", 1, "int8").rounds, "a CPU's cache is rounded by itself"


def test_drafts_are_paired_with_reasons(shelf: Path) -> None:
    models = found(shelf)
    why = {choice.name: choice.why_not for choice in models["large"].drafts}
    assert why["small"] == "" and models["large"].draft == str(shelf / "family" / "small")
    assert "cut" not in why and "builtin" not in why, "that is a target"
    stranger = next(choice for choice in models["large"].drafts if choice.name == "stranger")
    assert stranger.foreign and not stranger.why_not and not stranger.recommended, "unless it was tried"
    assert "another vocabulary" in stranger.words and 0 < stranger.cost < 1
    back = {choice.name: choice.why_not for choice in models["small"].drafts}
    assert back["large"].startswith("not small enough")
    assert models["stranger"].draft == "none" and models["stranger"].info.draft_name == "none"


def test_what_was_tried_decides_which_draft_is_recommended(shelf: Path, tmp_path: Path) -> None:
    large, small, stranger = (str(shelf / name) for name in ("family/large", "family/small", "stranger"))
    for draft, gain in ((small, 0.8), (stranger, 1.3)):
        config = EngineConfig(large, draft, mode="cpu", kv="same", measurements=tmp_path)
        chosen = choose(config)
        whose = subject(chosen.device, chosen.info.dtype, chosen.fingerprint, fingerprint(chosen.draft_folder), ALONE)
        open_profile(tmp_path, whose).keep_promise(DraftPromise(0.5, 10.0, 4.0, gain))
    model = found(shelf, measurements=tmp_path)["large"]
    assert [choice.name for choice in model.drafts if choice.recommended] == ["stranger"] and model.draft == stranger
    assert model.info is not None and model.info.draft_name == "stranger"
    assert "1.30 times as fast" in "\n".join(_words(model))


def test_each_tokenizer_is_read_once(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 262,000 tokens takes seconds."""
    read: list[Path] = []
    own = survey.Tokenizer.__init__
    monkeypatch.setattr(survey.Tokenizer, "__init__", lambda self, folder, *rest: (read.append(Path(folder)),
                                                                                  own(self, folder, *rest))[1])
    assert found(shelf, max_context=2048)["large"].info is not None
    assert len(read) == len(set(read)) >= 4


def test_what_does_not_fit_says_what_would(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The room is made so that the large model fits with less context than was asked for."""
    from triforce_core.device.memory_plan import Room
    from triforce_core.engine import memory

    roomy = found(shelf, max_context=4096)["large"].info.plan
    free = roomy.need - roomy.reserve + 512 * 2**20 - roomy.kv // 2  # 512 MiB: the least that is kept free
    monkeypatch.setattr(memory, "read_room", lambda *_: Room(host_free=free))
    large = found(shelf, max_context=4096)["large"]
    assert large.info is None and 256 < large.longest < 4096
    assert "4,096 tokens of context need" in large.problem and f"{large.longest:,} tokens fit" in large.problem


def test_the_cache_is_searched(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = tmp_path / "hub" / "models--some--model"
    snapshot = repo / "snapshots" / REVISION
    shutil.copytree(shelf / "family" / "large", snapshot)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(REVISION)
    (repo / "blobs").mkdir()
    monkeypatch.setattr("huggingface_hub.utils._cache_manager.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    models = {model.name: model for model in survey.Survey(EngineConfig(mode="cpu")).check()
              if isinstance(model, ModelFound)}
    assert models["some/model"].model == "some/model" and models["some/model"].source == "cache"


def test_nothing_is_looked_up_unless_asked() -> None:
    with pytest.raises(ConfigError, match="--allow-download"):
        Offer(EngineConfig(model="some/model"))
    with pytest.raises(ConfigError, match="OWNER/NAME"):
        Offer(EngineConfig(model="just-a-name", allow_download=True))


def run(hub: FakeHub, home: Path, *arguments: str) -> tuple[int, list[dict], str]:
    """The command, as a person calls it: exit status, what it printed, the last line of what it complained of."""
    status, out, err = forked.run(
        ["models", "--json", *arguments],
        {"HF_ENDPOINT": hub.url, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
         "NO_PROXY": "127.0.0.1"}, home)
    return status, [json.loads(line) for line in out.splitlines()], (err.strip().splitlines() or [""])[-1]


@pytest.mark.slow
def test_offer_fetch_break_off_and_go_on(shelf: Path, tmp_path: Path) -> None:
    with serve(FakeHub("some/model", shelf / "family" / "large")) as hub:
        hub.files["README.md"], hub.files["pytorch_model.bin"] = b"read me", b"the same again"
        big = {"model.norm.weight": torch.zeros(6_000_000)}  # parts are written in blocks of 10 MiB
        hub.files["model.safetensors"] = save(big)
        total = sum(len(data) for name, data in hub.files.items() if name not in ("README.md", "pytorch_model.bin"))
        status, (offer,), _ = run(hub, tmp_path, "--offer", "some/model")
        assert status == 0 and offer["licence"] == "apache-2.0" and offer["nbytes"] == offer["missing"] == total
        assert "README.md" not in offer["names"] and hub.asked == []

        hub.break_after = 12_000_000
        status, _, complaint = run(hub, tmp_path, "--fetch", "some/model")
        assert status == 2 and "some/model: model.safetensors could not be fetched" in complaint
        assert "try again to go on from there" in complaint
        hub.break_after = None
        kept = next((tmp_path / "hub").rglob("*.part")).stat().st_size
        assert 10_000_000 <= kept <= 12_000_000
        hub.asked.clear()
        status, lines, complaint = run(hub, tmp_path, "--fetch", "some/model")
        assert status == 0, complaint
        assert ("model.safetensors", f"bytes={kept}-") in hub.asked, "it goes on, it does not begin anew"
        assert kept <= total - lines[0]["missing"] < total, "what has arrived of a file counts"
        assert lines[-1]["fraction"] == 1.0
        fractions = [line["fraction"] for line in lines[1:]]
        assert fractions == sorted(fractions)

        status, lines, _ = run(hub, tmp_path, str(shelf / "family"))
        fetched = next(line for line in lines if line["name"] == "some/model")
        assert fetched["model"] == "some/model" and fetched["info"] and fetched["draft"].endswith("small")
        snapshot = tmp_path / "hub" / "models--some--model" / "snapshots" / REVISION
        assert (snapshot / "model.safetensors").read_bytes() == hub.files["model.safetensors"]

        status, _, complaint = run(hub, tmp_path, "--fetch", "no/such")
        assert status == 2 and "no such repo" in complaint


@pytest.mark.parametrize("harm", ["other bytes", "fewer bytes"])
def test_a_file_that_arrives_otherwise_than_promised_is_refused(shelf: Path, tmp_path: Path, harm: str) -> None:
    with serve(FakeHub("some/model", shelf / "family" / "small")) as hub:
        if harm == "other bytes":
            honest = hub.etag
            hub.etag = lambda name: honest(name)[::-1]  # type: ignore[method-assign]
        else:
            hub.files["model.safetensors"] = hub.files["model.safetensors"][:-100]
            hub.cut["model.safetensors"] = 100
        status, _, complaint = run(hub, tmp_path, "--fetch", "some/model")
        assert status == 2 and ("arrived damaged" if harm == "other bytes" else "model.safetensors") in complaint
        assert not list((tmp_path / "hub").rglob("snapshots/*/model.safetensors"))


def test_the_draft_model_comes_along(shelf: Path, tmp_path: Path) -> None:
    """One errand, two repos: their sizes are said first, and progress counts both."""
    with serve(FakeHub("some/model", shelf / "family" / "small")) as hub:
        hub.also = FakeHub("some/draft", shelf / "family" / "small")
        status, lines, complaint = run(hub, tmp_path, "--fetch", "some/model", "--draft-model", "some/draft")
        assert status == 0, complaint
        offers, steps = lines[:2], lines[2:]
        assert [offer["repo"] for offer in offers] == ["some/model", "some/draft"]
        assert {offer["folder"] for offer in offers} == {str(tmp_path / "hub")}
        assert {step["kind"] for step in steps} == {"LoadProgress"} and steps[-1]["fraction"] == 1.0
        halfway = [step["fraction"] for step in steps if "Fetching" in step["stage"]]
        assert halfway == sorted(halfway)
        assert {path.parent.parent.parent.name for path in (tmp_path / "hub").rglob("model.safetensors")} == {
            "models--some--model", "models--some--draft"}


def test_a_full_disk_is_said_before_anything_is_fetched(shelf: Path, tmp_path: Path) -> None:
    with serve(FakeHub("some/model", shelf / "family" / "small")) as hub:
        hub.promised["model.safetensors"] = 10**15
        status, lines, complaint = run(hub, tmp_path, "--fetch", "some/model")
        assert status == 2 and "needs 1000000.0 GB more in" in complaint and "are free there" in complaint
        assert hub.asked == [] and lines[0]["disk_free"] < 10**15


def test_no_network_is_an_error_that_says_so(tmp_path: Path, shelf: Path) -> None:
    with serve(FakeHub("some/model", shelf / "family" / "small")) as hub:
        pass  # nobody listens there any more
    for ask in ("--offer", "--fetch"):
        status, _, complaint = run(hub, tmp_path, ask, "some/model")
        assert status == 2 and "the hub cannot be reached" in complaint and "internet connection" in complaint


@pytest.fixture(scope="module")
def gguf_repo(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """As such repos look: several ways to be quantised, one of them in parts in a folder, a projector, a text."""
    root = tmp_path_factory.mktemp("gguf-repo")
    source = write_model(root / "source", layers=1, heads=8, seed=1)
    for kind in ("Q4_K", "Q8_0"):
        write_gguf(source, root / f"tiny-{kind}_M.gguf".replace("Q8_0_M", "Q8_0"), kind)
    (root / "Q6_K").mkdir()
    write_gguf(source, root / "Q6_K" / "tiny-Q6_K.gguf", "Q6_K", split_max_tensors=3)
    files = {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*.gguf")}
    return files | {"mmproj-F16.gguf": b"GGUF", "tiny-IQ2_XXS.gguf": b"GGUF", "README.md": b"read me",
                    "config.json": b"{}", "cut-Q8_0-00001-of-00002.gguf": b"GGUF"}


def test_a_gguf_repo_is_listed_with_its_files(gguf_repo: dict[str, bytes]) -> None:
    models = hub_module.gguf_models(list(gguf_repo))
    split = next(name for name in models if name.startswith("Q6_K/"))
    assert list(models) == [split, "tiny-Q4_K_M.gguf", "tiny-Q8_0.gguf"]
    assert len(models[split]) > 2 and set(models[split]) <= set(gguf_repo), "all parts, in their folder"
    for what, name in (("", "tiny-Q4_K_M.gguf"), ("q8_0", "tiny-Q8_0.gguf"), ("Q6_K", split),
                       ("tiny-Q8_0.gguf", "tiny-Q8_0.gguf")):
        assert hub_module.chosen_gguf("some/model", models, what) == name, what
    for what in ("K_M", "Q4_K", "Q2_K"):
        with pytest.raises(ModelNotFoundError, match=r"tiny-Q8_0\.gguf"):
            hub_module.chosen_gguf("some/model", models, what)
    assert not hub_module.gguf_models(["../x-Q4_K_M.gguf"])


@pytest.mark.slow
def test_a_gguf_model_is_fetched_broken_off_and_gone_on_with(gguf_repo: dict[str, bytes], tmp_path: Path) -> None:
    """In parts, too; what has arrived is listed and planned for as it lies."""
    (tmp_path / "empty").mkdir()
    with serve(FakeHub("some/model", tmp_path / "empty")) as hub:
        hub.files = dict(gguf_repo)
        status, (offer,), complaint = run(hub, tmp_path, "--offer", "some/model")
        assert status == 0 and offer["file"] == "tiny-Q4_K_M.gguf" and len(offer["ggufs"]) == 3, complaint
        assert offer["nbytes"] == len(gguf_repo["tiny-Q4_K_M.gguf"]) and hub.asked == []
        hub.break_after = 20_000
        status, _, complaint = run(hub, tmp_path, "--fetch", "some/model:Q6_K")
        assert status == 2 and "try again to go on from there" in complaint
        hub.break_after = None
        status, lines, complaint = run(hub, tmp_path, "--fetch", "some/model:Q6_K")
        assert status == 0 and lines[-1]["fraction"] == 1.0, complaint
        fetched = {name for name, _ in hub.asked}
        assert fetched == {name for name in gguf_repo if name.startswith("Q6_K/")}, "and nothing else"
        assert run(hub, tmp_path, "--fetch", "some/model")[0] == 0
        _, lines, _ = run(hub, tmp_path)
        found = {line["name"]: line for line in lines if line["kind"] == "ModelFound"}
        assert {offer["file"], lines[0]["name"]} <= {name.removeprefix("some/model/") for name in found}
        split = next(line for name, line in found.items() if "/Q6_K/" in name)
        assert split["info"] and split["nbytes"] == sum(map(len, (gguf_repo[name] for name in fetched)))
        status, _, complaint = run(hub, tmp_path, "--fetch", "some/model:Q2_K")
        assert status == 2 and "has no GGUF file Q2_K" in complaint


def test_time_left_follows_the_rate_since_it_went_on(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(hub_module.time, "monotonic", lambda: now[0])
    clock = hub_module._Remaining()
    now[0] = 130.0  # the files before were here already
    assert clock.words(5_000, 10_000) == ""
    now[0] = 140.0
    assert clock.words(6_000, 10_000) == ", about 40 s left"
    assert clock.words(5_100, 10_000) == ", about 8 min left"


def test_the_list_names_published_models_too(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "triforce_core", "models", "--mode", "cpu"], cwd=ROOT, text=True,
                          timeout=120, capture_output=True, env=os.environ | {"HF_HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    words = done.stdout
    assert f"stores one in {tmp_path / 'hub'}" in words and "Speeds are modelled" in words
    assert re.search(r"Qwen3 8B \((Q\w+ [58]\.\d GB, )?bf16 16.4 GB, Apache-2.0\)", words)
    assert "Llama 3.1 Community License" in words
    assert words.index("builtin (") < words.index("Published models") < words.index("Qwen3 8B")


def test_the_survey_crosses_to_the_page(shelf: Path) -> None:
    """In a process of its own, through the engine's protocol."""
    from triforce_core import EngineClient

    config = replace(EngineConfig(mode="cpu"), model_folders=(str(shelf / "family"),))
    with EngineClient(config, factory="triforce_core.models.survey:Survey") as client:
        found = list(client.check())
        assert {"builtin", "large", "small"} <= {model.name for model in found if isinstance(model, ModelFound)}
        assert sum(isinstance(model, CuratedModel) for model in found) > 10


def test_gguf_files_of_other_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LM Studio's folder, Ollama's store (by manifest, without a suffix), llama.cpp's cache, the hub's cache and a
    named folder; a split model once, a projector for images not at all."""
    home, source = tmp_path / "home", write_model(tmp_path / "source", layers=1, heads=8, seed=1)
    monkeypatch.setattr(Path, "home", lambda: home)
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("LLAMA_CACHE", "OLLAMA_MODELS", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    studio, cache = home / ".lmstudio" / "models" / "owner" / "repo", home / ".cache" / "llama.cpp"
    hub = tmp_path / "none" / "models--owner--repo" / "snapshots" / "a"
    named = tmp_path / "named"
    for folder in (studio, cache, hub, named):
        folder.mkdir(parents=True)
    write_gguf(source, studio / "studio.gguf", "Q8_0")
    write_gguf(source, studio / "mmproj-studio.gguf", "F16")
    write_gguf(source, cache / "split.gguf", "Q4_0", split_max_tensors=4)
    write_gguf(source, hub / "hub.gguf", "Q4_K")
    write_gguf(source, named / "named.gguf", "Q8_0")
    (named / "cut.gguf").write_bytes((named / "named.gguf").read_bytes()[:2000])
    store, digest = home / ".ollama" / "models", "a" * 64
    (store / "blobs").mkdir(parents=True)
    write_gguf(source, store / "blobs" / f"sha256-{digest}", "Q6_K")
    manifests = store / "manifests" / "registry.ollama.ai" / "library"
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}"}
    for name, text in (("small", json.dumps({"layers": [layer]})), ("broken", "{"), ("list", "[]"),
                       ("outside", json.dumps({"layers": [{**layer, "digest": "sha256:../../../etc"}]})),
                       ("gone", json.dumps({"layers": [{**layer, "digest": f"sha256:{'b' * 64}"}]}))):
        (manifests / name).mkdir(parents=True)
        (manifests / name / "3b").write_text(text)
    config = EngineConfig(model_folders=(str(named),), mode="cpu", max_context=1024)
    models = [model for model in Survey(config).check() if isinstance(model, ModelFound)]
    parts = len(list(cache.glob("*.gguf")))
    first = f"split-00001-of-{parts:05}.gguf"
    assert parts > 2 and [(model.name, model.source) for model in models] == [
        ("builtin", "built-in"), ("owner/repo/hub.gguf", "cache"), ("studio.gguf", "LM Studio"),
        ("small:3b", "Ollama"), (first, "llama.cpp"), ("cut.gguf", "folder"), ("named.gguf", "folder")]
    by_name = {model.name: model for model in models}
    titles = [next(_words(model)) for model in models]
    assert titles[-1].startswith("named.gguf (file, ") and titles[3].startswith("small:3b (Ollama, ")
    assert "damaged or incomplete" in by_name["cut.gguf"].problem
    assert by_name[first].nbytes == sum(path.stat().st_size for path in cache.glob("*.gguf"))
    ollama = by_name["small:3b"]
    assert ollama.model == str(store / "blobs" / f"sha256-{digest}")
    assert ollama.info is not None and ollama.info.weights.startswith(("Q6_K, kept in few bits", "Q6_K, unpacked to "))


def test_weights_larger_than_memory_are_refused_before_they_are_read(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the shapes in a GGUF file's header; rounding makes them smaller where the device keeps them so."""
    from triforce_core.device.memory_plan import Weights
    from triforce_core.model import load_model, parse_config

    path = write_gguf(write_model(tmp_path / "source", layers=1, heads=8, seed=1), tmp_path / "model.gguf", "Q4_0")
    monkeypatch.setattr("triforce_core.model.load_model", lambda *given, **also: pytest.fail("weights were read"))
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Free", (), {"available": 2**20, "total": 2**20})())
    (found,) = [model for model in Survey(EngineConfig(model_folders=(str(tmp_path),), mode="cpu")).check()
                if model.name == "model.gguf"]
    assert path.is_file() and found.info is None and "free" in found.problem and load_model is not None
    shape = parse_config({"architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "hidden_size": 4096,
                          "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
                          "num_key_value_heads": 8})
    sizes = [Weights(shape, 2).nbytes, Weights(shape, 2, few_bits=1.0, few_bits_head=1.0).nbytes,
             Weights(shape, 2, few_bits=0.53, few_bits_head=1.0).nbytes]
    assert [round(size / 1e9, 1) for size in sizes] == [16.1, 8.6, 5.3]
