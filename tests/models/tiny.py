"""Tiny random checkpoints of several architectures, with tokenizers made on the spot."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PretrainedConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
)

from outrider.models.base import CausalModel

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'tool' %}"
    "{{ raise_exception('no tools here') }}{% endif %}"
    "<|{{ m.role }}|>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
TRAINING_TEXT = [
    "def main():\n    return 1\n",
    "the cat sat on the mat, the end",
    "  spaces   here",
]
CONTEXT = 128
WINDOW = 5

HF_BACKENDS = ("llama", "gemma2", "gemma3", "mistral", "qwen3", "gpt2")
BACKENDS = (*HF_BACKENDS, "llamacpp", "scripted")

Oracle = Callable[[Sequence[int]], Tensor]
MakeModel = Callable[..., CausalModel]


def byte_level_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<s>", "</s>", "<|user|>", "<|assistant|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TRAINING_TEXT, trainer)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", chat_template=CHAT_TEMPLATE
    )
    wrapped.add_tokens(["<plain>"])
    return wrapped


def metaspace_tokenizer() -> PreTrainedTokenizerFast:
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["\u2581", *"abcdefghijklmnopqrstuvwxyz", "th", "the", "\u2581the", "\u2581\u2581"]
    merges = [("t", "h"), ("th", "e"), ("\u2581", "the"), ("\u2581", "\u2581")]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={piece: index for index, piece in enumerate(pieces)},
            merges=merges,
            byte_fallback=True,
            unk_token="<unk>",
            fuse_unk=True,
        )
    )
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def _configs(vocab_size: int) -> dict[str, PretrainedConfig]:
    common = {
        "vocab_size": vocab_size,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": CONTEXT,
        "initializer_range": 0.4,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 1,
    }
    return {
        "llama": LlamaConfig(**common),
        "gemma2": Gemma2Config(  # soft-capped scores, so not sdpa
            **common,
            sliding_window=WINDOW,
            layer_types=["sliding_attention", "full_attention"],
            attn_logit_softcapping=2.0,
            query_pre_attn_scalar=8,
        ),
        "gemma3": Gemma3TextConfig(
            **{**common, "num_hidden_layers": 3},
            sliding_window=WINDOW,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        ),
        "mistral": MistralConfig(**common, sliding_window=WINDOW),
        "qwen3": Qwen3Config(**common),
        "gpt2": GPT2Config(
            vocab_size=vocab_size,
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=CONTEXT,
            initializer_range=0.4,
            bos_token_id=0,
            eos_token_id=1,
        ),
    }


def save_checkpoints(root: Path) -> dict[str, Path]:
    """A folder with weights and tokenizer for each architecture."""
    torch.manual_seed(7)
    tokenizer = byte_level_tokenizer()
    folders = {}
    for name, config in _configs(len(tokenizer) + 3).items():
        folders[name] = root / name
        AutoModelForCausalLM.from_config(config).save_pretrained(folders[name])
        tokenizer.save_pretrained(folders[name])
        generation = {"eos_token_id": [1, 2], "do_sample": False}
        (folders[name] / "generation_config.json").write_text(json.dumps(generation))
    return folders
