"""A first chat model, where none is there: at most three to choose from, chosen for this machine. Pure."""

from __future__ import annotations

from triforce_core import CuratedModel, LoadProgress

from ..app.models import LOOK, Models
from . import formatting as fmt
from .html import CANCEL, DISMISS, button, card, esc, meter, progress
from .models import errand, full, servers_line

GET = "Get a chat model"
WHY = "The built-in model only finds passages. A chat model answers in its own words, on this machine too."
LOOKING = "Looking at what this machine can run…"
CHOOSE = "Choose a chat model"
CHOOSE_HELP = ("Chosen for the memory that is free now and for the speed that was measured here at the best moment so "
               "far. Times are modelled from it: it takes at least so long. Nothing was downloaded yet.")
FACTS = "{size} from {repo} · {licence}"
DRAFT = " · with its draft model, {size} from {repo}"
TIMES = "Reads 60 pages in {read}, writes an answer in {write}. Takes {context} tokens of context."
USE = "Download {size} and use it"
NONE = "None of the models of the list fits into the memory that is free now."

_PAGES_TOKENS, _ANSWER_TOKENS = 60 * 375, 200


def choice(model: CuratedModel, models: Models) -> str:
    """Return one to choose: what it is, how fast it would be, and the button that fetches it."""
    assert model.gguf is not None, "only those are offered"
    size, gguf = fmt.size(model.gguf.total), model.gguf
    facts = FACTS.format(size=fmt.size(gguf.nbytes), repo=gguf.repo, licence=model.licence)
    if gguf.drafter:
        facts += DRAFT.format(size=fmt.size(gguf.drafter_nbytes), repo=gguf.drafter)
    times = TIMES.format(read=fmt.seconds(_PAGES_TOKENS / max(model.read_per_second, 0.1)),
                         write=fmt.seconds(_ANSWER_TOKENS / max(gguf.tokens_per_second, 0.01)),
                         context=fmt.count(gguf.context))
    if models.fetching == gguf.repo:
        action = errand(models)
    elif gguf.total > model.disk_free:
        action = f'<p class="tf-bad">{esc(full(model.folder, model.disk_free, gguf.total))}</p>'
    else:
        action = "" if models.fetching else button(USE.format(size=size), "get-model", css="tf-primary", repo=gguf.repo)
    return (f'<li class="tf-model"><h3>{esc(model.name)}</h3><p class="tf-model-facts">{esc(facts)}</p>'
            f'<p>{esc(model.good_at)}</p><p>{esc(times)}</p><div class="tf-model-load">{action}</div></li>')


def first_model(models: Models, load: LoadProgress | None = None) -> str:
    """Return the way to a first chat model. load: of one that was chosen and is being loaded."""
    if load is not None:
        return progress(load.stage, meter(load.fraction or 0.0, "tf-meter-big", load.stage))
    if not models.choosing:
        return f'<div class="tf-first"><p>{esc(WHY)}</p>{button(GET, "first-models")}</div>'
    offered = [model for model in models.listed if model.first]
    parts = [card("error", "That did not work", why) for why in (models.problem, models.refused) if why]
    if models.errand == LOOK and not (models.listed and models.served is not None):
        parts.append(progress(LOOKING, "", button(CANCEL, "leave-first", css="tf-quiet")))
    else:
        parts.append(servers_line(models.served or ()))
        rows = "".join(choice(model, models) for model in offered)
        parts.append(f'<p class="tf-note">{esc(CHOOSE_HELP if offered else NONE)}</p><ul class="tf-models">{rows}</ul>')
        if not models.fetching:
            parts.append(button(DISMISS, "leave-first", css="tf-quiet"))
    return f'<section class="tf-first tf-choosing"><h2>{CHOOSE}</h2>{"".join(parts)}</section>'
