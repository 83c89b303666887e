"""Models of this machine: whether each fits, what drafts for it, and one that could be fetched."""

from __future__ import annotations

from triforce_core import DraftChoice, ModelFound, ModelInfo, ModelOffer

from ..state.models import FETCH, Models
from ..words import models as model_words
from ..words import page as page_words
from . import charts
from . import number_format as fmt
from .charts import esc
from .transcript import button, card


def name(found: ModelFound | DraftChoice) -> str:
    """The built-in models are named in words, others as they are called."""
    return model_words.BUILTIN.get(found.name, found.name)


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
    return f"<p>{esc(words)}</p>{charts.meter(plan.need / max(plan.have, 1), 'tf-meter-thin', words)}"


def fits(found: ModelFound, weights: str) -> str:
    """With weights so, what each context needs."""
    told = [model_words.FIT.format(tokens=fmt.count(fit.context), need=fmt.memory(fit.need), mode=fit.mode) if fit.mode
            else model_words.FITS_NOT.format(tokens=fmt.count(fit.context)) for fit in found.fits
            if fit.weights == weights]
    return f"{model_words.WEIGHTS[weights]}: {', '.join(told)}"


def load_buttons(found: ModelFound, loaded: bool) -> str:
    """One for each way to draft; none where it does not run."""
    if found.info is None:
        return ""
    if found.source == "built-in":
        ways = [(model_words.LOADED if loaded else model_words.LOAD, "auto")]
    else:
        fitting = [choice for choice in found.drafts if not choice.why_not]
        ways = [(model_words.LOAD_WITH.format(draft=name(choice)), choice.model) for choice in fitting]
        ways.append((model_words.LOAD_ALONE if fitting else model_words.LOAD, "none"))
    return "".join(button(label, "use-model", model=found.model, draft=draft) for label, draft in ways)


def entry(found: ModelFound, loaded: bool) -> str:
    """One model."""
    facts = [model_words.SOURCE[found.source], fmt.size(found.nbytes)]
    if found.parameters:
        facts += [weights(found.parameters), model_words.UP_TO.format(tokens=fmt.count(found.max_context))]
    if found.info and found.info.weights:
        facts.append(found.info.weights)
    rows = "".join(f"<li>{esc(fits(found, weights))}</li>" for weights in dict.fromkeys(f.weights for f in found.fits))
    refused = "".join(f"<li><b>{esc(name(choice))}</b> {esc(choice.why_not)}</li>"
                      for choice in found.drafts if choice.why_not)
    others = (f"<details><summary>{esc(model_words.NOT_DRAFTS)}</summary><ul>{refused}</ul></details>"
              if refused and found.info else "")
    mark = f'<span class="tf-model-on">{esc(model_words.NOW)}</span>' if loaded else ""
    about = f'<p class="tf-note">{esc(model_words.ABOUT_BUILTIN)}</p>' if found.source == "built-in" else ""
    return (f'<li class="tf-model{" tf-current" if loaded else ""}"><h3>{esc(name(found))} {mark}</h3>'
            f'<p class="tf-model-facts" title="{esc(found.model)}">{esc(" · ".join(facts))}</p>{about}{room(found)}'
            f"{f'<details><summary>{esc(model_words.FITS)}</summary><ul>{rows}</ul></details>' if rows else ''}"
            f'<div class="tf-model-load">{load_buttons(found, loaded)}</div>{others}</li>')


def offered(offer: ModelOffer) -> str:
    """What a fetch would bring, and the button that starts it."""
    words = model_words.OFFER.format(files=len(offer.names), size=fmt.size(offer.nbytes),
                                        missing=fmt.size(offer.missing), licence=offer.licence)
    return card("info", offer.repo, words, action=button(model_words.FETCH, "fetch-model", css="tf-primary"))


def board(models: Models, now: str, model: ModelInfo | None, problem: str, unused: str = "") -> str:
    """The list, and what is under way. now: the model that the engine was told to load. unused: as of ``build``."""
    if unused:
        said = model_words.ANSWERS_NOW.format(model=model.name) if model else ""
        return f'<p class="tf-note">{esc(said)}</p>' if said else ""
    parts = []
    if problem:
        parts.append(card("error", model_words.FAILED.format(model=now), problem))
    if models.problem:
        parts.append(card("error", model_words.PROBLEM, models.problem))
    if models.errand:
        words = model_words.DOING[models.errand]
        share = models.progress.fraction if models.progress else None
        text = models.progress.stage if models.progress else words
        bar = charts.meter(share or 0.0, "tf-meter-big", text) if models.errand == FETCH else ""
        cancel = button(page_words.CANCEL, "cancel-models", css="tf-quiet")
        parts.append(f'<div class="tf-progress" role="status"><div class="tf-progress-row"><span>{esc(text)}</span>'
                     f"{cancel}</div>{bar}</div>")
    elif models.offer:
        parts.append(offered(models.offer))
    if models.found:
        parts.append(f'<ul class="tf-models">{"".join(entry(one, one.model == now) for one in models.found)}</ul>')
    elif model is not None and not models.errand:
        about = f" {model_words.ABOUT_BUILTIN}" if now == "builtin" else ""
        parts.append(f'<p class="tf-note">{esc(model_words.LOADED_NOW.format(model=model.name) + about)}</p>')
    return "".join(parts)
