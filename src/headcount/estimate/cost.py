"""What does holding GPUs for a time cost?"""

from __future__ import annotations

from headcount.ledger.predicted import Band

__all__ = ["dollars", "energy_dollars", "rented_gpus"]


def rented_gpus(gpus: int, *, instance_gpus: int) -> int:
    """Whole instances: a provider that sells eights rents sixteen to who needs nine."""
    return -(-gpus // instance_gpus) * instance_gpus


def dollars(hours: Band, *, gpus: int, usd_per_gpu_hour: float, instance_gpus: int = 1) -> Band:
    """GPUs held × wall-clock × price, idle ones included."""
    return hours.scaled(rented_gpus(gpus, instance_gpus=instance_gpus) * usd_per_gpu_hour)


def energy_dollars(hours: Band, *, gpus: int, watts: float, usd_per_kwh: float) -> Band:
    """GPUs × TDP × wall-clock × price of a kilowatt-hour: an upper bound, cards draw less than their limit."""
    return hours.scaled(gpus * watts / 1000 * usd_per_kwh)
