"""The shape of the SDK: twins, names, types, and what importing it costs."""

import inspect
import json
import pickle
import subprocess
import sys

import pytest

import outrider
from outrider.client import AsyncClient, AsyncGeneration, Client, DraftStats, Generation, Stats
from outrider.client.request import GenerateOptions
from outrider.client.stats import stats_from_proto
from outrider.v1 import orchestrator_pb2

IMPORT_LIMIT_S = 3.0
"""Only a sanity limit for slow machines; the aim, 0.3 s, is what `import_cost` measures."""


def import_cost() -> dict[str, object]:
    """Seconds and modules that `import outrider; outrider.Client` takes in a fresh interpreter."""
    code = (
        "import json, sys, time; start = time.perf_counter(); import outrider; outrider.Client;"
        "seconds = time.perf_counter() - start;"
        "print(json.dumps({'seconds': seconds, 'modules': sorted(sys.modules)}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    cost: dict[str, object] = json.loads(done.stdout)
    return cost


def public_methods(kind: type) -> dict[str, list[inspect.Parameter]]:
    return {
        name: list(inspect.signature(member).parameters.values())
        for name, member in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") or name == "__init__"
    }


def test_the_client_imports_none_of_the_heavy_libraries(record_property):
    cost = import_cost()
    record_property("import_s", cost["seconds"])
    loaded = {name.partition(".")[0] for name in cost["modules"]}
    heavy = {"torch", "ray", "pydantic", "numpy", "transformers", "fastapi", "structlog"}
    assert not loaded & heavy
    assert cost["seconds"] < IMPORT_LIMIT_S


def test_importing_the_package_alone_loads_no_grpc():
    code = "import sys, outrider.types; sys.exit('grpc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_exported_name_exists_and_others_do_not():
    for name in outrider.__all__:
        assert getattr(outrider, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Clint'"):
        _ = outrider.Clint


@pytest.mark.parametrize("twins", [(Client, AsyncClient), (Generation, AsyncGeneration)])
def test_twins_have_the_same_methods_and_properties(twins):
    sync, aio = twins
    sync_methods, aio_methods = public_methods(sync), public_methods(aio)
    if sync is Generation:
        # Made by the clients only, out of what either kind of gRPC call is.
        sync_methods.pop("__init__"), aio_methods.pop("__init__")
    assert sync_methods == aio_methods
    properties = [
        {name for name, _ in inspect.getmembers(kind, lambda member: isinstance(member, property))}
        for kind in twins
    ]
    assert properties[0] == properties[1]


def test_chat_takes_exactly_the_options_of_generate():
    parameters = inspect.signature(Client.generate).parameters
    options = [
        name
        for name, parameter in parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    assert list(GenerateOptions.__annotations__) == options


@pytest.mark.parametrize(
    ("ours", "message"),
    [(Stats, orchestrator_pb2.GenerateStats), (DraftStats, orchestrator_pb2.DraftStats)],
)
def test_stats_have_every_field_of_the_protocol(ours, message):
    assert list(ours.__dataclass_fields__) == list(message.DESCRIPTOR.fields_by_name)


def test_stats_derive_their_figures_and_bear_zeros():
    stats = stats_from_proto(
        orchestrator_pb2.GenerateStats(
            emitted_tokens=10,
            target_passes=4,
            verified_tokens=12,
            accepted_tokens=6,
            total_us=500_000,
        )
    )
    assert (stats.tokens_per_pass, stats.acceptance_rate, stats.tokens_per_s) == (2.5, 0.5, 20.0)
    empty = stats_from_proto(orchestrator_pb2.GenerateStats())
    assert (empty.tokens_per_pass, empty.acceptance_rate, empty.tokens_per_s) == (0, 0, 0)


def test_what_an_answer_is_made_of_survives_pickling():
    stats = stats_from_proto(orchestrator_pb2.GenerateStats(emitted_tokens=1, wait_us=[4]))
    assert pickle.loads(pickle.dumps(stats)) == stats
