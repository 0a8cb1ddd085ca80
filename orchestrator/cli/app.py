"""The `outrider` command: its commands and their flags. What they do is imported when they run."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from orchestrator.cli import flags
from orchestrator.cli.answer_flags import with_answer_flags
from orchestrator.cli.certs_app import certs_app
from orchestrator.cli.completing import known_models
from orchestrator.cli.config_app import config_app
from orchestrator.cli.console import (
    FAILED,
    INTERRUPTED,
    MISUSED,
    fail,
    misuse_told,
    say,
    settings_told,
)
from orchestrator.cli.models_app import models_app
from orchestrator.cli.serve_app import serve_app
from outrider.version import __version__

if TYPE_CHECKING:
    from outrider.client.request import GenerateOptions

ADDRESS = "localhost:7070"
ABOUT_MODELS = ("kv_tokens", "dtype", "device", "n_gpu_layers", "kv_dtype")
ABOUT_DEPLOYMENTS = ("address", "tls", "max_tokens", "temperature", "measure", "timeout")
"""Flags of `outrider doctor` for one of the two things that it does."""
# Typer has no public name for the error that every mistake of parsing is (click's ClickException).
PARSING_ERROR = cast("type[Exception]", typer.BadParameter.__mro__[2])

app = typer.Typer(
    name="outrider",
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Lossless speculative decoding across machines: cheap drafts ride ahead, the target "
    "decides every token.",
)
app.add_typer(serve_app, name="serve", help="Run one service, or all of them on this machine.")
app.add_typer(models_app, name="models", help="List the models on this machine, or fetch one.")
app.add_typer(
    config_app, name="config", help="Show the settings of the services, or what a file may hold."
)
app.add_typer(certs_app, name="certs", help="Make certificates, by which services know each other.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit status; the entry point of `outrider`."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        status = app(arguments, prog_name="outrider", standalone_mode=False)
    except PARSING_ERROR as error:
        command = getattr(getattr(error, "ctx", None), "command_path", "outrider")
        message = error.format_message() if hasattr(error, "format_message") else str(error)
        say(f"{message} ({command} --help shows what there is)")
        return MISUSED
    except typer.Abort:
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return status if isinstance(status, int) else 0


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        typer.echo(f"outrider {__version__}")
        raise typer.Exit
    if context.invoked_subcommand != "serve":
        # gRPC's own lines about a broken connection; what they mean is told as an error.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("generate")
@with_answer_flags
def _generate(
    options: "GenerateOptions",
    prompt: Annotated[str | None, typer.Argument(help="Text; '-': standard input.")] = None,
    address: flags.Address = ADDRESS,
    tls: flags.Tls = "",
    raw: flags.Raw = False,
    json: flags.Json = False,
    logprobs: flags.Logprobs = None,
    answers: flags.Answers = 1,
    choice_index: flags.ChoiceIndex = 0,
) -> None:
    """Answer one prompt. The answer goes to standard output, everything else to standard error."""
    from orchestrator.cli.answers import generate_several
    from orchestrator.cli.generate import generate
    from orchestrator.cli.prompts import read_prompt

    if logprobs is not None and not json:
        fail("--logprobs are shown with --json only; add it", MISUSED)
    if answers > 1 and choice_index:
        fail("--choice-index is for one answer; leave it or -n out", MISUSED)
    if choice_index and options.get("seed") is None:
        fail("--choice-index repeats one of several answers to a seed; give --seed, too", MISUSED)
    options["logprobs"] = logprobs
    if choice_index:
        options["choice_index"] = choice_index
    text = read_prompt(prompt)
    if answers == 1:
        generate(text, address, tls=tls, raw=raw, show_json=json, options=options)
    else:
        generate_several(text, answers, address, tls=tls, raw=raw, show_json=json, options=options)


@app.command("chat")
@with_answer_flags
def _chat(
    options: "GenerateOptions",
    address: flags.Address = ADDRESS,
    tls: flags.Tls = "",
    raw: flags.Raw = False,
) -> None:
    """Talk to the model. /help lists the commands; Ctrl-C stops an answer, Ctrl-D leaves."""
    from orchestrator.cli.chat import chat

    chat(address, tls=tls, raw=raw, options=options)


@app.command("ps")
def _ps(
    address: flags.Address = ADDRESS,
    tls: flags.Tls = "",
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="For the reply.")] = 10.0,
    json: flags.Json = False,
) -> None:
    """Show the verifier and the drafts, and how they are."""
    from orchestrator.cli.ps import show_cluster

    show_cluster(address, timeout, tls=tls, show_json=json)


@app.command("bench")
def _bench(
    address: flags.Address = ADDRESS,
    tls: flags.Tls = "",
    prompts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="JSON lines with turns, prompt or text, or plain lines. Default: short samples.",
        ),
    ] = None,
    raw: flags.Raw = False,
    concurrency: Annotated[
        str, typer.Option(metavar="N,N…", help="Clients that ask at the same time.")
    ] = "1,4",
    num_speculative_tokens: Annotated[
        str | None,
        typer.Option(
            metavar="N,N…",
            help="Most drafted tokens that one target pass verifies, on all branches together. "
            "Default: the server's.",
        ),
    ] = None,
    temperature: Annotated[
        str | None, typer.Option(metavar="T,T…", help="0: greedy. Default: the server's.")
    ] = None,
    max_drafts: Annotated[
        str | None,
        typer.Option(
            metavar="N,N…", help="Drafts to use at most. Default: as many as the server gives."
        ),
    ] = None,
    baseline: Annotated[
        bool, typer.Option(help="Measure the target alone, too, in turns with the rest.")
    ] = True,
    repetitions: Annotated[int, typer.Option(min=1, max=1000, help="For the spread.")] = 3,
    requests: Annotated[
        int | None,
        typer.Option(
            min=1, max=100_000, help="Of one measurement. Default: 2 a client, at least 4."
        ),
    ] = None,
    max_tokens: flags.MaxTokens = 128,
    ignore_eos: flags.IgnoreEos = False,
    seed: Annotated[int, typer.Option(help="Of the first request; the others count on.")] = 0,
    mode: flags.Mode = None,
    width: flags.Width = None,
    timeout: flags.Timeout = None,
    form: Annotated[
        str | None, typer.Option("--format", help="md, csv or json. Default: md.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="As --format json.")] = False,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the report goes instead.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A plot: .png, .svg or .pdf.")
    ] = None,
) -> None:
    """Measure a running deployment, with drafts and without."""
    from orchestrator.cli.bench import bench

    if json and form not in (None, "json"):
        fail(f"--json and --format {form} are given; give one of them", MISUSED)
    bench(
        address,
        tls=tls,
        prompts=prompts,
        raw=raw,
        concurrency=concurrency,
        num_speculative_tokens=num_speculative_tokens,
        temperature=temperature,
        max_drafts=max_drafts,
        has_baseline=baseline,
        repetitions=repetitions,
        requests=requests,
        form=form or ("json" if json else "md"),
        output=output,
        plot=plot,
        options={
            "max_tokens": max_tokens,
            "ignore_eos": ignore_eos,
            "seed": seed,
            "mode": mode,
            "width": width,
            "timeout_s": timeout,
        },
    )


@app.command("doctor")
def _doctor(
    context: typer.Context,
    address: flags.Address = ADDRESS,
    tls: flags.Tls = "",
    max_tokens: Annotated[
        int, typer.Option(min=16, max=4096, help="Length of each sample answer.")
    ] = 48,
    temperature: Annotated[
        float | None,
        typer.Option(min=0.0, help="Of the samples. Default: 0, and 1 where that is quick."),
    ] = None,
    measure: Annotated[
        bool, typer.Option(help="Answer sample prompts; without it only facts are looked at.")
    ] = True,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="For each answer.")] = 600.0,
    model: Annotated[
        str | None,
        typer.Option(
            help="A target to serve here: does it fit? Asks no deployment.",
            autocompletion=known_models,
        ),
    ] = None,
    draft_model: Annotated[
        str | None,
        typer.Option(help="A draft to serve here: does it fit?", autocompletion=known_models),
    ] = None,
    kv_tokens: Annotated[
        int, typer.Option(min=64, help="With --model or --draft-model: of its KV cache.")
    ] = 16384,
    dtype: Annotated[str, typer.Option(help="As of outrider serve.")] = "auto",
    device: Annotated[str, typer.Option(help="As of outrider serve.")] = "auto",
    n_gpu_layers: Annotated[int, typer.Option(min=-1, help="As of outrider serve.")] = -1,
    kv_dtype: Annotated[str, typer.Option(help="As of outrider serve.")] = "auto",
    json: flags.Json = False,
) -> None:
    """Say what drafts will bring here, and what is wrong.

    Looks at a running deployment and measures it; with --model or --draft-model it looks at this
    machine instead, before anything is loaded. Status 0: healthy, 1: problems were found.
    """
    if model is None and draft_model is None:
        _refuse(
            context, ABOUT_MODELS, "is about --model and --draft-model; add one, or leave it out"
        )
        from orchestrator.cli.doctor import examine

        examine(
            address,
            max_tokens=max_tokens,
            temperature=temperature,
            is_measured=measure,
            timeout_s=timeout,
            tls=tls,
            show_json=json,
        )
        return
    _refuse(context, ABOUT_DEPLOYMENTS, "asks a deployment, --model and --draft-model ask none")
    from orchestrator.cli.doctor_models import Wanted, examine_models
    from outrider.models.options import ModelOptions

    with misuse_told():
        options = ModelOptions(
            dtype=dtype,
            device=device,
            kv_tokens=kv_tokens,
            n_gpu_layers=n_gpu_layers,
            kv_dtype=kv_dtype,
        )
        roles = (("target", model), ("draft", draft_model))
        wanted = [Wanted(role, spec, options) for role, spec in roles if spec is not None]
        examine_models(wanted, show_json=json)


def _refuse(context: typer.Context, names: Sequence[str], why: str) -> None:
    """Ends the command where one of these flags was given: here it would do nothing."""
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            fail(f"--{name.replace('_', '-')} {why}", MISUSED)


@app.command("demo")
def _demo(
    prompt: Annotated[str | None, typer.Argument(help="Default: one that suits the draft.")] = None,
    draft_model: flags.DraftModels = [],  # noqa: B006 - Typer copies it
    max_tokens: flags.MaxTokens = 128,
    temperature: Annotated[float, typer.Option(help="0: always the likeliest token.")] = 0.7,
    seed: Annotated[int, typer.Option(help="Repeats an answer.")] = 2,
    ray: flags.Ray = "embedded",
    threads: flags.Threads = 0,
    model: Annotated[str | None, typer.Option(hidden=True)] = None,
    json: flags.Json = False,
) -> None:
    """Start everything here, and compare drafts with no drafts.

    One prompt is answered with drafts and without. The models that come with Outrider are fetched
    on first use: a GGUF pair where llama.cpp is installed, else a model for PyTorch whose draft
    looks up the prompt. Nothing is left running.
    """
    from orchestrator.cli.demo import Demo, show
    from orchestrator.cli.prompts import read_prompt
    from orchestrator.cli.showcase import chosen, llamacpp_problem
    from orchestrator.cli.stack_flags import StackFlags, planned
    from orchestrator.cli.stack_plan import OWN_HOST
    from outrider.config_file import NO_FILE

    text = None if prompt is None else read_prompt(prompt)
    problem = llamacpp_problem() if model is None else None
    showcase = chosen(model, draft_model, text, problem)
    with settings_told():
        plan = planned(
            StackFlags(
                model=showcase.model,
                draft_models=showcase.drafts,
                host=OWN_HOST,
                port=0,
                http=False,
                ray=ray,
                threads=threads,
                grace_s=1.0,
                config=NO_FILE,
            )
        )
    options: GenerateOptions = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "seed": seed,
    }
    show(Demo(plan, showcase, options, show_json=json))
