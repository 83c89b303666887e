"""Models of this machine: whether each fits, what drafts for it, and one that could be fetched."""

from __future__ import annotations

from collections.abc import Sequence

from triforce_core import ClassFit, CuratedModel, DraftChoice, Fit, LoadProgress, ModelFound, ModelInfo, ModelOffer

from ..page import number_format as fmt
from ..page.html import CANCEL, button, card, esc, meter
from ..state.models import FETCH, Models
from ..words import models as model_words

_BOOK = 30_000  # tokens of a document whose reading time is told: some eighty pages


def name(found: ModelFound | DraftChoice) -> str:
    """The built-in models are named in words, others as they are called."""
    words = model_words.BUILTIN if isinstance(found, ModelFound) else model_words.BUILTIN_DRAFTS
    return words.get(found.name, found.name)


def weights(count: int) -> str:
    shape = model_words.BILLIONS if count >= 1e9 else model_words.MILLIONS
    return shape.format(count=count / (1e9 if count >= 1e9 else 1e6))


def room(found: ModelFound) -> str:
    """What it takes of what is free, as a bar and in words; or why it does not run, and what would."""
    plan = found.info.plan if found.info else None
    if plan is None:
        more = f" {model_words.WOULD_FIT.format(tokens=fmt.count(found.longest))}" if found.longest else ""
        return f'<p class="tf-bad">{esc(found.problem + more)}</p>'
    drafts = plan.draft_weights + plan.draft_cache + plan.retrieval + plan.weight_copy
    words = model_words.ROOM.format(
        tokens=fmt.count(plan.context), weights=fmt.memory(plan.weights), kv=fmt.memory(plan.kv),
        drafts=fmt.memory(drafts), need=fmt.memory(plan.need), have=fmt.memory(plan.have), mode=plan.mode)
    return f"<p>{esc(words)}</p>{meter(plan.need / max(plan.have, 1), 'tf-meter-thin', words)}"


def fits(found: ModelFound, weights: str) -> str:
    """With weights so, what each context needs, and how fast it would be."""
    return f"{model_words.WEIGHTS[weights]}: {'; '.join(fit(one) for one in found.fits if one.weights == weights)}"


def fit(one: Fit) -> str:
    if not one.mode:
        return model_words.FITS_NOT.format(tokens=fmt.count(one.context))
    shape = model_words.FIT_FAST if one.tokens_per_second else model_words.FIT
    return shape.format(tokens=fmt.count(one.context), need=fmt.memory(one.need), mode=one.way,
                        rate=fmt.rate(one.tokens_per_second))


def best_button(found: ModelFound) -> str:
    """The way in which to load it here, where that is not as it is."""
    best = found.best
    if best is None or not best.rounds:
        return ""
    how = [model_words.BEST[best.weights]] if best.weights != "same" else []
    if best.kv != "same":
        how.append(model_words.BEST_KV.format(kv=best.kv))
    how += [model_words.BEST_DRAFT.format(draft=name(choice)) for choice in found.drafts if choice.model == found.draft]
    return button(model_words.LOAD_BEST.format(how=", ".join(how)), "use-model", css="tf-primary", model=found.model,
                  draft=found.draft, weights=best.weights, kv=best.kv_setting)


def load_buttons(found: ModelFound, loaded: bool) -> str:
    """As recommended, then one for each way to draft; what does not run as it is may still run as recommended."""
    if found.info is None:
        return best_button(found)
    again = model_words.LOADED if loaded else model_words.LOAD
    if found.source == "built-in":
        ways = [(again, "auto")]
    else:
        fitting = [choice for choice in found.drafts if not choice.why_not]
        ways = [(model_words.LOAD_WITH.format(draft=name(choice)), choice.model) for choice in fitting]
        ways.append((model_words.LOAD_ALONE if fitting else again, "none"))
    return best_button(found) + "".join(
        button(label, "use-model", model=found.model, draft=draft) for label, draft in ways)


def entry(found: ModelFound, loaded: bool, engine: str = "ready", load: LoadProgress | None = None) -> str:
    """One model. loaded: whether the engine was told to load it; engine: how far it is (``EngineHolder.state``), load:
    at what."""
    facts = [model_words.SOURCE[found.source], fmt.size(found.nbytes)]
    if found.parameters:
        facts += [weights(found.parameters), model_words.UP_TO.format(tokens=fmt.count(found.max_context))]
    if found.info and found.info.weights:
        facts.append(found.info.weights)
    rows = "".join(f"<li>{esc(fits(found, weights))}</li>" for weights in dict.fromkeys(f.weights for f in found.fits))
    ways = (f"<details><summary>{esc(model_words.FITS_TITLE)}</summary><ul>{rows}</ul>"
            f'<p class="tf-note">{esc(model_words.FITS_HELP)}</p></details>' if rows else "")
    refused = "".join(f"<li><b>{esc(name(choice))}</b> {esc(choice.why_not)}</li>"
                      for choice in found.drafts if choice.why_not)
    others = (f"<details><summary>{esc(model_words.NOT_DRAFTS)}</summary><ul>{refused}</ul></details>"
              if refused and found.info else "")
    marks = {"ready": model_words.NOW, "failed": model_words.STOPPED}
    mark = f'<span class="tf-model-on">{esc(marks.get(engine, model_words.LOADING))}</span>' if loaded else ""
    doing = loading(load) if loaded and engine == "starting" else ""
    about = f'<p class="tf-note">{esc(model_words.ABOUT_BUILTIN)}</p>' if found.source == "built-in" else ""
    return (f'<li class="tf-model{" tf-current" if loaded else ""}"><h3>{esc(name(found))} {mark}</h3>'
            f'<p class="tf-model-facts" title="{esc(found.model)}">{esc(" · ".join(facts))}</p>'
            f"{about}{doing}{room(found)}{ways}"
            f'<div class="tf-model-load">{load_buttons(found, loaded)}</div>{others}</li>')


def loading(load: LoadProgress | None) -> str:
    """What the engine is doing with it now."""
    text = load.stage if load else model_words.STARTING
    return under_way(text, meter(load.fraction or 0.0 if load else 0.0, "tf-meter-big", text))


def under_way(text: str, bar: str, cancel: str = "") -> str:
    return (f'<div class="tf-progress" role="status"><div class="tf-progress-row"><span>{esc(text)}</span>'
            f"{cancel}</div>{bar}</div>")


def offered(offer: ModelOffer) -> str:
    """What a fetch would bring, and the button that starts it."""
    words = model_words.OFFER.format(files=len(offer.names), size=fmt.size(offer.nbytes),
                                     missing=fmt.size(offer.missing), licence=offer.licence, folder=offer.folder,
                                     free=fmt.size(offer.disk_free))
    if offer.missing > offer.disk_free:
        return card("error", offer.repo, full(offer.folder, offer.disk_free, offer.missing))
    return card("info", offer.repo, words, action=button(model_words.FETCH, "fetch-model", css="tf-primary"))


def full(folder: str, free: int, need: int) -> str:
    return model_words.GET_FULL.format(folder=folder, free=fmt.size(free), size=fmt.size(need))


def total(model: CuratedModel) -> int:
    """Bytes of what a download brings, its draft model included."""
    return model.downloads[0][1] + model.drafter_nbytes


def question(model: CuratedModel) -> str:
    """What a download means, and the yes that starts it."""
    size, no = fmt.size(total(model)), button(CANCEL, "leave-model")
    if total(model) > model.disk_free:
        return card("error", model_words.GET_QUESTION.format(name=model.name),
                    full(model.folder, model.disk_free, total(model)), action=no)
    what = (model_words.GET_BOTH if model.drafter else model_words.GET_SIZE).format(
        size=size, repo=model.repo, drafter=model.drafter, licence=model.licence)
    place = model_words.GET_PLACE.format(folder=model.folder, free=fmt.size(model.disk_free))
    terms = f" {model_words.GET_TERMS}" if model.gated else ""
    yes = button(model_words.GET_YES.format(size=size), "fetch-model", css="tf-primary")
    return card("info", model_words.GET_QUESTION.format(name=model.name), f"{what} {place}{terms}", action=yes + no)


def progress(models: Models) -> str:
    """The errand that is under way."""
    words = model_words.DOING[models.errand]
    share = models.progress.fraction if models.progress else None
    text = models.progress.stage if models.progress else words
    bar = meter(share or 0.0, "tf-meter-big", text) if models.errand == FETCH else ""
    return under_way(text, bar, button(CANCEL, "cancel-models", css="tf-quiet"))


def suggestion(model: CuratedModel, models: Models) -> str:
    """One of the list."""
    facts = [model_words.DOWNLOADS.format(size=fmt.size(nbytes), precision=precision)
             for precision, nbytes in model.downloads]
    facts += [model.licence + (f" ({model_words.GATED})" if model.gated else ""), weights(model.parameters),
              model_words.UP_TO.format(tokens=fmt.count(model.max_context))]
    about = model.good_at
    if model.drafter:
        about += " " + model_words.DRAFTED_BY.format(name=model.drafter_name, size=fmt.size(model.drafter_nbytes))
    if model.plan is None:
        fit = f'<p class="tf-bad">{esc(model.problem)}</p>'
    else:
        shape = model_words.FITS if model.weights == "same" else model_words.FITS_ROUNDED
        fit = "<p>" + esc(shape.format(
            weights=model.weights, tokens=fmt.count(model.plan.context), need=fmt.memory(model.plan.need),
            have=fmt.memory(model.plan.have), rate=fmt.rate(model.tokens_per_second), at=fmt.count(model.rate_tokens),
            book=fmt.count(_BOOK), wait=fmt.seconds(_BOOK / max(model.read_per_second, 0.1)))) + "</p>"
    mark = f'<span class="tf-model-on">{esc(model_words.IS_HERE)}</span>' if model.here else ""
    if models.fetching == model.repo:
        action = progress(models)
    elif models.wanted is not None and models.wanted.repo == model.repo:
        action = question(model)
    else:
        get = button(model_words.GET, "want-model", repo=model.repo)
        action = "" if model.here else f'<div class="tf-model-load">{get}</div>'
    return (f'<li class="tf-model"><h3>{esc(model.name)} {mark}</h3>'
            f'<p class="tf-model-facts" title="{esc(model.repo)}">{esc(" · ".join(facts))}</p>'
            f"<p>{esc(about)}</p>{fit}{action}</li>")


def thousands(tokens: int) -> str:
    """131072 -> '131K'."""
    return f"{tokens // 1000}K"


def on_machine(one: ClassFit) -> str:
    tokens = thousands(one.tokens) if one.tokens else "–"
    return tokens if one.weights == "same" else model_words.IN_FORM.format(tokens=tokens, weights=one.weights)


def by_machine(listed: Sequence[CuratedModel]) -> str:
    """A table: models by the usual machines, and how many tokens fit."""
    head = "".join(f'<th scope="col">{esc(one.name)}</th>' for one in listed[0].classes)
    rows = "".join(
        f'<tr><th scope="row">{esc(model.name)}</th>'
        + "".join(f"<td>{on_machine(one)}</td>" for one in model.classes) + "</tr>"
        for model in sorted(listed, key=lambda model: model.parameters))
    return (f'<details class="tf-by-machine"><summary>{esc(model_words.BY_MACHINE)}</summary>'
            f'<p class="tf-note">{esc(model_words.BY_MACHINE_HELP)}</p>'
            f'<div class="tf-wide" tabindex="0" role="region" aria-label="{esc(model_words.BY_MACHINE)}">'
            f'<table><thead><tr><th scope="col">{esc(model_words.MODEL)}</th>{head}</tr></thead>'
            f"<tbody>{rows}</tbody></table></div></details>")


def listed(models: Models) -> str:
    """The curated list: what is recommended, then what fits, then what does not."""
    found = models.listed
    best = [model for model in found if model.recommended]
    others = [model for model in found if not model.recommended]
    groups = ((model_words.FITTING, [model for model in others if model.plan is not None]),
              (model_words.NOT_FITTING, [model for model in others if model.plan is None]))
    parts = [f'<h2 class="tf-h">{esc(model_words.LISTED)}</h2>'
             f'<p class="tf-note">{esc(model_words.LISTED_HELP.format(date=found[0].dated))}</p>',
             f'<h3 class="tf-h3">{esc(model_words.RECOMMENDED)}</h3>',
             entries(best, models) if best else f'<p class="tf-note">{esc(model_words.NONE_RECOMMENDED)}</p>']
    for words, group in groups:
        if group:
            busy = {models.fetching, models.wanted.repo if models.wanted else ""}
            shown = " open" if any(model.repo in busy for model in group) else ""
            parts.append(f"<details{shown}><summary>{esc(words.format(count=len(group)))}</summary>"
                         f"{entries(group, models)}</details>")
    return f'<section class="tf-listed">{"".join(parts)}{by_machine(found)}</section>'


def entries(found: Sequence[CuratedModel], models: Models) -> str:
    return f'<ul class="tf-models">{"".join(suggestion(model, models) for model in found)}</ul>'


def board(models: Models, now: str, model: ModelInfo | None, unused: str = "", engine: str = "ready",
          load: LoadProgress | None = None) -> str:
    """The list, and what is under way. now: the model that the engine was told to load, engine, load: see ``entry``;
    why it could not be is said above the tabs. unused: as of ``build``."""
    if unused:
        said = model_words.ANSWERS_NOW.format(model=model.name) if model else ""
        return f'<p class="tf-note">{esc(said)}</p>' if said else ""
    parts = []
    if models.problem:
        parts.append(card("error", model_words.PROBLEM, models.problem))
    if models.refused:
        parts.append(card("error", model_words.PROBLEM, models.refused))
    if models.errand and models.fetching not in {model.repo for model in models.listed}:
        parts.append(progress(models))
    elif models.offer and not models.errand:
        parts.append(offered(models.offer))
    if models.found:
        rows = "".join(entry(one, one.model == now, engine, load) for one in models.found)
        parts.append(f'<ul class="tf-models">{rows}</ul>')
    elif model is not None and not models.errand:
        about = f" {model_words.ABOUT_BUILTIN}" if now == "builtin" else ""
        parts.append(f'<p class="tf-note">{esc(model_words.LOADED_NOW.format(model=model.name) + about)}</p>')
    if models.listed:
        parts.append(listed(models))
    return "".join(parts)
