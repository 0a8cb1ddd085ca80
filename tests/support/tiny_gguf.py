"""A tiny random Llama as a GGUF file, with a byte-level vocabulary made on the spot."""

from pathlib import Path

import gguf
import numpy as np
from tokenizers.pre_tokenizers import ByteLevel

WIDTH, INNER, HEADS, KV_HEADS, BLOCKS, CONTEXT = 64, 96, 2, 1, 2, 128
SPECIAL = ("<s>", "</s>")
MERGES = (("t", "h"), ("th", "e"))
CHAT_TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"


def write_tiny_gguf(
    path: Path,
    *,
    architecture: str = "llama",
    seed: int = 7,
    chat_template: str = CHAT_TEMPLATE,
    window: int = 0,
) -> Path:
    """Writes it, and returns `path`. All tensors are F32; head and embedding are one.

    With a `window` it is a Gemma 3 whose layers look back no further than that.
    """
    architecture = "gemma3" if window else architecture
    random = np.random.default_rng(seed)
    pieces = [
        *SPECIAL,
        *sorted(ByteLevel.alphabet()),
        *(left + right for left, right in MERGES),
    ]
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(BLOCKS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    if window:
        writer.add_sliding_window(window)
        writer.add_key_length(WIDTH // HEADS)
        writer.add_value_length(WIDTH // HEADS)
    writer.add_vocab_size(len(pieces))
    writer.add_file_type(0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(pieces)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_token_types([control if piece in SPECIAL else normal for piece in pieces])
    writer.add_token_merges([" ".join(pair) for pair in MERGES])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(False)
    if chat_template:
        writer.add_chat_template(chat_template)

    def add(name: str, *shape: int) -> None:
        values = random.standard_normal(shape, dtype=np.float32) * np.float32(0.2)
        is_norm = len(shape) == 1
        writer.add_tensor(f"{name}.weight", 1 + values if is_norm else values)

    add("token_embd", len(pieces), WIDTH)
    add("output_norm", WIDTH)
    kv_width = WIDTH // HEADS * KV_HEADS
    for block in (f"blk.{number}" for number in range(BLOCKS)):
        add(f"{block}.attn_norm", WIDTH)
        add(f"{block}.attn_q", WIDTH, WIDTH)
        add(f"{block}.attn_k", kv_width, WIDTH)
        add(f"{block}.attn_v", kv_width, WIDTH)
        add(f"{block}.attn_output", WIDTH, WIDTH)
        add(f"{block}.ffn_norm", WIDTH)
        if window:
            add(f"{block}.post_attention_norm", WIDTH)
            add(f"{block}.post_ffw_norm", WIDTH)
            add(f"{block}.attn_q_norm", WIDTH // HEADS)
            add(f"{block}.attn_k_norm", WIDTH // HEADS)
        add(f"{block}.ffn_gate", INNER, WIDTH)
        add(f"{block}.ffn_up", INNER, WIDTH)
        add(f"{block}.ffn_down", WIDTH, INNER)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
