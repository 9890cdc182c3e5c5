"""How much memory does one group of GPUs need at its worst instant, by each of the four counters, and does it fit?"""

from __future__ import annotations

from headcount.estimate.overhead import levels, reserved_extra
from headcount.facts.calibration import factor
from headcount.facts.gpu import Gpu
from headcount.job.job import Job
from headcount.ledger.predicted import Band, Footprint, Moment, Row, largest
from headcount.plan.passes import gathered
from headcount.plan.phases import host_load_row, phase_moments
from headcount.plan.state_rows import host_state_rows
from headcount.units import bytes_text
from headcount.vocabulary import Level, Phase, Verdict, phases_of

__all__ = ["footprint", "footprints", "needed_bytes", "tightness", "why_not"]

# What the allocator cannot win back by flushing its cache: rounding to 512-byte and 2-MiB blocks, workspaces of cuBLAS.
# Near the limit the fragmentation surcharge of the reserved level does not decide. Published sweeps (docs/evidence.md):
# the largest allocated peak that ran was 94.4 % of its card, the smallest that failed 95.4 %.
_ALLOCATOR_SLACK = (1.042, 1.045, 1.05)

_STATE = ("weights", "adapters", "gradients", "master weights", "optimizer moments")

_FRAGMENTING = ("checkpoints", "kept blocks", "live block", "gradients inside the block", "activations")


def footprints(job: Job) -> tuple[Footprint, ...]:
    """Every group of GPUs of the job."""
    return tuple(footprint(job, group) for group in job.layouts)


def why_not(job: Job) -> str:
    """Why a job does not surely fit; empty when it does."""
    for group in job.layouts:
        if tightness(job, group)[0] is not Verdict.FITS:
            return f"{group}: {footprint(job, group).because}"
    return ""


def tightness(job: Job, group: str) -> tuple[Verdict, Band, Moment]:
    """The verdict alone, with the bytes that decide it and the worst moment: what a search asks a thousand times."""
    moments = _moments(job, group)
    worst = largest(moments)
    need = needed_bytes(moments)
    verdict, _ = _verdict(need, job.gpu, worst)
    if job.host_bytes_per_node is not None and _host_verdict(job, _hosts(job, group)):
        verdict = Verdict.DOES_NOT_FIT
    return verdict, need, worst


def _phases(job: Job) -> list[Phase]:
    return [phase for phase in phases_of(job.algorithm) if _happens(job, phase)]


def _moments(job: Job, group: str) -> tuple[Moment, ...]:
    return tuple(moment for phase in _phases(job) for moment in phase_moments(job, group, phase) if moment.rows)


def _hosts(job: Job, group: str) -> tuple[Moment, ...]:
    return tuple(moment for phase in _phases(job) for moment in _host(job, group, phase))


def footprint(job: Job, group: str) -> Footprint:
    """All moments of a group, its levels at the worst of them, and the verdict."""
    moments = _moments(job, group)
    need = needed_bytes(moments)
    verdict, because = _verdict(need, job.gpu, largest(moments))
    hosts = _hosts(job, group)
    host_verdict = _host_verdict(job, hosts)
    return Footprint(
        group=group,
        gpus=job.layouts[group].gpus,
        gpu=job.gpu.name,
        layout=job.layouts[group].text,
        moments=moments,
        host_moments=hosts,
        levels=_levels(moments, job, group),
        capacity_bytes=job.gpu.capacity_bytes,
        host_capacity_bytes=job.host_bytes_per_node,
        verdict=Verdict.DOES_NOT_FIT if host_verdict else verdict,
        because=host_verdict or because,
    )


def _happens(job: Job, phase: Phase) -> bool:
    """The cache pass exists only when log-probs are cached."""
    if phase is not Phase.CACHE:
        return True
    return any(network.placement == "cached" for network in job.networks.values())


def needed_bytes(moments: tuple[Moment, ...]) -> Band:
    """What the card must have at the worst instant: every row, and the allocator's rounding."""
    worst = largest(moments)
    low, middle, high = _ALLOCATOR_SLACK
    ours, all_rows = worst.allocated_bytes, _with_residual(worst, worst.band)
    return Band(all_rows.p10 + ours * (low - 1), all_rows.p50 + ours * (middle - 1), all_rows.p90 + ours * (high - 1))


def _with_residual(moment: Moment, band: Band) -> Band:
    """The band of a moment with what kernels of other libraries keep more or less of activations and logits."""
    transient = sum(row.bytes for row in moment.rows if row.allocator and row.item not in _STATE)
    residual = factor("transient-bytes")
    return band + Band(transient * (residual.p10 - 1), 0, transient * (residual.p90 - 1))


def _levels(moments: tuple[Moment, ...], job: Job, group: str) -> dict[Level, Band]:
    worst = max(moments, key=lambda moment: moment.allocated_bytes)
    allocated = _with_residual(worst, worst.allocated_band)
    activation = sum(row.bytes for row in worst.rows if row.item in _FRAGMENTING)
    plain_logits = sum(row.bytes for row in worst.rows if row.item == "logits")
    extra = reserved_extra(
        activation_bytes=activation,
        plain_logit_bytes=plain_logits,
        sharded=job.layouts[group].gpus > 1,
        expandable=job.kernels.expandable_segments,
        other_stream_bytes=_reduced_gradients(moments, worst) + _gather_buffers(job, worst),
    )
    surcharge = sum(part.value for part in extra.values())
    outside = max((sum(_outside(moment), start=Band.exactly(0)) for moment in moments), key=lambda band: band.p50)
    # The counters peak at instants of their own: the engine's share never meets the update's peak while it sleeps.
    device = max((_device(moment) for moment in moments), key=lambda band: band.p50)
    # The allocator flushes its cache before it fails: reserved bytes end at the card's.
    room = max(0.0, job.gpu.capacity_bytes[1] - outside.p50 - allocated.p50)
    surcharge = min(surcharge, room)
    made = levels(allocated=allocated, extra=Band(0, surcharge, min(2 * surcharge, room)), outside=outside)
    made[Level.DEVICE_USED] = device + Band(0, surcharge, 2 * surcharge) if worst is largest(moments) else device
    return made


def _reduced_gradients(moments: tuple[Moment, ...], worst: Moment) -> float:
    """Gradients that the run holds at some other instant than its worst."""

    def gradients(moment: Moment) -> int:
        return sum(row.bytes for row in moment.rows if row.item == "gradients")

    return max(0, max(map(gradients, moments)) - gradients(worst))


def _gather_buffers(job: Job, worst: Moment) -> float:
    """FSDP's flat all-gather buffers of the root and one block, in the gather stream's pool."""
    network = job.networks.get(worst.acting) if worst.acting else None
    sizes = gathered(network, job.layouts[network.group]) if network else None
    return sizes.compute_bytes * (sizes.root + sizes.block) if sizes else 0.0


def _outside(moment: Moment) -> list[Band]:
    return [row.band for row in moment.rows if not row.allocator]


def _device(moment: Moment) -> Band:
    return _with_residual(moment, moment.band)


def _verdict(need: Band, gpu: Gpu, worst: Moment) -> tuple[Verdict, str]:
    safe, driver = gpu.capacity_bytes
    row = max(worst.rows, key=lambda r: r.bytes)
    where = f"{worst.label}, largest row {_short(row)}"
    figures = f"needs {bytes_text(need.p50)} per GPU ({bytes_text(need.p10)} to {bytes_text(need.p90)})"
    if need.p90 <= safe:
        return Verdict.FITS, f"{figures}, has {bytes_text(safe)}; peak at {where}"
    if need.p10 > driver:
        return Verdict.DOES_NOT_FIT, f"{figures}, has {bytes_text(driver)}; peak at {where}"
    return Verdict.UNCERTAIN, f"{figures}, between {bytes_text(safe)} and {bytes_text(driver)}; peak at {where}"


def _short(row: Row) -> str:
    return f"{row.role or 'GPU'} {row.item} {bytes_text(row.bytes)}"


def _host(job: Job, group: str, phase: Phase) -> list[Moment]:
    rows = host_state_rows(job, group, phase)
    if phase is Phase.LOAD:
        rows = [*host_load_row(job, group), *rows]
    return [Moment(phase=phase, name="host", acting=None, rows=tuple(rows))] if rows else []


def _host_verdict(job: Job, hosts: tuple[Moment, ...]) -> str:
    if job.host_bytes_per_node is None or not hosts:
        return ""
    worst = largest(hosts)
    if worst.bytes <= job.host_bytes_per_node:
        return ""
    return (
        f"host memory: needs {bytes_text(worst.bytes)} per node in {worst.phase}, "
        f"has {bytes_text(job.host_bytes_per_node)}"
    )
