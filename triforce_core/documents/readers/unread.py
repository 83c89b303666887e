"""Count what stands in a file and not in the text that was read from it, and say it in sentences fit to show."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass
class Unread:
    """How many of each were left out. Nothing here is damage: what was lost is a warning."""

    pictures: int = 0  # and drawings, films, sounds, embedded objects
    comments: int = 0
    deletions: int = 0  # tracked ones
    hidden: int = 0  # words that the file says are not to be shown
    controls: int = 0  # words of menus, buttons and forms
    picture_pages: int = 0  # pages that are only a picture

    def add(self, other: Unread) -> None:
        for part in fields(self):
            setattr(self, part.name, getattr(self, part.name) + getattr(other, part.name))

    def sentences(self) -> list[str]:
        said = (
            (self.pictures, "picture or other object was", "pictures and other objects were", "not read."),
            (self.picture_pages, "page that is only a picture was", "pages that are only a picture were", "not read."),
            (self.comments, "comment was", "comments were", "left out."),
            (self.deletions, "deletion that was tracked was", "deletions that were tracked were", "left out."),
            (self.hidden, "word that the file hides was", "words that the file hides were", "left out."),
            (self.controls, "word of menus, buttons or forms was", "words of menus, buttons and forms were",
             "left out."),
        )
        return [f"{count:,} {one if count == 1 else many} {what}" for count, one, many, what in said if count]
