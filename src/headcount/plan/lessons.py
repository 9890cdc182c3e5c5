"""What would a good teacher say about a row, a role, an algorithm?"""

from __future__ import annotations

from collections.abc import Mapping

from headcount.vocabulary import Algorithm, Role

__all__ = ["ALGORITHM_LESSONS", "ITEM_LESSONS", "NO_KV_IN_SCORE", "REMOVED_BY", "ROLE_PURPOSE"]

ITEM_LESSONS: Mapping[str, tuple[str, str]] = {
    "weights": (
        "The network's parameters as they are kept between uses.",
        "ZeRO-3 and FSDP divide them over data-parallel ranks, tensor and pipeline parallelism over theirs.",
    ),
    "adapters": ("LoRA's A and B beside the frozen base.", "A smaller rank or fewer target modules."),
    "gradients": (
        "One number per trained parameter, from its layer's backward until the optimizer's step.",
        "ZeRO-2 and up divide them; optimizer_in_backward keeps one layer's; LoRA trains fewer parameters.",
    ),
    "optimizer moments": (
        "AdamW's running mean and variance of every gradient. They exist from the first step on, so plan at step two.",
        "Any ZeRO stage or FSDP; 8-bit states; offload to the host; LoRA.",
    ),
    "master weights": (
        "An fp32 copy of 16-bit weights, so that small updates are not rounded away.",
        "Any ZeRO stage or FSDP; a policy without a master (bf16-direct-12, bf16-pure-8).",
    ),
    "optimizer step temporary": (
        "What one optimizer step allocates and frees. It competes with the backward's peak; it never adds to it.",
        'A fused optimizer (optimizer = "adamw-fused") allocates nothing.',
    ),
    "checkpoints": (
        "With full gradient checkpointing only each block's input is kept; the rest is computed again in backward.",
        "Fewer tokens in a micro-batch, context parallelism, offload_checkpoints.",
    ),
    "kept blocks": (
        "Without checkpointing every block keeps what its backward reads, all the way under the logits.",
        'gradient_checkpointing = "full" (costs one more forward), fewer tokens in a micro-batch, tensor parallelism.',
    ),
    "live block": (
        "The one block that is recomputed and run backward: what it keeps, and the gradients inside it.",
        "Fewer tokens in a micro-batch, tensor parallelism, fused MLP and norm kernels.",
    ),
    "gradients inside the block": (
        "Temporaries of one block's backward on top of what was kept.",
        "Fewer tokens in a micro-batch, tensor parallelism.",
    ),
    "logits": (
        "One score per vocabulary entry and position, in several copies: 16-bit logits, an fp32 copy, its log-softmax, "
        "their gradients. Large vocabularies make this the largest row of many runs.",
        'loss_implementation = "chunked" or "fused-linear"; completion positions only; a smaller micro-batch.',
    ),
    "final norm and head input": ("The last norm's copies and the hidden states that enter the head.", "Fewer tokens."),
    "scalar head and last norm": (
        "A critic or reward model has one number per token instead of a vocabulary: no logits, only the last norm.",
        "Fewer tokens in a micro-batch.",
    ),
    "head gradient": (
        "The head's weight gradient, vocabulary × hidden, whole on every GPU until it is reduced.",
        "Tensor parallelism; LoRA does not train the head.",
    ),
    "tied head's gradient": (
        "With a tied head two gradients of the same matrix meet at the end of backward, and their sum is a third.",
        "A model with separate embedding and head.",
    ),
    "gathered weights": (
        "FSDP keeps shards but computes with whole blocks: the block at work, the next one prefetched, the "
        "root group (embedding, final norm, head).",
        "No number of GPUs shrinks it. root_split = true wraps embedding and head apart; tensor ranks divide it.",
    ),
    "kv cache": (
        "Keys and values of every token that a generated sequence has seen, so that a step computes only the new one.",
        "Only GENERATE has it: scoring reads known tokens in one pass and caches nothing.",
    ),
    "engine workspace": (
        "The engine's activation peak, graphs and non-torch memory.",
        "eager = true drops the graphs.",
    ),
    "asleep engine's residue": (
        "A sleeping engine gives back weights and cache but keeps its context, NCCL buffers and graphs.",
        'engine_placement = "separate", or the built-in generator.',
    ),
    "CUDA context": ("Kernels and driver state of every process on the card.", "Nothing."),
    "NCCL": ("Communication channels and buffers.", "Nothing but one GPU."),
}

ROLE_PURPOSE: Mapping[Role, str] = {
    Role.POLICY: "the model being trained; it writes the answers (online) or is compared on given ones (DPO)",
    Role.CRITIC: "predicts the return from every token, so that an answer is judged against what was expected there",
    Role.REFERENCE: "the policy as it started, frozen: the KL term and DPO's ratio measure how far it has moved",
    Role.REWARD: "scores finished answers; trained beforehand on preference pairs, frozen here",
    Role.GENERATOR: "the rollout engine's copy of the policy: bytes of its own unless it shares the policy's weights",
}

REMOVED_BY: Mapping[Role, str] = {
    Role.POLICY: "nothing; LoRA leaves its base frozen (2 bytes a parameter instead of 12 to 18)",
    Role.CRITIC: 'GRPO drops it; critic.trunk = "policy" makes it an adapter and a scalar head; a smaller model',
    Role.REFERENCE: 'kl_coef = 0 (PPO) or beta = 0 (GRPO); LoRA (adapter off); placement = "offload"; "cached" (DPO)',
    Role.REWARD: "a checker or any function as reward; a smaller model; placement = offload",
    Role.GENERATOR: 'the built-in generator shares the policy\'s weights; engine_placement = "separate" moves it away',
}

NO_KV_IN_SCORE = (
    "Reference, reward, critic and old log-probs run in SCORE over tokens that are known: one forward pass "
    "sees them all at once and keeps nothing for a next token. Only the generator decodes token by token, so only "
    "GENERATE has a KV cache."
)

ALGORITHM_LESSONS: Mapping[Algorithm, tuple[tuple[Role, ...], tuple[Role, ...], str]] = {
    Algorithm.PPO: (
        (Role.POLICY, Role.CRITIC),
        (Role.REFERENCE, Role.REWARD),
        "Four networks: two train, two are frozen. The engine's copy of the policy is a fifth set of weights.",
    ),
    Algorithm.GRPO: (
        (Role.POLICY,),
        (Role.REFERENCE,),
        "The group's mean reward replaces the critic, a checker the reward model; beta = 0 drops the reference.",
    ),
    Algorithm.DPO: (
        (Role.POLICY,),
        (Role.REFERENCE,),
        "Two networks and no generation: preferences are in the data. Cached log-probs leave the policy alone.",
    ),
    Algorithm.REWARD_MODEL: (
        (Role.REWARD,),
        (),
        "One network with a scalar head; a pair is two sequences; no logits.",
    ),
    Algorithm.SFT: ((Role.POLICY,), (), "The policy alone."),
}
