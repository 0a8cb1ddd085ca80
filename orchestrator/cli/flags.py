"""The flags that several commands have, each declared once."""

from typing import Annotated

import typer

from orchestrator.cli.completing import known_models


def _named(models: list[str]) -> list[str]:
    if not all(model.strip() for model in models):
        raise typer.BadParameter("a model is ''; give its name, or 'none' for no draft")
    return models


Address = Annotated[str, typer.Option(metavar="HOST:PORT", help="The orchestrator.")]
MaxTokens = Annotated[int, typer.Option(help="Length of the answer at most.")]
MinTokens = Annotated[
    int,
    typer.Option(
        help="Nothing ends the answer before so many tokens, unless its grammar is complete."
    ),
]
Temperature = Annotated[
    float | None, typer.Option(help="0: always the likeliest token. Default: 1.")
]
TopK = Annotated[int | None, typer.Option(help="Sample from the K likeliest tokens only.")]
TopP = Annotated[
    float | None, typer.Option(help="Sample from the likeliest tokens of this total probability.")
]
MinP = Annotated[
    float | None,
    typer.Option(help="Leave out tokens below this share of the likeliest one's probability."),
]
Seed = Annotated[
    int | None,
    typer.Option(
        help="Repeats an answer: exactly with the modes coupled and match; with rejection and "
        "block it also depends on the drafts. Default: a new one."
    ),
]
RepetitionPenalty = Annotated[
    float | None,
    typer.Option(help="Above 1: tokens of prompt and answer become less likely. Default: 1."),
]
FrequencyPenalty = Annotated[
    float | None,
    typer.Option(help="-2 to 2: taken off a token's logit for each time the answer has it."),
]
PresencePenalty = Annotated[
    float | None, typer.Option(help="-2 to 2: taken off a token's logit if the answer has it.")
]
BannedTokens = Annotated[
    list[int], typer.Option(metavar="ID", help="Never emit this token; repeatable.")
]
Regex = Annotated[str | None, typer.Option(help="The answer matches this regular expression.")]
Choices = Annotated[
    list[str], typer.Option(metavar="TEXT", help="The answer is one of these; repeat the flag.")
]
Stop = Annotated[list[str], typer.Option(metavar="TEXT", help="End before this text; repeatable.")]
AllowedTokens = Annotated[
    list[int], typer.Option(metavar="ID", help="Emit such tokens only; repeatable.")
]
StopTokens = Annotated[
    list[int], typer.Option(metavar="ID", help="End with this token; repeatable.")
]
IgnoreEos = Annotated[
    bool, typer.Option("--ignore-eos", help="Go on where the model would end the answer.")
]
IncludeStop = Annotated[
    bool, typer.Option("--include-stop", help="With --stop: end behind the text, not before it.")
]
Mode = Annotated[
    str | None,
    typer.Option(
        help="How drafts are accepted: coupled (auto is the same), rejection, block or match. All "
        "are lossless. Default: the server's."
    ),
]
ServedMode = Annotated[
    str | None,
    typer.Option(
        help="For requests that choose none: coupled (auto is the same), rejection, block or "
        "match.",
    ),
]
Logprobs = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Log-probabilities of each token and of the N likeliest; shown with --json only.",
    ),
]
Answers = Annotated[
    int,
    typer.Option(
        "--answers", "-n", min=1, max=1024, help="So many independent answers, 8 of them at once."
    ),
]
ChoiceIndex = Annotated[
    int, typer.Option(help="With --seed: repeat this one of several answers, from 0.")
]
MaxDrafts = Annotated[
    int | None,
    typer.Option(help="Drafts to use at most; 0: none. Default: as many as the server gives."),
]
SpeculativeTokens = Annotated[
    int | None,
    typer.Option(
        help="Most drafted tokens that one target pass verifies, on all branches together. "
        "Default: the server's."
    ),
]
Width = Annotated[
    int | None,
    typer.Option(help="Children that a draft proposes at each node. Default: the server's."),
]
Tls = Annotated[
    str,
    typer.Option(
        metavar="FOLDER",
        envvar="OUTRIDER_TLS",
        help="Certificate, key and CA, as outrider certs issue writes them. Default: plain text.",
        show_default=False,
    ),
]
ServedTls = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        help="The orchestrator's certificate, key and CA: users reach it by TLS. Default: plain "
        "text.",
    ),
]
Model = Annotated[str, typer.Option(help="Refuse another target model than this.")]
Timeout = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="For the whole answer. Default: 600.", show_default=False),
]
Raw = Annotated[
    bool, typer.Option("--raw", help="Send the text as it is, without the model's chat template.")
]
Json = Annotated[bool, typer.Option("--json", help="Print a JSON object instead of text.")]
DraftModels = Annotated[
    list[str],
    typer.Option(
        "--draft-model",
        callback=_named,
        autocompletion=known_models,
        help="A draft; repeat the flag for several. 'none': no draft.",
    ),
]
RAY = typer.Option(help="embedded: start Ray here; local: do without; or the address of a cluster.")
Ray = Annotated[str, RAY]
THREADS = typer.Option(min=0, help="CPU threads of all models together; 0: all cores.")
Threads = Annotated[int, THREADS]
Config = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="YAML file with settings; 'none': no file. Default: what OUTRIDER_CONFIG names, else "
        "config.yaml in the user's configuration folder, if it is there.",
    ),
]
