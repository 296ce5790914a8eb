"""Simulated desktop with two programs: a viewer of delivery notes, and a form that books them in.

The tools are those of ``ctxlab serve desktop``, which here use this desktop instead of a real one.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from PIL.Image import Image

from ctxlab._utils.jsonio import dump_json
from ctxlab.messages.types import ContentPart
from ctxlab.serve.desktop.backend import DesktopBackend, Job, WindowCheck
from ctxlab.serve.desktop.tools import ClipboardText, DesktopTools
from datasets.make.desktop_screen import (
    HEIGHT,
    LINE,
    WIDTH,
    Box,
    Screen,
    contains,
    data_url,
    encode_png,
)

NOTES: Box = (8, 24, 308, 392)
STOCK: Box = (320, 24, 632, 392)
BUTTONS: dict[str, Box] = {
    "Previous": (20, 352, 100, 376),
    "Next": (108, 352, 188, 376),
    "Copy number": (196, 352, 296, 376),
    "Find": (400, 150, 470, 172),
    "Save": (480, 150, 550, 172),
}
FIELDS: dict[str, Box] = {
    "Number": (400, 56, 610, 76),
    "Quantity": (400, 86, 610, 106),
    "Place": (400, 116, 610, 136),
}


@dataclass(frozen=True)
class DeliveryNote:
    """What a delivery note says."""

    number: str
    supplier: str
    article: str
    quantity: int
    place: str


class Desktop(DesktopBackend):
    """The state of both programs, the keyboard focus and the clipboard."""

    def __init__(self, notes: Sequence[DeliveryNote], full: dict[str, str]) -> None:
        self.notes, self.full = notes, full
        self.shown = 0
        self.focus = "Number"
        self.selected = True
        self.values = dict.fromkeys(FIELDS, "")
        self.booked: dict[str, tuple[str, str, str]] = {}
        self.status = "Ready."
        self.clipboard: str | None = None

    def screenshot(self, job: Job) -> Image:
        """Draw the screen."""
        del job
        screen = Screen()
        screen.text(10, 6, "Goods receipt")
        self._draw_note(screen)
        self._draw_stock(screen)
        return screen.image

    def type_text(self, text: str, job: Job, check: WindowCheck) -> None:
        """Type into the focused field; Tab moves to the next one, Return saves."""
        del job
        check("Stock")
        for key in text:
            if key == "\t":
                names = list(FIELDS)
                self._set_focus(names[(names.index(self.focus) + 1) % len(names)])
            elif key == "\n":
                self._press("Save")
            else:
                kept = "" if self.selected else self.values[self.focus]
                self.values[self.focus], self.selected = kept + key, False

    def click(self, x: int, y: int, button: str, count: int, job: Job, check: WindowCheck) -> None:
        """Press the button, or focus the field, at a position."""
        del button, count, job
        check("Delivery notes" if contains(NOTES, x, y) else "Stock")
        for name, box in BUTTONS.items():
            if contains(box, x, y):
                self._press(name)
        for name, box in FIELDS.items():
            if contains(box, x, y):
                self._set_focus(name)

    def get_clipboard(self, job: Job) -> str | None:
        """Return the text of the clipboard."""
        del job
        return self.clipboard

    def set_clipboard(self, text: str, job: Job) -> None:
        """Replace the text of the clipboard."""
        del job
        self.clipboard = text

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _set_focus(self, field: str) -> None:
        self.focus, self.selected = field, True

    def _press(self, button: str) -> None:
        actions: dict[str, Callable[[], None]] = {
            "Previous": lambda: self._show(self.shown - 1),
            "Next": lambda: self._show(self.shown + 1),
            "Copy number": self._copy,
            "Find": self._find,
            "Save": self._save,
        }
        actions[button]()

    def _show(self, number: int) -> None:
        self.shown = max(0, min(len(self.notes) - 1, number))

    def _copy(self) -> None:
        self.clipboard = self.notes[self.shown].number

    def _find(self) -> None:
        number = self.values["Number"]
        if number not in self.booked:
            self.status = f"There is no entry for {number}."
            return
        entry, self.values["Quantity"], self.values["Place"] = self.booked[number]
        self.status = f"Entry {entry} found."

    def _save(self) -> None:
        number, quantity, place = self.values.values()
        if place in self.full:
            self.status = f"Not saved: place {place} is full. Free nearby: {self.full[place]}."
            return
        entry = self.booked[number][0] if number in self.booked else f"E-{2041 + len(self.booked)}"
        verb = "changed" if number in self.booked else "saved"
        self.booked[number] = (entry, quantity, place)
        self.status = f"Entry {entry} {verb}."
        self.values = dict.fromkeys(FIELDS, "")
        self._set_focus("Number")

    def _draw_note(self, screen: Screen) -> None:
        note = self.notes[self.shown]
        screen.window(NOTES, f"Delivery note {self.shown + 1} of {len(self.notes)}")
        rows = (
            ("Number", note.number),
            ("Supplier", note.supplier),
            ("Article", note.article),
            ("Quantity", str(note.quantity)),
            ("Place", note.place),
        )
        for line, (label, value) in enumerate(rows):
            screen.text(20, 56 + 2 * LINE * line, label)
            screen.text(90, 56 + 2 * LINE * line, value)
        for name in ("Previous", "Next", "Copy number"):
            screen.button(BUTTONS[name], name)

    def _draw_stock(self, screen: Screen) -> None:
        screen.window(STOCK, "Stock")
        for name, box in FIELDS.items():
            screen.text(330, box[1] + 4, name)
            screen.field(box, self.values[name], focused=name == self.focus)
        for name in ("Find", "Save"):
            screen.button(BUTTONS[name], name)
        for line, text in enumerate(textwrap.wrap(self.status, 48)):
            screen.text(330, 184 + LINE * line, text)
        screen.text(330, 224, "Entries")
        for line, (number, booked) in enumerate(self.booked.items()):
            entry, quantity, place = booked
            text = f"{entry}  {number:<12}{quantity:>6}  {place}"
            screen.text(330, 240 + LINE * line, text)


class Tools:
    """The tools of ``ctxlab serve desktop`` on a simulated desktop."""

    def __init__(self, desktop: Desktop) -> None:
        self._tools = DesktopTools(allow=("type", "click", "clipboard"), clock=lambda: 0.0)
        self._tools.backend, self._tools.job = desktop, Job()

    def execute(self, name: str, arguments: dict[str, Any]) -> str | tuple[ContentPart, ...]:
        """Run a tool and return its result as an agent stores it."""
        if name == "take_screenshot":
            image = self._tools.backend.screenshot(self._tools.job)
            said = {"type": "text", "text": f"{WIDTH} × {HEIGHT} pixels, scale 1"}
            return said, {"type": "image_url", "image_url": {"url": data_url(encode_png(image))}}
        answer = getattr(self._tools, name)(**arguments)
        return str(answer.text) if isinstance(answer, ClipboardText) else dump_json(asdict(answer))
