"""Models: what is here and can be loaded, what can be fetched, and what of each would fit on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from triforce_core import (
    PORTS,
    ClassFit,
    CuratedModel,
    DraftChoice,
    EngineConfig,
    Fit,
    LoadProgress,
    ModelFound,
    ModelInfo,
    ModelOffer,
    ServedModel,
)

from ..app.models import DOING, FETCH, LOOK, OFFER, TRY, Models, drafter_and_bytes, repos
from ..app.services import Services
from ..app.tab_view import TabView
from . import formatting as fmt
from .html import CANCEL, button, card, esc, meter, progress
from .panel import PRIVATE, Actions, Outputs, Panel, block

TAB = "Models"
TITLE = "Models on this machine"
HELP = ("Found in the Hugging Face cache, where LM Studio, Ollama and llama.cpp keep models, and in a folder of yours. "
        "Nothing is loaded or downloaded until you press a button that says so. Memory means what is free now, beside "
        "the loaded model.")
FOLDER = "Look in this folder too"
FOLDER_HELP = "A folder with GGUF files, or with checkpoints, each in a folder with its config.json. May be left empty."
REPO = "Download a model from the Hugging Face hub"
REPO_HELP = ("OWNER/NAME, or OWNER/NAME:Q4_K_M for one of its GGUF files. Looking it up contacts the hub and shows "
             "size and licence; nothing is downloaded yet.")
FILES = "Other GGUF files of this repository ({count})"
ASK = "Look it up"
LOOK_HERE, LOOKING = "Look for models", "Looking…"
LISTED = "Models to download"
LISTED_HELP = ("Published models that this app runs, as of {date}. Whether one fits is calculated from its shape and "
               "the memory that is free now. Speeds are modelled, not measured: the most that the memory allows plain "
               "decoding. The list comes with the app: nobody was asked for it, and nothing was downloaded.")
RECOMMENDED = "Recommended for this machine"
NONE_RECOMMENDED = ("None of them would run well on this machine: they need more memory, or would write fewer than "
                    "four tokens a second or read fewer than fifty.")
FITTING, NOT_FITTING = "Others that fit here ({count})", "Those that do not fit here ({count})"
BY_MACHINE = "What fits on which machine"
BY_MACHINE_HELP = ("Tokens of context that fit, by calculation (K: thousands); a dash where the model does not run. "
                   "Weights are in bf16, or rounded to int4 by this app where that is said. Beside a card, the context "
                   "may lie in host memory (48 GB or more).")
_FITS = ("here with {tokens} tokens of context: {need} of {have} free. Writes at most about {rate} tokens/s with {at} "
         "tokens of context, and reads {book} tokens in {wait} at least, modelled.")
FITS, FITS_ROUNDED = f"Fits {_FITS}", f"Rounded to {{weights}} when it is loaded, it fits {_FITS}"
FITS_AS = f"In {{weights}}, a GGUF file, it fits {_FITS}"
GET, GET_AS = "Download…", "Download in {kind}…"
GET_TERMS = ("Its owners want their terms accepted first: do so on the hub's page of the model, with an account, then "
             "run “hf auth login” in a terminal.")
BUILTIN = {"builtin": "The built-in pair", "built-in draft": "the built-in draft"}
BUILTIN_DRAFTS = BUILTIN | {"builtin": "the built-in pair"}
ABOUT_BUILTIN = ("It finds the sentences that answer a question and quotes them, in English. It cannot count, "
                 "compare or say anything in its own words.")
SOURCE = {"built-in": "comes with the app", "cache": "in the Hugging Face cache", "folder": "in a folder",
          "LM Studio": "in LM Studio's folder", "Ollama": "in Ollama's store", "llama.cpp": "in llama.cpp's cache"}
FITS_HELP = ("Speeds are modelled, not measured: the most that the bandwidth of this memory, measured just now, "
             "allows plain decoding at that length.")
WEIGHTS = {"same": "Weights as they are", "int8": "Weights rounded to int8", "int4": "Weights rounded to int4"}
LOAD_BEST = "Load as recommended here: {how}"
BEST = {"int8": "weights in int8", "int4": "weights in int4"}
LOADED = "Load again"
LOAD_WITH = "Load with {draft} as draft model"
DRAFTS = "What other models promise as draft model"
DRAFTS_HELP = ("A draft model guesses ahead, and the model checks its guesses: answers stay the model's own, word for "
               "word at temperature 0. Trying loads both for some seconds, beside the loaded model, and counts what it "
               "guesses right in 200 tokens of a fixed English text. What does not pay is left out while answering, "
               "even if it is loaded.")
TRY_DRAFT, TRY_AGAIN = "Try it here", "Try it again"
NOW = "loaded"
LOADING = "loading"
STOPPED = "not loaded"

WAITS = "loads once the answer is written, or stopped"
MARKS = {"ready": NOW, "failed": STOPPED, "waiting": WAITS}
SERVED = "On a server of this machine"
SERVED_HELP = ("These stay on this machine: documents and questions go to the server, and the answers come with "
               "passages, checks and pages as always. The strip and the race need a model of the list below.")
NONE_SERVED = "None answers: looked for {ports}, on this machine only. Start one, and open Models again."
SERVER, USE, USED = "A server", "Use this one", "Use it again"
LENGTHEN = {  # program -> how a model gets a longer context there
    "Ollama": "Ollama loads models with a few thousand tokens of context where the card is small. For long documents "
              "start it with OLLAMA_CONTEXT_LENGTH=32768, or as many as memory allows.",
    "LM Studio": "LM Studio loads models with a few thousand tokens of context. For long documents set the context "
                 "length when you load it there.",
}

_BOOK = 30_000  # tokens of a document whose reading time is shown: some eighty pages


def name(found: ModelFound | DraftChoice) -> str:
    """Return a model's name, that of a built-in one in words."""
    words = BUILTIN if isinstance(found, ModelFound) else BUILTIN_DRAFTS
    return words.get(found.name, found.name)


def weights(count: int) -> str:
    return f"{count / 1e9:.1f} billion weights" if count >= 1e9 else f"{count / 1e6:.1f} million weights"


def up_to(tokens: int) -> str:
    return f"up to {fmt.count(tokens)} tokens"


def room(found: ModelFound) -> str:
    """Return what a model takes of what is free, as a bar and in words; or why it does not run, and what would."""
    plan = found.info.plan if found.info else None
    if plan is None:
        more = f" {fmt.count(found.longest)} tokens of context would fit." if found.longest else ""
        return f'<p class="tf-bad">{esc(found.problem + more)}</p>'
    drafts = plan.draft_weights + plan.draft_cache + plan.retrieval + plan.weight_copy
    words = (f"With {fmt.count(plan.context)} tokens: weights {fmt.memory(plan.weights)}, keys and values "
             f"{fmt.memory(plan.kv)}, drafts {fmt.memory(drafts)}; {fmt.memory(plan.need)} in all, of "
             f"{fmt.memory(plan.have)} free ({plan.mode}).")
    return f"<p>{esc(words)}</p>{meter(plan.need / max(plan.have, 1), 'tf-meter-thin', words)}"


def fits(found: ModelFound, weights: str) -> str:
    """Return what each context needs with such weights, and how fast it would be."""
    return f"{WEIGHTS[weights]}: {'; '.join(fit(one) for one in found.fits if one.weights == weights)}"


def fit(one: Fit) -> str:
    if not one.mode:
        return f"{fmt.count(one.context)} tokens do not fit"
    words = f"{fmt.count(one.context)} tokens {fmt.memory(one.need)} ({one.way})"
    return f"{words}, about {fmt.rate(one.tokens_per_second)} tokens/s" if one.tokens_per_second else words


def best_button(found: ModelFound) -> str:
    """Return the button that loads a model rounded, where that is the best way here."""
    best = found.best
    if best is None or not best.rounds:
        return ""
    how = [BEST[best.weights]] if best.weights != "same" else []
    if best.kv != "same":
        how.append(f"keys and values in {best.kv}")
    how += [f"{name(choice)} as draft model" for choice in found.drafts if choice.model == found.draft]
    return button(LOAD_BEST.format(how=", ".join(how)), "use-model", css="tf-primary", model=found.model,
                  draft=found.draft, weights=best.weights, kv=best.kv_setting)


def load_buttons(found: ModelFound, loaded: bool) -> str:
    """Return a button for the recommended way, which may run where the model as it is does not, and for each draft."""
    if found.info is None:
        return best_button(found)
    again = LOADED if loaded else "Load"
    if found.source == "built-in":
        ways = [(again, "auto")]
    else:
        fitting = [choice for choice in found.drafts if choice.recommended]
        ways = [(LOAD_WITH.format(draft=name(choice)), choice.model) for choice in fitting]
        ways.append(("Load without a draft model" if fitting else again, "none"))
    return best_button(found) + "".join(
        button(label, "use-model", model=found.model, draft=draft) for label, draft in ways)


def drafts(found: ModelFound, tried: str = "", how: str = "") -> str:
    """Return what other models promise as its draft model, and why some shall not be. tried: the one that was tried
    last; how: how that goes."""
    rows = "".join(f"<li><b>{esc(name(choice))}</b>: {esc(choice.words)}."
                   f"{(how if choice.model == tried else '') or draft_buttons(found, choice)}</li>"
                   for choice in sorted(found.drafts, key=lambda choice: bool(choice.why_not)))
    opened = " open" if tried else ""
    return (f'<details{opened}><summary>{DRAFTS}</summary><p class="tf-note">{DRAFTS_HELP}</p><ul>{rows}</ul></details>'
            if rows else "")


def draft_buttons(found: ModelFound, choice: DraftChoice) -> str:
    if choice.why_not:
        return ""
    load = "" if choice.recommended else button(LOAD_WITH.format(draft=name(choice)), "use-model", model=found.model,
                                                draft=choice.model)
    tried = button(TRY_AGAIN if choice.promise else TRY_DRAFT, "try-draft", css="tf-quiet", model=found.model,
                   draft=choice.model)
    return f'<div class="tf-model-load">{tried}{load}</div>'


def entry(found: ModelFound, loaded: bool, engine: str = "ready", load: LoadProgress | None = None,
          *, tried: str = "", how: str = "") -> str:
    """Return one model. loaded: whether the engine is to load it; engine: its state, load: its progress; tried, how:
    see ``drafts``."""
    facts = [SOURCE[found.source], fmt.size(found.nbytes)]
    if found.parameters:
        facts += [weights(found.parameters), up_to(found.max_context)]
    if found.info and found.info.weights:
        facts.append(found.info.weights)
    rows = "".join(f"<li>{esc(fits(found, weights))}</li>" for weights in dict.fromkeys(f.weights for f in found.fits))
    ways = (f"<details><summary>What fits here, and how fast</summary><ul>{rows}</ul>"
            f'<p class="tf-note">{FITS_HELP}</p></details>' if rows else "")
    others = drafts(found, tried, how) if found.info else ""
    mark = f'<span class="tf-model-on">{MARKS.get(engine, LOADING)}</span>' if loaded else ""
    text, done = (load.stage, load.fraction or 0.0) if load else ("Starting the engine", 0.0)
    doing = progress(text, meter(done, "tf-meter-big", text)) if loaded and engine == "starting" else ""
    about = f'<p class="tf-note">{ABOUT_BUILTIN}</p>' if found.source == "built-in" else ""
    return (f'<li class="tf-model{" tf-current" if loaded else ""}"><h3>{esc(name(found))} {mark}</h3>'
            f'<p class="tf-model-facts" title="{esc(found.model)}">{esc(" · ".join(facts))}</p>'
            f"{about}{doing}{room(found)}{ways}"
            f'<div class="tf-model-load">{load_buttons(found, loaded)}</div>{others}</li>')


def offered(offer: ModelOffer) -> str:
    """Return what a fetch would bring, and the button that starts it."""
    others = "".join(button(f"{name}, {fmt.size(nbytes)}", "ask-file", repo=f"{offer.repo}:{name}")
                     for name, nbytes in offer.ggufs if name != offer.file)
    if others:
        count = FILES.format(count=len(offer.ggufs) - bool(offer.file))
        others = f'<details><summary>{esc(count)}</summary><div class="tf-model-load">{others}</div></details>'
    if offer.missing > offer.disk_free:
        return card("error", offer.repo, full(offer.folder, offer.disk_free, offer.missing), action=others)
    file = f"{offer.file}: " if offer.file else ""
    files = "1 file" if len(offer.names) == 1 else f"{len(offer.names)} files"
    words = (f"{file}{files}, {fmt.size(offer.nbytes)}, {fmt.size(offer.missing)} still to download. "
             f"Licence: {offer.licence}. Stored in {offer.folder}; {fmt.size(offer.disk_free)} are free.")
    return card("info", offer.repo, words, action=button("Download", "fetch-model", css="tf-primary") + others)


def full(folder: str, free: int, need: int) -> str:
    return (f"There is not enough room: {folder} has {fmt.size(free)} free, and {fmt.size(need)} are needed. "
            "Free some space first.")


def question(model: CuratedModel, repo: str) -> str:
    """Return what a download of one of its repos means, and the yes that starts it."""
    drafter, total = drafter_and_bytes(model, repo)
    asked, no = f"Download {model.name}?", button(CANCEL, "leave-model")
    if total > model.disk_free:
        return card("error", asked, full(model.folder, model.disk_free, total), action=no)
    source = f": {repo}, and its draft model {drafter}" if drafter else f" ({repo})"
    words = (f"{fmt.size(total)} come from the Hugging Face hub{source}. Licence: {model.licence}. "
             f"Stored in {model.folder}, where {fmt.size(model.disk_free)} are free. Your documents stay here; nothing "
             "has been sent so far.")
    yes = button(f"Yes, download {fmt.size(total)}", "fetch-model", css="tf-primary")
    return card("info", asked, f"{words} {GET_TERMS}" if model.gated and repo == model.repo else words, action=yes + no)


def errand(models: Models) -> str:
    """Return the errand that is under way."""
    share = models.progress.fraction if models.progress else None
    text = models.progress.stage if models.progress else DOING[models.errand]
    bar = meter(share or 0.0, "tf-meter-big", text) if models.errand in (FETCH, TRY) else ""
    return progress(text, bar, button(CANCEL, "cancel-models", css="tf-quiet"))


def stored(model: CuratedModel) -> list[tuple[str, str, int]]:
    """Return (repo, kind, bytes) of what can be downloaded of a model, the form that is offered here first."""
    precision, nbytes = model.downloads[0]
    found = {model.repo: (model.repo, precision, nbytes)}
    if model.gguf:
        found[model.gguf.repo] = (model.gguf.repo, model.gguf.kind, model.gguf.nbytes)
    return [found[repo] for repo in repos(model)]


def suggestion(model: CuratedModel, models: Models) -> str:
    """Return one model of the list."""
    form, ways = model.form, stored(model)
    facts = [f"{fmt.size(nbytes)} in {kind}" for _, kind, nbytes in ways]
    facts += [model.licence + (" (terms to accept)" if model.gated and form is model else ""),
              weights(model.parameters), up_to(model.max_context)]
    about = model.good_at
    if form.drafter:
        name = model.drafter_name if form is model else form.drafter
        about += f" Draft model: {name}, {fmt.size(form.drafter_nbytes)}."
    if form.plan is None:
        fit = f'<p class="tf-bad">{esc(model.problem)}</p>'
    else:
        shape = FITS_AS if form is model.gguf else FITS if model.weights == "same" else FITS_ROUNDED
        fit = "<p>" + esc(shape.format(
            weights=ways[0][1] if form is model.gguf else model.weights, tokens=fmt.count(form.plan.context),
            need=fmt.memory(form.plan.need), have=fmt.memory(form.plan.have), rate=fmt.rate(form.tokens_per_second),
            at=fmt.count(form.rate_tokens), book=fmt.count(_BOOK),
            wait=fmt.seconds(_BOOK / max(model.read_per_second, 0.1)))) + "</p>"
    mark = '<span class="tf-model-on">on this machine</span>' if model.here else ""
    if models.fetching in repos(model):
        action = errand(models)
    elif models.wanted is not None and models.wanted.repo == model.repo:
        action = question(model, models.wish)
    else:
        first, *rest = ways
        get = button(GET, "want-model", repo=first[0]) + "".join(
            button(GET_AS.format(kind=kind), "want-model", css="tf-quiet", repo=repo) for repo, kind, _ in rest
            if repo != model.repo or model.plan is not None)
        action = "" if model.here else f'<div class="tf-model-load">{get}</div>'
    return (f'<li class="tf-model"><h3>{esc(model.name)} {mark}</h3>'
            f'<p class="tf-model-facts" title="{esc(form.repo)}">{esc(" · ".join(facts))}</p>'
            f"<p>{esc(about)}</p>{fit}{action}</li>")


def on_machine(one: ClassFit) -> str:
    tokens = f"{one.tokens // 1000}K" if one.tokens else "–"
    return tokens if one.weights == "same" else f"{tokens} in {one.weights}"


def by_machine(listed: Sequence[CuratedModel]) -> str:
    """Return a table: models by the usual machines, and how many tokens fit."""
    head = "".join(f'<th scope="col">{esc(one.name)}</th>' for one in listed[0].classes)
    rows = "".join(
        f'<tr><th scope="row">{esc(model.name)}</th>'
        + "".join(f"<td>{on_machine(one)}</td>" for one in model.classes) + "</tr>"
        for model in sorted(listed, key=lambda model: model.parameters))
    return (f'<details class="tf-by-machine"><summary>{BY_MACHINE}</summary>'
            f'<p class="tf-note">{BY_MACHINE_HELP}</p>'
            f'<div class="tf-wide" tabindex="0" role="region" aria-label="{BY_MACHINE}">'
            f'<table><thead><tr><th scope="col">Model</th>{head}</tr></thead>'
            f"<tbody>{rows}</tbody></table></div></details>")


def listed(models: Models) -> str:
    """Return the curated list: what is recommended, then what fits, then what does not."""
    found = models.listed
    best = [model for model in found if model.recommended]
    others = [model for model in found if not model.recommended]
    groups = ((FITTING, [model for model in others if model.form.plan is not None]),
              (NOT_FITTING, [model for model in others if model.form.plan is None]))
    parts = [f'<h2 class="tf-h">{LISTED}</h2><p class="tf-note">{LISTED_HELP.format(date=found[0].dated)}</p>',
             f'<h3 class="tf-h3">{RECOMMENDED}</h3>',
             entries(best, models) if best else f'<p class="tf-note">{NONE_RECOMMENDED}</p>']
    for words, group in groups:
        if group:
            busy = {models.fetching, models.wanted.repo if models.wanted else ""}
            shown = " open" if any(busy.intersection(repos(model)) for model in group) else ""
            parts.append(f"<details{shown}><summary>{esc(words.format(count=len(group)))}</summary>"
                         f"{entries(group, models)}</details>")
    return f'<section class="tf-listed">{"".join(parts)}{by_machine(found)}</section>'


def entries(found: Sequence[CuratedModel], models: Models) -> str:
    return f'<ul class="tf-models">{"".join(suggestion(model, models) for model in found)}</ul>'


def address(url: str) -> str:
    return url.partition("://")[2].removesuffix("/v1")


def served_model(one: ServedModel, mark: str) -> str:
    """Return one model of a server. mark: whether it answers; "": it does not."""
    facts = [f"{one.program or SERVER} at {address(one.url)}"]
    if one.context:
        facts.append(f"loaded with {fmt.count(one.context)} tokens of context")
    elif one.longest:
        facts.append(up_to(one.longest))
    short = one.known_loaded and one.context and one.context < (one.longest or one.context)
    about = f'<p class="tf-bad">{esc(one.problem)}</p>' if one.problem else ""
    if short or (one.known_loaded and not one.context):
        about += f'<p class="tf-note">{esc(LENGTHEN.get(one.program, ""))}</p>'
    shown = f'<span class="tf-model-on">{mark}</span>' if mark else ""
    use = "" if one.problem else button(USED if mark else USE, "use-server", url=one.url, model=one.name)
    return (f'<li class="tf-model{" tf-current" if mark else ""}"><h3>{esc(one.shown)} {shown}</h3>'
            f'<p class="tf-model-facts">{esc(" · ".join(facts))}</p>{about}'
            f'<div class="tf-model-load">{use}</div></li>')


def servers_line(found: Sequence[ServedModel]) -> str:
    """Return buttons for what servers of this machine have, without more words; "" where they have nothing."""
    useful = [one for one in found if not one.problem]
    buttons = "".join(button(f"{one.shown} ({one.program or SERVER})", "use-server", url=one.url, model=one.name)
                      for one in useful)
    return f'<p class="tf-note">{SERVED}:</p><div class="tf-model-load">{buttons}</div>' if useful else ""


def servers(found: Sequence[ServedModel], now: EngineConfig, engine: str) -> str:
    """Return what servers of this machine have. now, engine: as of ``board``."""
    head = f'<section class="tf-served"><h3 class="tf-h">{SERVED}</h3>'
    if not found:
        ports = ", ".join(f"{program} ({port})" for port, program in PORTS.items())
        return f'{head}<p class="tf-note">{esc(NONE_SERVED.format(ports=ports))}</p></section>'
    mark = MARKS.get(engine, LOADING)
    rows = "".join(served_model(one, mark if (one.url, one.name) == (now.server, now.model) else "") for one in found)
    return f'{head}<p class="tf-note">{esc(SERVED_HELP)}</p><ul class="tf-models">{rows}</ul></section>'


def board(models: Models, now: EngineConfig, model: ModelInfo | None, engine: str = "ready",
          load: LoadProgress | None = None) -> str:
    """Return the list, and what is under way. now: what the engine is to load; engine, load: as in ``entry``; why it
    failed is said above the tabs."""
    wrong = "".join(card("error", "That did not work", why) for why in (models.problem, models.refused) if why)
    target, tried = models.trying if any(one.model == models.trying[0] for one in models.found) else ("", "")
    parts = [] if target else [wrong]
    if models.errand and not target and models.fetching not in {repo for one in models.listed for repo in repos(one)}:
        parts.append(errand(models))
    elif models.offer and not models.errand:
        parts.append(offered(models.offer))
    served = "" if models.served is None else servers(models.served, now, engine)
    if models.served:
        parts.append(served)
    if models.found:
        how = wrong + (errand(models) if models.errand else "")
        rows = "".join(entry(one, one.model == now.model and not now.server, engine, load,
                             tried=tried if one.model == target else "", how=how) for one in models.found)
        parts.append(f'<ul class="tf-models">{rows}</ul>')
    elif model is not None and not models.errand:
        about = f" {ABOUT_BUILTIN}" if now.model == "builtin" else ""
        parts.append(f'<p class="tf-note">{esc(f"Loaded now: {model.name}." + about)}</p>')
    if not models.served:
        parts.append(served)
    if models.listed:
        parts.append(listed(models))
    return "".join(parts)


def build(services: Services, tab: gr.Tab) -> Outputs:
    """Return the panel's component. tab: when it is opened, the app looks by itself, on this machine only."""
    models = services.models
    block("models-help", f'<div class="tf-pad"><h2 class="tf-h">{TITLE}</h2><p class="tf-note">{esc(HELP)}</p></div>')
    with gr.Row(elem_classes="tf-models-form"):
        folder = gr.Textbox(label=FOLDER, info=FOLDER_HELP, elem_id="models-folder", max_lines=1, scale=5)
        look = gr.Button(LOOK_HERE, variant="primary", elem_id="models-look", size="md", scale=0, min_width=150)
    with gr.Row(elem_classes="tf-models-form"):
        repo = gr.Textbox(label=REPO, info=REPO_HELP, elem_id="models-repo", max_lines=1, scale=5)
        ask = gr.Button(ASK, elem_id="models-ask", size="md", scale=0, min_width=150)
    board = block("models-board", clicks=True)  # below both, so that what they answer stands where they are

    def open_tab() -> None:
        if models.stale:
            models.look()

    def look_in(folder: str) -> None:
        models.look(folder)

    def ask_hub(repo: str) -> None:
        if repo.strip():
            models.ask_hub(repo)

    tab.select(open_tab, None, None, queue=False, **PRIVATE)
    for event in (look.click, folder.submit):
        event(look_in, [folder], None, queue=False, **PRIVATE)
    for event in (ask.click, repo.submit):
        event(ask_hub, [repo], None, queue=False, **PRIVATE)
    return {"models_board": board, "models_look": look, "models_ask": ask}


def actions(services: Services) -> Actions:
    models = services.models
    return {
        "use-model": lambda view, data: services.use_model(data.get("model", ""), data.get("draft", "auto"),
                                                            data.get("weights", ""), data.get("kv", "")),
        "try-draft": lambda view, data: models.try_draft(data.get("model", ""), data.get("draft", "")),
        "use-server": lambda view, data: services.use_server(data.get("url", ""), data.get("model", "")),
        "ask-file": lambda view, data: models.ask_hub(data.get("repo", "")),
        "first-models": lambda view, data: models.choose_first(),
        "leave-first": lambda view, data: models.choose_first(False),
        "get-model": lambda view, data: models.get(data.get("repo", "")),
        "want-model": lambda view, data: models.want(data.get("repo")),
        "leave-model": lambda view, data: models.want(None),
        "fetch-model": lambda view, data: models.fetch(),
        "cancel-models": lambda view, data: models.cancel(),
    }


def panels(services: Services) -> list[Panel]:
    models, queue = services.models, services.queue

    def draw(view: TabView) -> str:
        state = queue.state if queue.wanted == queue.config else "waiting"
        return board(models, queue.wanted, queue.model, state, queue.load_progress)

    def pressed(words: str, errand: str) -> Callable[[TabView], dict[str, Any]]:
        """Return how a button is drawn: while its errand is under way, it says so."""
        return lambda view: gr.update(value=LOOKING if models.errand == errand else words,
                                      interactive=not models.errand)

    buttons = [Panel(name, lambda view: models.errand, pressed(words, errand))
               for name, words, errand in (("models_look", LOOK_HERE, LOOK), ("models_ask", ASK, OFFER))]
    return [*buttons, Panel("models_board", lambda view: (models.version, queue.config, queue.wanted, queue.model,
                                                          queue.state, queue.load_progress), draw, 0.3)]
