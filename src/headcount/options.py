"""Which options do several commands of the command line share?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Chart", "GpuName", "Gpus", "Html", "Json", "Markdown", "NoColor", "Observed", "Price", "Sets", "Units"]

Json = Annotated[bool, typer.Option("--json", help="Print the stable JSON form (docs/json.md).")]
Sets = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one key of the job; may be repeated.")
]
Gpus = Annotated[
    int | None, typer.Option("--gpus", min=1, max=65536, help="Number of GPUs; left out: the fewest that fit.")
]
GpuName = Annotated[str | None, typer.Option("--gpu", help="Kind of card, e.g. h100-sxm (headcount facts gpus).")]
Price = Annotated[float | None, typer.Option("--price", min=0, help="Dollars per GPU-hour instead of the dated table.")]
Units = Annotated[str, typer.Option("--units", help="gib (2^30), gb (10^9) or both.")]
Observed = Annotated[
    str | None,
    typer.Option(
        "--observed",
        metavar="KEY=VALUE,… or FILE",
        help="What you measured, e.g. decode_tokens_per_s=9000,scope=aggregate,concurrency=512: refits the model.",
    ),
]
Chart = Annotated[
    Path | None, typer.Option("--chart", metavar="FILE", help="Draw bytes and seconds: out.svg or out.png.")
]
Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="One page with pictures and derivations.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print Markdown for a design document.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="Plain text.")]
