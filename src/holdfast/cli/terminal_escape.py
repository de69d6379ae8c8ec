"""Printing bytes of unknown origin: nothing but text, line ends, tabs and colours reaches a terminal.

Job output may hold anything: sequences that rename the window, write the clipboard, disguise a
link, move the cursor over what was printed before, or turn the reading direction round. They are
removed on the way to a terminal; the bytes in the store, in a pipe or in a file stay as given.
"""

import codecs
import re

# Characters that change the reading direction; the control characters of both sets.
_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufff9-\ufffb"
_SPECIAL = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_BIDI}]")
_PLAIN_SPECIAL = re.compile(f"[\x00-\x1f\x7f-\x9f\u2028\u2029{_BIDI}]")
_UNESCAPED = re.compile(f"[\x7f-\x9f\u2028\u2029{_BIDI}]")  # JSON strings never hold the lower ones
_STRING_END = re.compile("[\x07\x18\x1a\x1b\x9c\n\r]")
_INTERMEDIATES = re.compile("[ -/]*")
_PARAMETERS = re.compile("[ -?]*")
_SGR = re.compile(r"[0-9;:]*\Z")
_SGR_CHARACTERS_MAX = 64

_STRING_STARTS = {"P", "X", "]", "^", "_"}  # DCS, SOS, OSC, PM, APC after an ESC
_C1_STRING_STARTS = {"\x90", "\x98", "\x9d", "\x9e", "\x9f"}  # the same as single characters


class Cleaner:
    """Bytes in, safe text out, in pieces of any size: how they are cut never changes the result.

    It keeps at most one unfinished character and one unfinished colour sequence, so a line of any
    length takes no memory. A control string ends with its line at the latest: an unfinished one
    cannot swallow what follows.
    """

    def __init__(self, *, colours: bool = True) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._colours = colours
        self._step = self._text
        self._carriage_return = False
        self._parameters = ""
        self._tinted = False

    def feed(self, data: bytes) -> str:
        """Return the safe text of the next piece."""
        return self._clean(self._decoder.decode(data))

    def finish(self) -> str:
        """Return what is left at the end; colours that were left on are turned off."""
        rest = self._clean(self._decoder.decode(b"", final=True))
        rest += "\n" if self._carriage_return else ""
        rest += "\x1b[0m" if self._tinted else ""
        self._carriage_return = self._tinted = False
        self._step = self._text
        return rest

    def _clean(self, text: str) -> str:
        out: list[str] = []
        place = 0
        while place < len(text):
            if self._carriage_return:
                self._carriage_return = False
                out.append("\n")
                if text[place] == "\n":
                    place += 1
                    continue
            place = self._step(text, place, out)
        return "".join(out)

    def _text(self, text: str, place: int, out: list[str]) -> int:
        match = _SPECIAL.search(text, place)
        if match is None:
            out.append(text[place:])
            return len(text)
        out.append(text[place : match.start()])
        special = match.group()
        if special == "\r":
            self._carriage_return = True
        elif special == "\x1b":
            self._step = self._escape
        elif special == "\x9b":
            self._parameters, self._step = "", self._sequence
        elif special in _C1_STRING_STARTS:
            self._step = self._string
        return match.end()

    def _escape(self, text: str, place: int, out: list[str]) -> int:
        """Right after ESC: choose the kind of sequence."""
        character = text[place]
        if character == "[":
            self._parameters, self._step = "", self._sequence
        elif character in _STRING_STARTS:
            self._step = self._string
        elif " " <= character <= "/":
            self._step = self._charset
        else:
            self._step = self._text
            if not "0" <= character <= "~":
                return place
        return place + 1

    def _charset(self, text: str, place: int, out: list[str]) -> int:
        """ESC, intermediates, one final character: such as a change of the character set."""
        end = _INTERMEDIATES.match(text, place).end()  # type: ignore[union-attr]  # as above
        if end > place:
            return end
        self._step = self._text
        return place + ("0" <= text[place] <= "~")

    def _sequence(self, text: str, place: int, out: list[str]) -> int:
        """CSI, parameters, one final character: kept when it is a plain `m`, a colour."""
        end = _PARAMETERS.match(text, place).end()  # type: ignore[union-attr]  # may match nothing
        if end > place:
            room = _SGR_CHARACTERS_MAX + 1 - len(self._parameters)
            self._parameters += text[place : min(end, place + room)]
            return end
        character = text[place]
        self._step = self._text
        if not "@" <= character <= "~":
            return place
        short = len(self._parameters) <= _SGR_CHARACTERS_MAX
        if character == "m" and self._colours and short and _SGR.match(self._parameters):
            out.append(f"\x1b[{self._parameters}m")
            self._tinted = self._parameters.strip("0;") != ""
        return place + 1

    def _string(self, text: str, place: int, out: list[str]) -> int:
        """Inside OSC, DCS and the like: skip to its end, which no line end lies before."""
        match = _STRING_END.search(text, place)
        if match is None:
            return len(text)
        if match.group() == "\x1b":
            self._step = self._string_escape
            return match.end()
        self._step = self._text
        return match.start() if match.group() in "\n\r" else match.end()

    def _string_escape(self, text: str, place: int, out: list[str]) -> int:
        """ESC inside a string: with a backslash it is the end, else another sequence begins."""
        self._step = self._text if text[place] == "\\" else self._escape
        return place + (text[place] == "\\")


def plain(text: str) -> str:
    """Return one line of safe text without colours: for names, reasons and other cells of a table."""
    if text.isascii() and text.isprintable():  # most are; a table of a million rows is all such
        return text.strip()
    cleaner = Cleaner(colours=False)
    clean = cleaner.feed(text.encode("utf-8", "replace")) + cleaner.finish()
    return _PLAIN_SPECIAL.sub(" ", clean).strip()


def safe_text(text: str) -> str:
    """Return safe text of several lines, without colours."""
    cleaner = Cleaner(colours=False)
    return cleaner.feed(text.encode("utf-8", "replace")) + cleaner.finish()


def json_text(document: bytes) -> str:
    """Return JSON as text, unchanged in meaning, with what a terminal might act on as \\uXXXX."""
    return _UNESCAPED.sub(lambda found: f"\\u{ord(found.group()):04x}", document.decode())
