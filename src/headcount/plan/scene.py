"""What is a picture made of? Boxes, strokes, dots and words in named colours; written as SVG, or as PNG by matplotlib.

One scene serves every face: an SVG file, the page (light and dark by the same names) and PNG. Lengths are pixels, y
grows downward, and the text of a label is escaped where it is written.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Literal

from headcount.errors import InputError
from headcount.vocabulary import Role

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "DARK",
    "LIGHT",
    "Box",
    "Dot",
    "Mark",
    "Scene",
    "Stroke",
    "Theme",
    "Words",
    "file_svg",
    "page_svg",
    "palette_css",
    "png",
    "role_ink",
    "stacked",
    "width_of",
]

Theme = Mapping[str, str]

# Okabe and Ito's palette (jfly.uni-koeln.de/color): told apart with every kind of colour blindness. One colour a role.
_ROLES: Theme = {
    "policy": "#0072b2",
    "critic": "#e69f00",
    "reference": "#009e73",
    "reward": "#cc79a7",
    "generator": "#56b4e9",
}
LIGHT: Theme = {
    **_ROLES,
    "gpu": "#8a9099",
    "on-dark": "#ffffff",
    "on-light": "#10151a",
    "paper": "#ffffff",
    "ink": "#1b1f24",
    "soft": "#5b6470",
    "line": "#dfe3e8",
    "card": "#c24e00",
    "good": "#00705a",
    "bad": "#b3301a",
}
DARK: Theme = {
    **_ROLES,
    "policy": "#1f7fc0",
    "gpu": "#8a9099",
    "on-dark": "#ffffff",
    "on-light": "#10151a",
    "paper": "#14181d",
    "ink": "#e6e9ee",
    "soft": "#9aa4b1",
    "line": "#2e363f",
    "card": "#ff9a4d",
    "good": "#4fd0ad",
    "bad": "#ff8a70",
}
_SLIM, _BROAD = frozenset(" .,:;|'ijlftrI()[]/-·"), frozenset("mwMWOQ%@—")
_FONT = "system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif"


@dataclass(frozen=True, slots=True)
class Box:
    """A filled rectangle; `hover` is what a pointer resting on it reads."""

    x: float
    y: float
    width: float
    height: float
    ink: str
    hover: str = ""


@dataclass(frozen=True, slots=True)
class Stroke:
    """A straight line from (x, y) to (x + dx, y + dy)."""

    x: float
    y: float
    dx: float
    dy: float
    ink: str
    thick: float = 1.0
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Dot:
    """A filled circle around (x, y)."""

    x: float
    y: float
    radius: float
    ink: str


@dataclass(frozen=True, slots=True)
class Words:
    """One line of text on the baseline `y`."""

    x: float
    y: float
    text: str
    ink: str = "ink"
    size: float = 11.0
    anchor: Literal["start", "middle", "end"] = "start"
    bold: bool = False


Mark = Box | Stroke | Dot | Words


@dataclass(frozen=True, slots=True)
class Scene:
    """Marks on a sheet; `label` says in words what is to be seen."""

    width: float
    height: float
    marks: tuple[Mark, ...]
    label: str = ""

    def at(self, x: float, y: float) -> Iterator[Mark]:
        """The marks, moved: for a larger sheet."""
        for mark in self.marks:
            yield replace(mark, x=mark.x + x, y=mark.y + y)


def role_ink(role: Role | None) -> str:
    """The colour's name of a role; None is the GPU itself (context, NCCL) and what belongs to no network."""
    return str(role) if role is not None else "gpu"


def width_of(text: str, size: float, *, bold: bool = False) -> float:
    """What a line of text takes, about: DejaVu Sans, the widest of the fonts that a picture meets."""
    ems = sum(0.35 if char in _SLIM else 0.9 if char in _BROAD else 0.64 for char in text)
    return ems * size * (1.1 if bold else 1.0)


def stacked(scenes: Iterable[Scene], *, label: str, gap: float = 18.0, margin: float = 16.0) -> Scene:
    """The scenes one below the other on one sheet."""
    marks: list[Mark] = []
    width, y = 0.0, margin
    for scene in scenes:
        marks += scene.at(margin, y)
        width = max(width, scene.width)
        y += scene.height + gap
    return Scene(width + 2 * margin, y - gap + margin, tuple(marks), label)


# --- SVG -------------------------------------------------------------------------------------------------------------


def palette_css() -> str:
    """`f-NAME` fills and `s-NAME` strokes; the reader's system chooses between light and dark, print is light."""
    dark = _classes(DARK)
    return f"{_classes(LIGHT)}@media screen and (prefers-color-scheme:dark){{{dark}}}"


def _classes(theme: Theme) -> str:
    return "".join(f".f-{name}{{fill:{value}}}.s-{name}{{stroke:{value}}}" for name, value in theme.items())


def page_svg(scene: Scene, *, classes: str = "") -> str:
    """The scene as an element of a page that carries `palette_css`."""
    return _svg(scene, (), f' class="{classes}"' if classes else "", _bare)


def file_svg(scene: Scene) -> str:
    """The scene as a file of its own: paper under it, its palette inside, light where a viewer reads no style."""
    paper = Box(0, 0, scene.width, scene.height, "paper")
    return _svg(scene, (f"<style>{palette_css()}</style>", _bare_light(paper)), "", _bare_light)


def _svg(scene: Scene, before: Iterable[str], attributes: str, mark_text: Callable[[Mark], str]) -> str:
    width, height = _short(scene.width), _short(scene.height)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{_escaped(scene.label)}"{attributes}'
        f' width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="{_FONT}">'
    )
    return "".join([head, *before, *(mark_text(mark) for mark in scene.marks), "</svg>"])


def _bare(mark: Mark) -> str:
    return _mark(mark, stroke=f'class="s-{mark.ink}"', fill=f'class="f-{mark.ink}"')


def _bare_light(mark: Mark) -> str:
    color = LIGHT[mark.ink]
    return _mark(mark, stroke=f'class="s-{mark.ink}" stroke="{color}"', fill=f'class="f-{mark.ink}" fill="{color}"')


def _mark(mark: Mark, *, stroke: str, fill: str) -> str:
    x, y = _short(mark.x), _short(mark.y)
    match mark:
        case Box():
            size = f'width="{_short(mark.width)}" height="{_short(mark.height)}"'
            hover = f"<title>{_escaped(mark.hover)}</title>" if mark.hover else ""
            return f'<rect x="{x}" y="{y}" {size} {fill}>{hover}</rect>'
        case Stroke():
            ends = f'x1="{x}" y1="{y}" x2="{_short(mark.x + mark.dx)}" y2="{_short(mark.y + mark.dy)}"'
            dashes = ' stroke-dasharray="5 3"' if mark.dashed else ""
            return f'<line {ends} {stroke} stroke-width="{mark.thick:g}"{dashes}/>'
        case Dot():
            return f'<circle cx="{x}" cy="{y}" r="{mark.radius:g}" {fill}/>'
        case Words():
            bold = ' font-weight="600"' if mark.bold else ""
            anchor = f' text-anchor="{mark.anchor}"' if mark.anchor != "start" else ""
            return f'<text x="{x}" y="{y}" {fill} font-size="{mark.size:g}"{anchor}{bold}>{_escaped(mark.text)}</text>'


def _escaped(text: str) -> str:
    """XML knows no control characters, not even escaped ones."""
    return escape("".join(char if char.isprintable() else " " for char in text), quote=True)


def _short(length: float) -> str:
    return f"{length:.1f}".removesuffix(".0")


# --- PNG -------------------------------------------------------------------------------------------------------------

_DOTS_PER_INCH = 96  # one pixel of a scene is one dot of the figure, drawn twice as fine


def png(scene: Scene, *, theme: Theme = LIGHT) -> bytes:
    """The scene at twice its pixels.

    Raises:
        InputError: matplotlib (the extra `charts`) is not installed.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - loads only when a PNG is asked for
    except ImportError:
        what = "PNG is drawn by matplotlib, which is not installed"
        raise InputError.one("--chart", what, "pip install 'headcount[charts]', or a name that ends in .svg") from None
    size = (scene.width / _DOTS_PER_INCH, scene.height / _DOTS_PER_INCH)
    figure = Figure(figsize=size, dpi=_DOTS_PER_INCH, facecolor=theme["paper"])
    _draw(figure, scene, theme)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=2 * _DOTS_PER_INCH, facecolor=theme["paper"])
    return buffer.getvalue()


def _draw(figure: Figure, scene: Scene, theme: Theme) -> None:
    from matplotlib.patches import Circle, Rectangle  # noqa: PLC0415

    axis = figure.add_axes((0, 0, 1, 1), xlim=(0, scene.width), ylim=(scene.height, 0))
    axis.set_axis_off()
    point = 72 / _DOTS_PER_INCH
    for order, mark in enumerate(scene.marks):
        color = theme[mark.ink]
        match mark:
            case Box():
                axis.add_patch(Rectangle((mark.x, mark.y), mark.width, mark.height, color=color, lw=0, zorder=order))
            case Stroke():
                dashes = (0, (5, 3)) if mark.dashed else "solid"
                xs, ys = (mark.x, mark.x + mark.dx), (mark.y, mark.y + mark.dy)
                axis.plot(xs, ys, color=color, lw=mark.thick * point, ls=dashes, solid_capstyle="butt", zorder=order)
            case Dot():
                axis.add_patch(Circle((mark.x, mark.y), mark.radius, color=color, lw=0, zorder=order))
            case Words():
                side = {"start": "left", "middle": "center", "end": "right"}[mark.anchor]
                weight = "bold" if mark.bold else "normal"
                axis.text(
                    mark.x, mark.y, mark.text, color=color, fontsize=mark.size * point, ha=side, va="baseline",
                    fontweight=weight, parse_math=False, zorder=order,
                )  # fmt: skip
