"""Tables made up, and questions about their cells: the corpora hold none. A row is a line of cells with " | " between.

Columns have several ways to ask for them, in other words than their heading's too. Rows stand among sentences of a
document, one table under a heading or several, and some rows have no marks between their cells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from training.encoder_data import Asked, Source

ROWS, QUESTIONS, WITHOUT_MARKS = (4, 18), 7, 0.15  # of a table; of them as plain lines
Value = Callable[[Random, Sequence[str]], str]


def _whole(low: int, high: int, unit: str = "", each: int = 1) -> Value:
    return lambda chance, words: f"{chance.randrange(low, high, each):,}{unit}"


def _part(low: float, high: float, unit: str = "", digits: int = 1) -> Value:
    return lambda chance, words: f"{chance.uniform(low, high):.{digits}f}{unit}"


def _one(*options: str) -> Value:
    return lambda chance, words: chance.choice(options)


def _phrase(chance: Random, words: Sequence[str]) -> str:
    return chance.choice(words)


def _date(chance: Random, words: Sequence[str]) -> str:
    month = chance.choice("January March April June July September October December".split())
    return f"{chance.randint(1, 28)} {month} {chance.randint(1950, 2027)}"


# Headings of the columns, how their cells are made, how one asks for a cell ({}: the first cell of its row).
COLUMNS: tuple[tuple[tuple[str, ...], Value, tuple[str, ...]], ...] = (
    (("Weight (kg)", "Weight", "Mass"), _part(0.2, 90), ("how heavy is {}?", "what does {} weigh?", "weight of {}")),
    (("Price", "Price (EUR)", "Cost per unit", "Fee"), _part(2, 900, digits=2),
     ("how much is {}?", "what do I pay for {}?", "what does {} cost?", "price {}")),
    (("Length", "Length (m)"), _part(0.1, 40, " m"), ("how long is {}?", "what is the length of {}?")),
    (("Default", "Default value"), _one("on", "off", "none", "0", "100", "auto", "utf-8", "30 s"),
     ("what is the default for {}?", "what happens with {} if I set nothing?", "what value does {} start with?")),
    (("Type", "Kind"), _one("string", "integer", "list", "boolean", "path", "number", "date"),
     ("what type is {}?", "what kind of value does {} take?")),
    (("Deadline", "Due", "Due date"), _date,
     ("by when must {} be done?", "when is {} due?", "what is the last day for {}?")),
    (("Opened", "Founded", "Established", "Built"), _whole(1650, 2020),
     ("when was {} founded?", "how old is {}?", "in what year did {} begin?")),
    (("Population", "Inhabitants"), _whole(900, 9_000_000),
     ("how many people live in {}?", "population of {}", "how big is {}?")),
    (("Revenue", "Sales", "Income"), _part(1, 900, " million"),
     ("how much did {} bring in?", "what were the sales of {}?", "what did {} earn?")),
    (("Change", "Change on the year before"), _part(-30, 40, " %"),
     ("how did {} change?", "did {} go up or down?", "by how much did {} grow?")),
    (("Contact", "Responsible", "Owner"), _phrase,
     ("who looks after {}?", "who is responsible for {}?", "whom do I ask about {}?")),
    (("Room", "Location", "Place"), _one("B 204", "first floor", "Hall 3", "basement", "north wing", "room 17"),
     ("where is {}?", "where do I find {}?")),
    (("Bandwidth", "Bandwidth (Hz)"), _whole(4, 3000, " Hz"),
     ("how wide is {}?", "what bandwidth does {} need?", "how much spectrum does {} take up?")),
    (("Duration", "Time", "Duration (s)"), _part(0.5, 300, " s"),
     ("how long does {} take?", "how long does {} last?", "duration of {}")),
    (("Temperature", "Boiling point", "Operating temperature"), _whole(-40, 400, " °C"),
     ("how hot does {} get?", "at what temperature does {} work?", "temperature for {}")),
    (("Speed", "Top speed", "Rate"), _whole(2, 900, " km/h"), ("how fast is {}?", "what is the speed of {}?")),
    (("Votes", "Votes received"), _whole(120, 90_000), ("how many people voted for {}?", "what result did {} get?")),
    (("Dose", "Daily dose", "Recommended amount"), _whole(5, 1000, " mg", 5),
     ("how much of {} may one take?", "what is the dose of {}?")),
    (("Licence", "License"), _one("MIT", "GPL-3.0", "Apache-2.0", "CC BY 4.0", "public domain"),
     ("under what terms is {} published?", "what licence does {} have?", "may I reuse {}?")),
    (("Range", "Port", "Size"), _whole(20, 65000),
     ("what number does {} have?", "which port does {} use?", "size of {}")),
    (("Meaning", "Description", "Purpose", "Effect"), _phrase, ("what does {} mean?", "what is {} for?", "explain {}")),
    (("Key", "Shortcut"), _one("Ctrl+S", "F5", "Alt+Enter", "Shift+F3", "Ctrl+Alt+K", "Esc"),
     ("which key does {}?", "how do I call {} from the keyboard?")),
    (("Score", "Points", "Grade"), _part(0, 100), ("how well did {} do?", "how many points has {}?", "score {}")),
    (("Share", "Percentage"), _part(0.1, 95, " %"),
     ("what share has {}?", "what part of the whole is {}?", "what percentage is {}?")),
    (("Required", "Mandatory"), _one("yes", "no", "only for new users"),
     ("do I need {}?", "is {} required?", "can I leave {} out?")),
    (("Capacity", "Seats", "Memory"), _whole(2, 4000),
     ("how many fit into {}?", "how much does {} hold?", "capacity of {}")),
)  # fmt: skip
KEYS = ("Name", "Item", "Option", "Mode", "Product", "Station", "Parameter", "Country", "Department", "Model", "Year")


def table_source(number: int, around: Sequence[str], names: Sequence[str], phrases: Sequence[str],
                 chance: Random) -> Source:
    """A document with one to three tables. around: sentences between them; names, phrases: what its cells hold."""
    source = Source(f"table-{number}", " ".join(chance.choice(around).split()[:6]), [], [])
    line = 0

    def add(text: str) -> int:
        nonlocal line
        line += 1
        source.sentences.append(text)
        source.lines.append(line)
        return len(source.sentences) - 1

    for _ in range(chance.randint(1, 3)):
        add(" ".join(chance.choice(phrases).split()[:6]).title())
        for text in chance.sample(around, min(len(around), chance.randint(2, 6))):
            add(text)
            line += 1
        _add_table(source, add, names, phrases, chance)
    return source


def _add_table(source: Source, add: Callable[[str], int], names: Sequence[str], phrases: Sequence[str],
               chance: Random) -> None:
    columns = chance.sample(COLUMNS, chance.randint(1, 4))
    headings = [chance.choice(one[0]) for one in columns]
    between = "  " if chance.random() < WITHOUT_MARKS else " | "
    add(between.join((chance.choice(KEYS), *headings)))
    keys = chance.sample(names, min(len(names), chance.randint(*ROWS)))
    at = {key: add(between.join((key, *(make(chance, phrases) for _, make, _ in columns)))) for key in keys}
    topic = chance.choice(phrases)
    for _ in range(min(QUESTIONS, len(keys))):
        key, column = chance.choice(keys), chance.randrange(len(columns))
        heading = headings[column].lower()
        plain = (f"what is the {heading} of {key}?", f"{heading} {key}",
                 f"What {heading} does the table give for {key}?")
        asked = chance.choice(columns[column][2]).format(key) if chance.random() < 0.6 else chance.choice(plain)
        if chance.random() < 0.15:
            asked = f"{asked.rstrip('?')} ({topic})?"
        source.asked.append(Asked(asked, "", (at[key],), "table", "table"))
