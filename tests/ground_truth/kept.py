"""What one more block keeps between forward and backward: the difference of a three- and a two-layer model."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.ground_truth.models import build
from tests.ground_truth.tracker import Tracker


def kept_per_block(family: str, *, rows: int, row_tokens: int, **how) -> int:
    """Bytes alive after the forward pass that a third layer adds."""
    three, two = (_kept(family, layers, rows, row_tokens, how) for layers in (3, 2))
    return three - two


def _kept(family: str, layers: int, rows: int, row_tokens: int, how: dict) -> int:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    net = build(family, mode=mode, layers=layers, **how)
    with mode:
        token_BT = torch.zeros(rows, row_tokens, dtype=torch.long)
        with Tracker([*net.states, token_BT]) as tracker:
            loss = net.model(token_BT, use_cache=False).logits.sum()
            kept = tracker.live
            del loss
    return kept
