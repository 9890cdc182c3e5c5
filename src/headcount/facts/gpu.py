"""What can one GPU hold, read, compute and say to its neighbours?"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from headcount.errors import UnknownFact, nearest
from headcount.units import GB, MIB

__all__ = ["Gpu", "find_gpu", "gpus"]

_TERA = 1e12

# What CUDA keeps of the driver's total where the row does not say: the reserved figures that are known (448–947 MiB)
# are 0.5–2.9 % of their cards; the bound below covers them all.
_ASSUMED_RESERVED_MIB = 609
# Capacity of a card whose driver figure nobody published: between 94 % (ECC on 48 GB Ampere) and 100 % of the label.
_LABEL_FRACTIONS = (0.94, 1.0)

# Spoken names that could be several cards.
_AMBIGUOUS: Mapping[str, tuple[str, ...]] = {
    "a100": ("a100-sxm4-40gb", "a100-sxm4-80gb", "a100-pcie-40gb", "a100-pcie-80gb"),
    "v100": ("v100-sxm2-16gb", "v100-sxm2-32gb", "v100-pcie-32gb"),
    "gh200": ("gh200-96gb", "gh200-144gb"),
    "rtx-6000": ("rtx-a6000", "rtx-6000-ada", "rtx-pro-6000"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One kind of card. Rates are dense (no sparsity) and per direction; None is unknown and refused when needed."""

    id: str
    name: str
    vendor: str
    architecture: str
    marketed_bytes: int
    reported_bytes: int | None
    reserved_bytes: int | None
    usable_bytes: int | None  # published as usable where that is less than the driver's figure (B200)
    bytes_per_s: float | None
    flops_per_s: Mapping[str, float]  # dense peak by dtype: fp32, fp16, bf16, fp8, fp4
    unsupported: tuple[str, ...] = ()
    link_bytes_per_s: float | None = None
    link_gpus: int | None = None
    pcie_bytes_per_s: float | None = None
    gpus_per_node: int = 8
    tdp_w: float | None = None
    aliases: tuple[str, ...] = ()
    note: str = ""
    source: str = ""
    date: str = ""
    assumed: tuple[str, ...] = field(default=())

    @property
    def capacity_bytes(self) -> tuple[int, int]:
        """(safe, driver's figure): a peak below the first fits, above the second does not, between is uncertain.

        The driver's figure is what it reports less what it reserves. Where a smaller size is published as usable
        (B200: 180 × 10⁹ of 192.3 × 10⁹ bytes) that is the safe one.
        """
        if self.reported_bytes is None:
            low, high = _LABEL_FRACTIONS
            return int(self.marketed_bytes * low), int(self.marketed_bytes * high)
        reserved = _ASSUMED_RESERVED_MIB * MIB if self.reserved_bytes is None else self.reserved_bytes
        driver = self.reported_bytes - (0 if self.usable_bytes else reserved)
        return min(self.usable_bytes or driver, driver), driver

    @property
    def capacity_note(self) -> str:
        """How the capacity was made, in words."""
        if self.reported_bytes is None:
            return f"{self.name}: no published driver figure; 94–100 % of the label is assumed"
        if self.usable_bytes:
            return (
                f"{self.name}: {self.marketed_bytes / GB:g} GB architectural, {self.usable_bytes / GB:g} GB published "
                f"as usable, {self.reported_bytes / GB:.1f} GB reported by the driver; between the two is uncertain"
            )
        if self.reserved_bytes is None:
            return f"{self.name}: driver's total less {_ASSUMED_RESERVED_MIB} MiB assumed reserved"
        return f"{self.name}: driver's total less {self.reserved_bytes // MIB} MiB reserved"

    def peak_flops_per_s(self, dtype: str) -> float:
        """Dense peak of a dtype; refused when unknown or when the card has no such unit."""
        if dtype in self.flops_per_s:
            return self.flops_per_s[dtype]
        why = "has no tensor unit for it" if dtype in self.unsupported else "has no figure in gpus.toml"
        known = ", ".join(self.flops_per_s)
        raise UnknownFact.one(
            f"gpu {self.id}", f"{dtype} peak: the card {why} (known: {known})", f"add {dtype}_tflops with its source"
        )

    def bandwidth(self) -> float:
        """HBM bytes per second; refused when unknown."""
        if self.bytes_per_s is None:
            raise UnknownFact.one(
                f"gpu {self.id}", "memory bandwidth is unknown", "add bandwidth_gb_per_s with a source"
            )
        return self.bytes_per_s


@cache
def gpus() -> Mapping[str, Gpu]:
    """Every card of gpus.toml by id."""
    rows = tomllib.loads(files("headcount.facts.data").joinpath("gpus.toml").read_text("utf-8"))
    return {key: _gpu(key, row) for key, row in rows.items()}


def _gpu(key: str, row: Mapping[str, object]) -> Gpu:
    def scaled(name: str, unit: float) -> float | None:
        value = row.get(name)
        return float(value) * unit if isinstance(value, int | float) else None

    def whole(name: str, unit: float) -> int | None:
        value = scaled(name, unit)
        return None if value is None else round(value)

    flops = {dtype: scaled(f"{dtype}_tflops", _TERA) for dtype in ("fp32", "fp16", "bf16", "fp8", "fp4")}
    return Gpu(
        id=key,
        name=str(row["name"]),
        vendor=str(row["vendor"]),
        architecture=str(row["architecture"]),
        marketed_bytes=whole("marketed_gb", GB) or 0,
        reported_bytes=whole("reported_mib", MIB),
        reserved_bytes=whole("reserved_mib", MIB),
        usable_bytes=whole("usable_gb", GB),
        bytes_per_s=scaled("bandwidth_gb_per_s", GB),
        flops_per_s={dtype: value for dtype, value in flops.items() if value is not None},
        unsupported=tuple(_strings(row.get("unsupported"))),
        link_bytes_per_s=scaled("link_gb_per_s", GB),
        link_gpus=whole("link_gpus", 1),
        pcie_bytes_per_s=scaled("pcie_gb_per_s", GB),
        gpus_per_node=whole("gpus_per_node", 1) or 8,
        tdp_w=scaled("tdp_w", 1),
        aliases=tuple(_strings(row.get("aliases"))),
        note=str(row.get("note", "")),
        source=str(row["source"]),
        date=str(row["date"]),
    )


def _strings(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []


def _spoken(name: str) -> str:
    """`H100-80GB`, `h100 80gb`, `NVIDIA H100_80GB (SXM)` → one spelling."""
    plain = name.lower().replace("nvidia", "").replace("(", " ").replace(")", " ")
    return "-".join(plain.replace("_", "-").replace("-", " ").split())


@cache
def _spellings() -> Mapping[str, str]:
    return {_spoken(alias): key for key, gpu in gpus().items() for alias in (key, gpu.name, *gpu.aliases)}


def find_gpu(name: str) -> Gpu:
    """The card of a spoken name.

    Raises:
        UnknownFact: the name is unknown (nearest ones named) or could be several cards (all of them listed).
    """
    spoken = _spoken(name)
    if spoken in _spellings():
        return gpus()[_spellings()[spoken]]
    if spoken in _AMBIGUOUS:
        choices = ", ".join(_AMBIGUOUS[spoken])
        raise UnknownFact.one("gpu", f"{name!r} could be several cards", f"say which: {choices}")
    near = nearest(spoken, _spellings())
    raise UnknownFact.one(
        "gpu",
        f"{name!r} is not in gpus.toml; a peak is never guessed. {near}".strip(),
        "`headcount facts gpus` lists them; a new one is a row in facts/data/gpus.toml with its source",
    )
