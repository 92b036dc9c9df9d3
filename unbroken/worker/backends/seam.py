"""Where a continued text meets what was already there. Pure.

A chat server that is given the beginning of an answer does one of many things: continues exactly, repeats
all of it first, repeats its last words, adds or swallows white space. `Seam` turns each into the text that
belongs behind the prefix. It never invents text, and holds back only while what has come so far could still
be a repetition."""

from __future__ import annotations

ECHO = 16  # characters that must be the same before a repeated end counts as a repetition and not as the text's own
SHORT_ECHO = 4  # the same for a prefix that is repeated as a whole
WINDOW = 8_192  # characters; how long a repeated end may be


class Seam:
    """Feed it the parts of a continuation, show what it returns, and call `end` after the last part.

    sent: what to give the server. Without the white space at the prefix's end: some servers refuse such a
    prefix, some stop at once (vllm#9547), and tokenised apart from the next word it misleads the model. The
    model then writes that white space again, and it is taken out again here."""

    def __init__(self, prefix: str) -> None:
        self.sent = prefix.rstrip()
        self._tail = prefix[len(self.sent) :]
        self._whole = self.sent.lstrip()
        self._held = ""
        self._open = False
        self._deciding = len(self._whole) >= SHORT_ECHO

    def feed(self, text: str) -> str:
        """What can be shown now."""
        if self._open:
            return text
        if self._deciding:
            self._held += text
            if self._undecided(self._held.lstrip()):
                return ""
            text = self._decide()
        return self._join(text)

    def end(self) -> str:
        """What was still held back, when the server has ended its answer."""
        if not self._deciding:
            return ""
        said = self._held.strip()
        if len(said) >= SHORT_ECHO and self._whole.startswith(said) and len(said) >= min(ECHO, len(self._whole)):
            self._held, self._deciding = "", False  # a repetition that was cut by a limit: nothing new in it
            return ""
        return self._join(self._decide())

    def _undecided(self, said: str) -> bool:
        """Could more text still turn `said` into a longer repetition than it is now?"""
        if not said:
            return True
        if len(said) < len(self._whole) and self._whole.startswith(said):
            return True
        # Somewhere in the window, with an end of at least ECHO characters from there, and that end not yet
        # reached.
        start = max(0, len(self.sent) - WINDOW)
        at = self.sent.find(said, start, len(self.sent) - 1)
        return 0 <= at <= len(self.sent) - ECHO

    def _decide(self) -> str:
        """Cut the repetition off what was held, if it is one."""
        held, self._held, self._deciding = self._held, "", False
        said = held.lstrip()
        if said.startswith(self._whole):
            return said[len(self._whole) :]
        for length in range(min(len(said), len(self.sent), WINDOW), ECHO - 1, -1):
            if said.startswith(self.sent[len(self.sent) - length :]):
                return said[length:]
        return held

    def _join(self, text: str) -> str:
        """Take out what repeats the white space that the prefix already ends with."""
        same = 0
        while same < min(len(text), len(self._tail)) and text[same] == self._tail[same]:
            same += 1
        self._tail = self._tail[same:]
        self._open = not self._tail or same < len(text)
        return text[same:]


class Surrogates:
    """Joins characters whose two UTF-16 halves came in two JSON strings ("\\ud83c" then "\\udf0a").

    A half without its other half becomes U+FFFD: it cannot be encoded, and everything behind us would fail
    on it."""

    def __init__(self) -> None:
        self._half = ""

    def feed(self, text: str) -> str:
        """Whole characters; a first half at the end waits for the next part."""
        if text.isascii() and not self._half:
            return text
        text, self._half = self._half + text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def end(self) -> str:
        """What is left when nothing follows."""
        half, self._half = self._half, ""
        return "\ufffd" if half else ""
