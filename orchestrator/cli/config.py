"""`outrider config`: the settings that services would have here, where each value comes from, and
the schema of the file that may hold them.
"""

import json as json_text
from collections.abc import Mapping
from typing import Any

from orchestrator.cli.console import write
from orchestrator.cli.services import KINDS
from orchestrator.cli.tables import print_table
from outrider.config_file import ConfigFile, default_path, read_config
from outrider.setting import settings_of
from outrider.settings import ServerSettings
from outrider.settings_reading import Found, find_settings


def show_settings(service: str | None, config: str | None, *, json: bool, yaml: bool) -> None:
    """Prints the settings of one service, or of all; raises InvalidArgumentError for bad ones."""
    file = read_config(config)
    flags = () if config is None else ("--config", config)
    found = {
        name: find_settings(kind, flags, f"outrider serve {name}")
        for name, kind in KINDS.items()
        if service in (None, name)
    }
    if json:
        path = None if file.path is None else str(file.path)
        shown = {"file": path, **{name: _with_origins(one) for name, one in found.items()}}
        write(json_text.dumps(shown, ensure_ascii=False) + "\n")
    elif yaml:
        write(_as_file(found))
    else:
        write(f"{_told(file)}\n")
        for name, one in found.items():
            write(f"\n{name}\n")
            print_table(
                ("SETTING", "VALUE", "FROM"),
                [
                    (f"  {key}", _plain(value), one.origins[key].where or "default")
                    for key, value in values_of(one.settings).items()
                ],
            )


def show_schema() -> None:
    """Prints the JSON schema of the config file."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Outrider's config file",
        "type": "object",
        "additionalProperties": False,
        "properties": {name: kind.model_json_schema() for name, kind in KINDS.items()},
    }
    write(json_text.dumps(schema, indent=2, ensure_ascii=False) + "\n")


def values_of(settings: ServerSettings) -> dict[str, Any]:
    """Plain values by name, without secrets."""
    return settings.model_dump(mode="json")


def _with_origins(found: Found[ServerSettings]) -> dict[str, dict[str, object]]:
    return {
        name: {
            "value": value,
            "source": found.origins[name].kind,
            "where": found.origins[name].where or None,
        }
        for name, value in values_of(found.settings).items()
    }


def _as_file(found: Mapping[str, Found[ServerSettings]]) -> str:
    """A config file. Secrets are left out: what stands for them here would not be them."""
    import yaml

    sections = {
        name: {
            key: value
            for key, value in values_of(one.settings).items()
            if not (settings_of(type(one.settings))[key].is_secret and value)
        }
        for name, one in found.items()
    }
    return yaml.safe_dump(sections, sort_keys=False, allow_unicode=True)


def _told(file: ConfigFile) -> str:
    if file.path is not None:
        return f"config file: {file.path}"
    return f"config file: none (by default {default_path()}, if it is there)"


def _plain(value: object) -> str:
    """As it is written in the file."""
    if value is None:
        return "-"
    is_plain = isinstance(value, str) and value
    return str(value) if is_plain else json_text.dumps(value, ensure_ascii=False)
