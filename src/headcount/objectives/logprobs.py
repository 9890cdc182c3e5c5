"""How likely was each token, and how spread was the choice?

`logits_*V` at a position already predict the token at that position: the caller shifts. Every result is float32, or
float64 from float64, whatever the logits are: a bf16 log-prob has two digits, and a ratio needs four.

The plain functions take logits. The `linear_*` ones take hidden states and the head's matrix, go through the tokens in
chunks and never hold more than [chunk, V] logits, neither in forward nor in backward; their gradients are accumulated
in float32 over chunks.

Shape letters: N tokens, flat · H hidden width · V vocabulary · B sequences · T tokens · C tokens of a chunk;
`*` any leading axes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from headcount.objectives.reduce import kept, masked_mean

__all__ = [
    "linear_token_logprobs", "linear_token_logprobs_and_entropy", "linear_weighted_logprob", "log_ratio",
    "mean_logprob", "sequence_logprob", "token_entropy", "token_logprobs",
]  # fmt: skip


def token_logprobs(logits_xV: Tensor, token_x: Tensor, *, temperature: float = 1.0) -> Tensor:
    """ℓ = z_y/τ − log Σ exp(z/τ) of the given tokens, in nats; [*] from logits [*, V] and ids [*].

    `temperature` must be the one that the tokens were sampled at: the ratio is taken on the tempered distribution.
    A logit of −inf forbids its token. Raises ValueError for a temperature that is not positive.
    """
    scaled_xV = _wide(logits_xV) / _checked(temperature)
    return scaled_xV.gather(-1, token_x.unsqueeze(-1)).squeeze(-1) - scaled_xV.logsumexp(dim=-1)


def token_entropy(logits_xV: Tensor, *, temperature: float = 1.0) -> Tensor:
    """H = log Σ exp(z) − Σ p·z of the whole distribution at each position, in nats; [*] from [*, V]."""
    scaled_xV = _wide(logits_xV) / _checked(temperature)
    scaled_xV = scaled_xV.clamp(min=_lowest(scaled_xV))
    return scaled_xV.logsumexp(dim=-1) - (scaled_xV.softmax(dim=-1) * scaled_xV).sum(dim=-1)


def linear_token_logprobs(
    hidden_NH: Tensor,
    head_VH: Tensor,
    token_N: Tensor,
    *,
    bias_V: Tensor | None = None,
    temperature: float = 1.0,
    chunk_tokens: int = 1024,
) -> Tensor:
    """`token_logprobs` of hidden·headᵀ + bias, [N]. Keeps no logits: backward makes each chunk's again.

    A bias of −inf forbids a token, in training as in sampling. Four head products (two in backward make gradients).
    """
    logprob_N, _ = _linear(hidden_NH, head_VH, token_N, bias_V, temperature, chunk_tokens, entropy=False)
    return logprob_N


def linear_token_logprobs_and_entropy(
    hidden_NH: Tensor,
    head_VH: Tensor,
    token_N: Tensor,
    *,
    bias_V: Tensor | None = None,
    temperature: float = 1.0,
    chunk_tokens: int = 1024,
) -> tuple[Tensor, Tensor]:
    """`linear_token_logprobs` and `token_entropy` in one pass, both [N] and differentiable."""
    return _linear(hidden_NH, head_VH, token_N, bias_V, temperature, chunk_tokens, entropy=True)


def linear_weighted_logprob(
    hidden_NH: Tensor,
    head_VH: Tensor,
    token_N: Tensor,
    weight_N: Tensor,
    *,
    bias_V: Tensor | None = None,
    temperature: float = 1.0,
    chunk_tokens: int = 1024,
) -> tuple[Tensor, Tensor]:
    """(Σ w·ℓ, ℓ_N): a scalar to differentiate, and the log-probs without gradient.

    For losses whose coefficient of each token is known before the head runs: SFT (w = −1/tokens), on-policy policy
    gradient (w = −Â/tokens), DPO once h is known. Gradients are made inside the forward pass while a chunk's logits are
    alive: three head products instead of four; the price is hidden- and head-shaped gradients held until backward.
    `weight_N` is a constant: it gets no gradient. Tokens of weight 0 add nothing. Differentiable once.
    """
    hidden_NH, head_VH = _as_autocast(hidden_NH, head_VH)
    return _LinearWeightedLogprob.apply(  # pyright: ignore[reportReturnType]
        hidden_NH,
        head_VH,
        bias_V,
        token_N,
        weight_N.detach(),
        _checked(temperature),
        chunk_tokens,
        torch.is_grad_enabled(),  # inside a Function it is always off
    )


def log_ratio(logprob_BT: Tensor, other_logprob_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """ℓ − ℓ' per token in nats, 0 outside the mask; float32 or wider.

    The door to every ratio and KL of this package: what stands in masked slots, NaN and inf included, stops here, in
    value and in gradient. `log_ratio(ℓ, ℓ.detach(), mask)` is the exactly on-policy case: value 0, gradient ∇ℓ.
    """
    return kept(_wide(logprob_BT) - _wide(other_logprob_BT), mask_BT)


def sequence_logprob(logprob_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """log π(y|x) = Σ_t m_t ℓ_t, [B] in nats: completion tokens only."""
    return kept(_wide(logprob_BT), mask_BT).sum(dim=-1)


def mean_logprob(logprob_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """log π(y|x) / |y|, [B] in nats per token; |y| counts the same mask, 0 for an empty completion."""
    return masked_mean(_wide(logprob_BT), mask_BT)


def _linear(
    hidden_NH: Tensor,
    head_VH: Tensor,
    token_N: Tensor,
    bias_V: Tensor | None,
    temperature: float,
    chunk_tokens: int,
    *,
    entropy: bool,
) -> tuple[Tensor, Tensor]:
    hidden_NH, head_VH = _as_autocast(hidden_NH, head_VH)
    return _LinearLogprob.apply(  # pyright: ignore[reportReturnType]
        hidden_NH, head_VH, bias_V, token_N, _checked(temperature), chunk_tokens, entropy
    )


class _LinearLogprob(torch.autograd.Function):
    """(hidden, head, bias, token) → (ℓ, H); H stays 0 unless asked for. Logits live one chunk at a time."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        head_VH: Tensor,
        bias_V: Tensor | None,
        token_N: Tensor,
        temperature: float,
        chunk_tokens: int,
        entropy: bool,
    ) -> tuple[Tensor, Tensor]:
        logprob_N = _wide(hidden_NH.new_zeros(token_N.shape))
        entropy_N = torch.zeros_like(logprob_N)
        for chunk in _chunks(token_N, chunk_tokens):
            logprob_CV = _chunk_logprobs(hidden_NH[chunk], head_VH, bias_V, temperature)
            logprob_N[chunk] = _of_token(logprob_CV, token_N[chunk])
            if entropy:
                entropy_N[chunk] = _entropy(_finite_(logprob_CV))
        ctx.save_for_backward(hidden_NH, head_VH, bias_V, token_N, entropy_N)
        ctx.temperature, ctx.chunk_tokens, ctx.entropy = temperature, chunk_tokens, entropy
        if not entropy:
            ctx.mark_non_differentiable(entropy_N)
        return logprob_N, entropy_N

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad_logprob_N: Tensor, grad_entropy_N: Tensor
    ) -> tuple[Tensor | None, ...]:
        hidden_NH, head_VH, bias_V, token_N, entropy_N = ctx.saved_tensors
        sums = _GradientSums(hidden_NH, head_VH, bias_V, wanted=ctx.needs_input_grad[:3])
        for chunk in _chunks(token_N, ctx.chunk_tokens):
            # ∂ℓ/∂z = 1[y] − p      ∂H/∂z = −p·(log p + H)
            logprob_CV = _chunk_logprobs(hidden_NH[chunk], head_VH, bias_V, ctx.temperature)
            coefficient_CV = -grad_logprob_N[chunk, None]
            if ctx.entropy:
                nats_CV = _finite_(logprob_CV) + entropy_N[chunk, None]
                coefficient_CV = coefficient_CV - nats_CV.mul_(grad_entropy_N[chunk, None])
            grad_CV = logprob_CV.exp_().mul_(coefficient_CV)
            grad_CV.scatter_add_(-1, token_N[chunk, None], grad_logprob_N[chunk, None])
            sums.add(chunk, grad_CV.div_(ctx.temperature))
        return *sums.results(), None, None, None, None


class _LinearWeightedLogprob(torch.autograd.Function):
    """(hidden, head, bias, token, weight) → (Σ w·ℓ, ℓ), with the gradients already made in forward."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        head_VH: Tensor,
        bias_V: Tensor | None,
        token_N: Tensor,
        weight_N: Tensor,
        temperature: float,
        chunk_tokens: int,
        differentiable: bool,
    ) -> tuple[Tensor, Tensor]:
        logprob_N = _wide(hidden_NH.new_zeros(token_N.shape))
        weight_N = weight_N.to(logprob_N.dtype)
        wanted = tuple(differentiable and needed for needed in ctx.needs_input_grad[:3])
        sums = _GradientSums(hidden_NH, head_VH, bias_V, wanted=wanted)
        for chunk in _chunks(token_N, chunk_tokens):
            logprob_CV = _chunk_logprobs(hidden_NH[chunk], head_VH, bias_V, temperature)
            logprob_N[chunk] = _of_token(logprob_CV, token_N[chunk])
            if any(wanted):
                grad_CV = logprob_CV.exp_().mul_(-weight_N[chunk, None])
                grad_CV.scatter_add_(-1, token_N[chunk, None], weight_N[chunk, None])
                sums.add(chunk, grad_CV.div_(temperature))
        ctx.gradients = sums.results()
        ctx.mark_non_differentiable(logprob_N)
        return (weight_N * kept(logprob_N, weight_N != 0)).sum(), logprob_N

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad_sum: Tensor, grad_logprob_N: Tensor
    ) -> tuple[Tensor | None, ...]:
        if ctx.gradients is None:
            raise RuntimeError(
                "linear_weighted_logprob was differentiated twice: its gradients are scaled in place and given away. "
                "Call it again, or use linear_token_logprobs."
            )
        # In place: the head's gradient is as large as the head, and a second copy would be the peak.
        gradients = [None if grad is None else grad.mul_(grad_sum.to(grad.dtype)) for grad in ctx.gradients]
        ctx.gradients = None
        return *gradients, None, None, None, None, None


class _GradientSums:
    """Gradients of hidden, head and bias, filled chunk by chunk; those that run over tokens sum in float32."""

    def __init__(self, hidden_NH: Tensor, head_VH: Tensor, bias_V: Tensor | None, *, wanted: tuple[bool, ...]) -> None:
        self.hidden_NH, self.head_VH, self.bias_V = hidden_NH, head_VH, bias_V
        self.grad_hidden_NH = torch.zeros_like(hidden_NH) if wanted[0] else None
        self.grad_head_VH = torch.zeros_like(head_VH, dtype=_wide_dtype(head_VH)) if wanted[1] else None
        self.grad_bias_V = (
            torch.zeros_like(bias_V, dtype=_wide_dtype(bias_V)) if bias_V is not None and wanted[2] else None
        )

    def add(self, chunk: slice, grad_logits_CV: Tensor) -> None:
        """Add one chunk's ∂/∂logits through z = hidden·headᵀ + bias."""
        if self.grad_bias_V is not None:
            self.grad_bias_V += grad_logits_CV.sum(dim=0)
        # The products run in the dtype that the forward's ran in; only their sums are wide.
        grad_CV = grad_logits_CV.to(self.hidden_NH.dtype)
        if self.grad_hidden_NH is not None:
            self.grad_hidden_NH[chunk] = grad_CV @ self.head_VH
        if self.grad_head_VH is not None and self.grad_head_VH.dtype == grad_CV.dtype:
            self.grad_head_VH.addmm_(grad_CV.T, self.hidden_NH[chunk])
        elif self.grad_head_VH is not None:
            self.grad_head_VH += grad_CV.T @ self.hidden_NH[chunk]

    def results(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Each gradient in its parameter's dtype; None where none was wanted."""
        head = None if self.grad_head_VH is None else self.grad_head_VH.to(self.head_VH.dtype)
        bias = None if self.grad_bias_V is None or self.bias_V is None else self.grad_bias_V.to(self.bias_V.dtype)
        return self.grad_hidden_NH, head, bias


def _chunk_logprobs(hidden_CH: Tensor, head_VH: Tensor, bias_V: Tensor | None, temperature: float) -> Tensor:
    logits_CV = _wide(hidden_CH @ head_VH.T)
    if bias_V is not None:
        logits_CV = logits_CV.add_(bias_V)
    if temperature != 1:
        logits_CV = logits_CV.div_(temperature)
    # One kernel: on CPU half the time of a logsumexp, a subtraction and their passes over memory.
    return logits_CV.log_softmax(dim=-1)


def _of_token(logprob_CV: Tensor, token_C: Tensor) -> Tensor:
    return logprob_CV.gather(-1, token_C.unsqueeze(-1)).squeeze(-1)


def _entropy(logprob_CV: Tensor) -> Tensor:
    return -(logprob_CV.exp() * logprob_CV).sum(dim=-1)


def _lowest(value_xV: Tensor) -> float:
    # p = 0 either way, but 0 · −inf = NaN. Half the smallest number leaves room to subtract.
    return torch.finfo(value_xV.dtype).min / 2


def _finite_(value_xV: Tensor) -> Tensor:
    return value_xV.clamp_(min=_lowest(value_xV))


def _chunks(token_N: Tensor, chunk_tokens: int) -> list[slice]:
    if chunk_tokens < 1 or token_N.dim() != 1:
        raise ValueError(
            f"chunk_tokens={chunk_tokens}, tokens of shape {tuple(token_N.shape)}: the linear log-probs take flat "
            "tokens [N] in chunks of at least one. Gather the scored positions first: hidden[mask], token[mask]."
        )
    return [slice(start, start + chunk_tokens) for start in range(0, token_N.shape[0], chunk_tokens)]


def _as_autocast(hidden_NH: Tensor, head_VH: Tensor) -> tuple[Tensor, Tensor]:
    # Backward runs outside autocast, so the dtype is settled here, where it can still be differentiated.
    device = hidden_NH.device.type
    if not torch.is_autocast_enabled(device):
        return hidden_NH, head_VH
    dtype = torch.get_autocast_dtype(device)
    return hidden_NH.to(dtype), head_VH.to(dtype)


def _wide_dtype(value: Tensor) -> torch.dtype:
    return torch.promote_types(value.dtype, torch.float32)


def _wide(value: Tensor) -> Tensor:
    return value.to(_wide_dtype(value))


def _checked(temperature: float) -> float:
    if not temperature > 0:
        raise ValueError(
            f"temperature={temperature} has no log-probs: they are those of softmax(logits / temperature). "
            "Greedy decoding (0) is scored at the temperature of training."
        )
    return temperature
