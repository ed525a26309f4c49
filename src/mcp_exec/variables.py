"""[leaf] One variable of the environment -> one validated value."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from mcp_exec.address import Address, parse_address
from mcp_exec.errors import ConfigError

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
_T = TypeVar("_T")
_E = TypeVar("_E", bound=enum.Enum)


def refusal(name: str, value: str, accepted: str) -> ConfigError:
    """The one line that an operator gets for a value that cannot be used."""
    return ConfigError(f"MCP_EXEC_{name}={value!r} cannot be used: accepted is {accepted}")


@dataclass(frozen=True, slots=True)
class Reader:
    """Asks for variables by their names without the prefix, and remembers which. Its errors are ConfigError."""

    environ: Mapping[str, str]
    asked: set[str] = field(default_factory=set)

    def get(self, name: str) -> str | None:
        """The text as it is; None where it is not set."""
        self.asked.add(name)
        return self.environ.get(f"MCP_EXEC_{name}")

    def unknown(self) -> tuple[str, ...]:
        """Variables that look like ours and were never asked for."""
        ours = {name.removeprefix("MCP_EXEC_") for name in self.environ if name.startswith("MCP_EXEC_")}
        return tuple(f"MCP_EXEC_{name}" for name in sorted(ours - self.asked))

    def text(self, name: str, default: str) -> str:
        """Any text."""
        text = self.get(name)
        return default if text is None else text

    def _number(self, name: str, default: _T, parse: Callable[[str], _T], ok: Callable[[_T], bool], words: str) -> _T:
        text = (self.get(name) or "").strip()
        if not text:
            return default
        try:
            value = parse(text)
        except (ValueError, KeyError):
            raise refusal(name, text, words) from None
        if not ok(value):
            raise refusal(name, text, words)
        return value

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        """A whole number in a range, its ends included."""
        return self._number(name, default, int, lambda v: low <= v <= high, f"a whole number from {low} to {high}")

    def real(self, name: str, default: float, low: float, high: float) -> float:
        """A number in a range, its ends included."""
        return self._number(name, default, float, lambda v: low <= v <= high, f"a number from {low} to {high}")

    def size(self, name: str, default: int, low: int, high: int) -> int:
        """Bytes: a number, or one with k, m or g."""
        words = f"bytes, or a number with k, m or g, from {low} to {high} bytes"
        return self._number(name, default, _parse_size, lambda v: low <= v <= high, words)

    def address(self, name: str, default: str) -> Address:
        """Where to listen."""
        words = "host:port, :port for every interface, [IPv6 address]:port"
        return self._number(name, parse_address(default), parse_address, lambda _: True, words)

    def flag(self, name: str) -> bool:
        """True or false."""
        return self._number(name, False, lambda text: _FLAGS[text.lower()], lambda _: True, "true or false")

    def words(self, name: str, ok: Callable[[str], bool], meaning: str) -> frozenset[str]:
        """A comma-separated list, lower case, each of which must be `ok`."""
        found = [part.strip().lower() for part in self.text(name, "").split(",")]
        return self._number(
            name,
            frozenset(),
            lambda _: frozenset(filter(None, found)),
            lambda v: all(map(ok, v)),
            f"a list of {meaning}",
        )

    def secret(self, name: str) -> str:
        """Never quoted. A header cannot carry what is refused here, so that no request would match."""
        text = self.text(name, "")
        if text != text.strip() or not text.isprintable():
            raise ConfigError(f"MCP_EXEC_{name} cannot be used: accepted is text without white space at its ends")
        return text

    def choice(self, name: str, kind: type[_E], default: _E) -> _E:
        """One of the values of an enumeration."""
        words = ", ".join(str(member.value) for member in kind)
        return self._number(name, default, lambda text: kind(text.lower()), lambda _: True, words)

    def cgroup(self, name: str) -> str:
        """auto, off or an absolute path."""
        words = "auto, off, or the absolute path of a cgroup v2 directory"
        return self._number(name, "auto", str, lambda v: v in ("auto", "off") or v.startswith("/"), words)

    def names(self, name: str, default: tuple[str, ...], accepted: tuple[str, ...] = ()) -> tuple[str, ...]:
        """A comma-separated list of module names, or of those that are accepted."""
        text = self.get(name)
        if text is None:
            return default
        found = tuple(part.strip() for part in text.split(",") if part.strip())
        if accepted and not set(found) <= set(accepted):
            raise refusal(name, text, "a comma-separated list of " + ", ".join(accepted))
        if not accepted and not all(part.replace(".", "_").isidentifier() for part in found):
            raise refusal(name, text, "a comma-separated list of module names")
        return found


_FLAGS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def is_host(text: str) -> bool:
    """Whether a Host header can be this."""
    return not any(character in text for character in "/@ *")


def is_origin(text: str) -> bool:
    """Whether an Origin header can be this: RFC 6454."""
    scheme, _, authority = text.partition("://")
    return text == "null" or (scheme.isalpha() and bool(authority) and is_host(authority))


def _parse_size(text: str) -> int:
    number = text.lower().removesuffix("b").removesuffix("i")
    factor = {"k": KIB, "m": MIB, "g": GIB}.get(number[-1:], 1)
    return int(number[:-1] if factor > 1 else number) * factor
