"""Loads a transformers checkpoint as the options say; refuses by name what cannot be honoured."""

import json
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING, AutoQuantizationConfig

from outrider.errors import CapacityError, InvalidArgumentError, NotFoundError
from outrider.models.hf_source import Source
from outrider.models.options import DTYPES, ModelOptions

_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in DTYPES}
_LAYER_TYPES = {"full_attention", "sliding_attention"}


def load_config(source: Source, options: ModelOptions) -> PretrainedConfig:
    """The checkpoint's configuration; raises NotFoundError or InvalidArgumentError."""
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(
            source.location, **_hub_arguments(source, options)
        )
    except OSError as error:
        raise NotFoundError(
            f"{source.name!r} has no readable config.json: {_first_line(error)}"
        ) from error
    except ValueError as error:
        if not options.trust_remote_code and "trust_remote_code" in str(error):
            raise InvalidArgumentError(
                f"{source.name!r} brings Python code; read it, and set trust_remote_code "
                "if you trust it"
            ) from error
        raise InvalidArgumentError(
            f"{source.name!r} cannot be loaded: {_first_line(error)}"
        ) from error
    return config


def load_tokenizer(source: Source, options: ModelOptions) -> PreTrainedTokenizerBase:
    """The checkpoint's tokenizer; raises NotFoundError or InvalidArgumentError."""
    try:
        return AutoTokenizer.from_pretrained(source.location, **_hub_arguments(source, options))
    except (OSError, ValueError, ImportError) as error:
        raise NotFoundError(
            f"{source.name!r} has no tokenizer that can be loaded ({_first_line(error)}); save the "
            "tokenizer "
            "beside the weights"
        ) from error


def load_weights(
    source: Source, config: PretrainedConfig, options: ModelOptions
) -> PreTrainedModel:
    """The model in evaluation mode, where the options want it.

    Raises NotFoundError without safetensors weights, InvalidArgumentError for options that cannot
    be honoured, CapacityError where the device has no room.
    """
    if options.device_map and options.device != "auto":
        raise InvalidArgumentError(
            f"device is {options.device!r} and device_map is {options.device_map!r}; give only one "
            "of them"
        )
    device = _device(options.device)
    arguments: dict[str, Any] = {
        **_hub_arguments(source, options),
        "config": config,
        "dtype": _dtype(options, device),
        "use_safetensors": True,
        "attn_implementation": _attention(config),
    }
    if options.quantization:
        arguments["quantization_config"] = _quantization(options.quantization)
    if options.device_map or options.quantization:
        _require_accelerate(options)
        arguments["device_map"] = _device_map(options.device_map) or {"": str(device)}
    if not sys.stderr.isatty():
        hide_progress: Callable[[], None] = transformers.utils.logging.disable_progress_bar
        hide_progress()
    try:
        model = AutoModelForCausalLM.from_pretrained(source.location, **arguments)
        if "device_map" not in arguments:
            torch.nn.Module.to(model, device)
    except torch.OutOfMemoryError as error:
        raise CapacityError(
            f"{source.name!r} does not fit on {device}; use a smaller model, quantization or "
            "device_map=auto"
        ) from error
    except OSError as error:
        raise NotFoundError(
            f"{source.name!r} has no safetensors weights that can be loaded: {_first_line(error)}"
        ) from error
    except (ValueError, ImportError, RuntimeError) as error:
        raise InvalidArgumentError(
            f"{source.name!r} cannot be loaded: {_first_line(error)}"
        ) from error
    loaded: PreTrainedModel = model.train(False)
    return loaded


def layer_windows(config: PretrainedConfig) -> dict[str, int]:
    """Sliding window of each type of layer, 0 for none; refuses layers without KV per token."""
    if config.is_encoder_decoder:
        raise InvalidArgumentError(
            f"{config.model_type} is an encoder-decoder; use a decoder-only model"
        )
    text = config.get_text_config(decoder=True)
    window = getattr(text, "sliding_window", None) or 0
    types = getattr(text, "layer_types", None)
    if types is None:
        types = ["sliding_attention" if window else "full_attention"]
        if getattr(text, "attention_chunk_size", None):
            types = ["chunked_attention"]
    unknown = sorted(set(types) - _LAYER_TYPES)
    if unknown:
        raise InvalidArgumentError(
            f"{config.model_type} has layers of the type {', '.join(unknown)}, whose state cannot "
            "be rolled back "
            "token by token; use a model with full or sliding attention"
        )
    return {name: window if name == "sliding_attention" else 0 for name in sorted(set(types))}


def context_tokens(config: PretrainedConfig, kv_tokens: int) -> int:
    """Tokens that fit in one sequence; a model without a limit of its own has that of the cache."""
    text = config.get_text_config(decoder=True)
    return int(getattr(text, "max_position_embeddings", None) or kv_tokens)


def eos_token_ids(model: PreTrainedModel) -> tuple[int, ...]:
    """End-of-sequence ids of the generation configuration and of the model's."""
    found: set[int] = set()
    text = model.config.get_text_config(decoder=True)
    for holder in (model.generation_config, model.config, text):
        value = getattr(holder, "eos_token_id", None)
        found.update([value] if isinstance(value, int) else value or [])
    return tuple(sorted(found))


def _hub_arguments(source: Source, options: ModelOptions) -> dict[str, Any]:
    return {
        "revision": source.revision or "main",
        "local_files_only": source.local_files_only,
        "trust_remote_code": options.trust_remote_code,
    }


def _device(name: str) -> torch.device:
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InvalidArgumentError(
            f"device is {name!r}, which this machine does not have ({_first_line(error)}); give "
            "auto, cpu, cuda, "
            "cuda:1 or mps"
        ) from error
    if device.type == "meta":
        raise InvalidArgumentError("device is 'meta'; give auto, cpu, cuda, cuda:1 or mps")
    return device


def _dtype(options: ModelOptions, device: torch.device) -> torch.dtype | str:
    if options.dtype == "auto":
        # half precision is slow on most CPUs, and a quantised checkpoint knows its own dtype
        is_cpu = device.type == "cpu" and not options.quantization
        return torch.float32 if is_cpu else "auto"
    if options.dtype == "float64" and device.type == "mps":
        raise InvalidArgumentError("dtype is 'float64', which mps does not have; use device=cpu")
    return _DTYPES[options.dtype]


def _attention(config: PretrainedConfig) -> str | None:
    """Eager for soft-capped scores; None takes sdpa where the architecture has it, else eager."""
    text = config.get_text_config(decoder=True)
    return "eager" if getattr(text, "attn_logit_softcapping", None) else None


def _device_map(text: str) -> str | dict[str, Any]:
    if not text.startswith("{"):
        return text
    return _json_object("device_map", text)


def _quantization(text: str) -> Any:
    if not text.lstrip().startswith("{"):
        path = Path(text).expanduser()
        if not path.is_file():
            raise NotFoundError(
                f"quantization is {text!r}, which is neither a JSON object nor a file that holds "
                "one"
            )
        text = path.read_text(encoding="utf-8")
    settings = _json_object("quantization", text)
    known = sorted({"bitsandbytes", *AUTO_QUANTIZATION_CONFIG_MAPPING} - {"gguf"})
    if settings.get("quant_method") not in known:
        raise InvalidArgumentError(
            f"quantization has the quant_method {settings.get('quant_method')!r}; known ones are "
            f"{', '.join(known)}"
        )
    try:
        return AutoQuantizationConfig.from_dict(settings)
    except (ValueError, TypeError, ImportError) as error:
        raise InvalidArgumentError(f"quantization cannot be used: {_first_line(error)}") from error


def _json_object(name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidArgumentError(f"{name} is no valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidArgumentError(f"{name} is {type(value).__name__}; give a JSON object")
    return value


def _require_accelerate(options: ModelOptions) -> None:
    if find_spec("accelerate") is None:
        wanted = "device_map" if options.device_map else "quantization"
        raise InvalidArgumentError(
            f"{wanted} needs the package accelerate; run `pip install accelerate`"
        )


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines)[:400] or type(error).__name__
