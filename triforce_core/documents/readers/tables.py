"""A table's rows as lines, cells apart by " | "; tables that only place things on the page as paragraphs."""

from __future__ import annotations

from dataclasses import dataclass, field

from .flow import LINE, Flow

_LONGEST_CELL = 2_000  # characters; a longer one is a part of the page, not of a row
_LONGEST_REPEATED = 80  # of a cell that spans rows: short ones stand in each of them
_MOST_SPANNED = 50


@dataclass
class Table:
    """The one that is being read. spans: column -> (further rows, text) of cells that reach down."""

    spans: dict[int, tuple[int, str]] = field(default_factory=dict)
    row: list[tuple[Flow, int, int]] = field(default_factory=list)

    def add(self, cell: Flow, rows: int = 1, columns: int = 1) -> None:
        """The next cell of the row, and how many rows and columns it spans."""
        self.row.append((cell, min(max(rows, 1), _MOST_SPANNED), min(max(columns, 1), _MOST_SPANNED)))

    def end_row(self, flow: Flow) -> None:
        row, self.row = self.row, []
        cells = [cell for cell, _, _ in row]
        if not any(cell.pieces for cell in cells):
            return
        apart = any(cell.apart or len(cell.text()) > _LONGEST_CELL for cell in cells)
        if apart or (len(cells) == 1 and "\n\n" in cells[0].text()):
            flow.apart = True
            for cell in cells:
                if cell.pieces and not _line_numbers(cell):
                    flow.paragraph(cell.text())
            return
        words = self._spread(row)
        while words and not words[-1]:
            words.pop()
        flow.separate(LINE)
        flow.put(" | ".join(words).replace("  ", " ").strip())  # "a | | c"
        flow.separate(LINE)

    def _spread(self, row: list[tuple[Flow, int, int]]) -> list[str]:
        """The words of each column, also where a cell spans several rows or columns."""
        words: list[str] = []
        for cell, rows, columns in row:
            self._reaching_down(words)
            text = cell.line()
            if rows > 1:
                self.spans[len(words)] = (rows - 1, text if len(text) <= _LONGEST_REPEATED else "")
            words += [text, *[""] * (columns - 1 if len(row) > 1 else 0)]
        self._reaching_down(words)
        return words

    def _reaching_down(self, words: list[str]) -> None:
        while len(words) in self.spans:
            column = len(words)
            rows, text = self.spans.pop(column)
            if rows > 1:
                self.spans[column] = (rows - 1, text)
            words.append(text)


def _line_numbers(cell: Flow) -> bool:
    """Say whether a cell holds the line numbers of a listing."""
    numbers = [int(word) for word in cell.text().split() if word.isascii() and word.isdigit() and len(word) < 7]
    return len(numbers) > 1 and numbers == list(range(numbers[0], numbers[0] + len(cell.text().split())))
