"""SVG by hand: the few shapes that the pictures of the documentation are made of."""

from __future__ import annotations

from html import escape

INK, FAINT, LINE = "#0f172a", "#64748b", "#cbd5e1"
TEAL, RED, AMBER, BAND = "#0f766e", "#b91c1c", "#b45309", "#f1f5f9"


class Drawing:
    """A picture that grows shape by shape."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self.width, self.height = width, height
        size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
        letters = 'font-family="system-ui, sans-serif" font-size="12"'
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {letters} role="img">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width:g}" height="{height:g}" fill="#ffffff"/>',
        ]

    def text(
        self, x: float, y: float, words: str, *, fill: str = INK, anchor: str = "start", bold: bool = False
    ) -> None:
        """Words; x is their start, middle or end."""
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" fill="{fill}" text-anchor="{anchor}"{weight}>{escape(words)}</text>'
        )

    def box(self, x: float, y: float, width: float, height: float, *, fill: str = BAND, line: str = "none") -> None:
        """A rectangle with round corners."""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" fill="{fill}" stroke="{line}"/>'
        )

    def line(
        self, points: list[tuple[float, float]], *, stroke: str = LINE, wide: float = 1, dashed: bool = False
    ) -> None:
        """A line through points."""
        way = " ".join(f"{x:g},{y:g}" for x, y in points)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(f'<polyline points="{way}" fill="none" stroke="{stroke}" stroke-width="{wide:g}"{dash}/>')

    def dot(self, x: float, y: float, *, fill: str = TEAL, hollow: bool = False) -> None:
        """A small circle."""
        inside = "#ffffff" if hollow else fill
        self._parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="5.5" fill="{inside}" stroke="{fill}" stroke-width="2"/>')

    def arrow(self, x: float, y: float, to: float, *, stroke: str = FAINT) -> None:
        """A level arrow to the right."""
        self.line([(x, y), (to - 6, y)], stroke=stroke, wide=1.5)
        self._parts.append(f'<path d="M{to - 7:g},{y - 4:g} L{to:g},{y:g} L{to - 7:g},{y + 4:g} Z" fill="{stroke}"/>')

    def svg(self) -> str:
        """The file."""
        return "\n".join([*self._parts, "</svg>", ""])
