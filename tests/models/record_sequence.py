"""The architectures of speech, text and ratings, of transformers and of our own text in PyTorch, recorded.

``python -m tests.models.record_sequence`` (needs torch and transformers) writes recorded/sequence.json anew: names and
shapes of the published sizes' state dicts, and of the small sizes outputs, loss, gradients and what decoding gives in
float64. Both sides make the weights from their names.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hybridml import models

from .recording import batch, record, recorded

RECORDED = Path(__file__).parent / "recorded" / "sequence.json"
OWN_TEXT = ("deep_speech2", "tacotron2", "wavenet", "gnmt", "transformer_base", "ncf")
NAMES = (*OWN_TEXT, "bert_base", "gpt2")


def decoded(name: str, model: Any, tensor: Callable[[np.ndarray], Any]) -> list[Any]:
    """What a model in evaluation makes of the batch: translations, transcripts, frames, items, text."""
    inputs = [tensor(array) for array in batch(name)][: models.architecture(name).inputs]
    if name in ("gnmt", "transformer_base"):
        return [model.greedy(*inputs[:2], 6).tolist(), model.beam(*inputs[:2], 6, width=3).tolist()]
    if name == "deep_speech2":
        return [found.tolist() for found in model.transcribe(*inputs)]
    if name == "tacotron2":
        frames, lengths = model.infer(*inputs[:2], 8, 0.65)
        return [np.round(frames.numpy(), 9).reshape(-1)[::20].tolist(), lengths.tolist()]
    if name == "ncf":
        return [model.recommend(3, 5).tolist()]
    return [model.generate(inputs[0][:, :4], 6, 0.0).tolist()] if name == "gpt2" else []


def _peers(name: str) -> tuple[Any, Any]:
    """An architecture in PyTorch: of the published size on device "meta", and of the small size."""
    import torch
    import transformers

    from hybridml_examples.in_torch import in_torch

    row = models.architecture(name)
    tiny = row.tiny
    if name in OWN_TEXT:
        build = getattr(in_torch(row.module), name)
        with torch.device("meta"):
            published = build()
        return published, build(**tiny)
    if name == "gpt2":
        sizes = dict(zip(("vocab_size", "n_embd", "n_layer", "n_head", "n_positions"), tiny.values(), strict=True))
        make, config = transformers.GPT2LMHeadModel, transformers.GPT2Config
    else:
        keys = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
        sizes = dict(zip((*keys, "max_position_embeddings"), tiny.values(), strict=True))
        make, config = transformers.BertForPreTraining, transformers.BertConfig
    with torch.device("meta"):
        published = make(config())
    small = make(config(**sizes))
    if name == "gpt2":
        written = small.generate

        def generate(tokens: Any, length: int, temperature: float) -> Any:
            hook.remove()
            return written(tokens, max_new_tokens=length, do_sample=temperature > 0, eos_token_id=None, pad_token_id=0)

        hook = small.register_forward_hook(lambda _, __, output: output.logits)
        small.generate = generate
    else:
        # Theirs takes the mask before the segments.
        small.register_forward_pre_hook(lambda _, given: (given[0], given[2], given[1]))
        small.register_forward_hook(lambda _, __, o: (o.prediction_logits, o.seq_relationship_logits))
    return published, small


def _recorded(name: str) -> dict[str, Any]:
    import torch

    published, small = _peers(name)
    return {**recorded(name, published, small), "decoded": decoded(name, small, torch.from_numpy)}


if __name__ == "__main__":
    record(RECORDED, {name: _recorded(name) for name in NAMES})
