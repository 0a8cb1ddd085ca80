"""The home lab: two machines of one core each, with wires of several lengths between them.

The verify service has the target's core for itself; the draft, the proxies that are the wires, the
orchestrators and the client share the other one. The peers, which have no second machine, run on
the target's core, and nobody else does anything while they do. Knows processes; measures nothing.
"""

import contextlib
import shutil
import socket
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from benchmarks.homelab_plan import (
    ALONE,
    LLAMACPP,
    LLAMACPP_ALONE,
    OURS,
    OUTRIDER,
    OVER_A_WIRE,
    SYNCHRONOUS,
    TRANSFORMERS,
)
from benchmarks.peers_client import LlamaCppPeer, Peer, TransformersPeer
from benchmarks.pinned import ONE_THREAD, LineProcess, started_on
from orchestrator.cli.child import Child, ChildSpec, end_all
from orchestrator.cli.interrupts import Interrupts
from orchestrator.cli.progress import Progress
from orchestrator.cli.stack_plan import is_weightless
from orchestrator.settings import OrchestratorSettings
from outrider import Client
from outrider.errors import UnavailableError
from outrider.settings import read_settings

START_TIMEOUT_S = 300.0
ANSWER_TIMEOUT_S = 600.0
GRACE_S = 5.0
POLL_S = 0.05
KV_TOKENS = 4096
SYNCHRONOUS_WAIT_MS = 500.0
"""Besides the round trip: several times what this draft takes for a chain. Chains that end with the
text are shorter than a pass waits for, and would otherwise cost an answer a long last wait."""


@dataclass(frozen=True, slots=True)
class LabPlan:
    """Which models run and how they draft.

    Args:
        hf_model, hf_draft_model: folders of the pair for transformers.
        synchronous_tokens: chain length of the classic draft-then-verify round.
        llamacpp_tokens, transformers_tokens: chain lengths of the peers.
    """

    model: str
    draft_model: str
    hf_model: str
    hf_draft_model: str
    modes: tuple[str, ...]
    rtts_ms: tuple[float, ...]
    target_core: int
    other_core: int
    synchronous_tokens: int
    llamacpp_tokens: int
    transformers_tokens: int

    @property
    def longest(self) -> dict[str, int]:
        """The longest chain that a pass of each mode verifies."""
        return {
            ALONE: 0,
            SYNCHRONOUS: self.synchronous_tokens,
            OUTRIDER: _default_chain(),
            LLAMACPP_ALONE: 0,
            LLAMACPP: self.llamacpp_tokens,
            TRANSFORMERS: self.transformers_tokens,
        }


def _default_chain() -> int:
    return read_settings(OrchestratorSettings, (), "orchestrator").num_speculative_tokens


def orchestrator_flags(plan: LabPlan, mode: str, rtt_ms: float) -> tuple[str, ...]:
    """What makes an orchestrator draft synchronously; nothing is said where it does as it likes."""
    if mode != SYNCHRONOUS:
        return ()
    tokens = str(plan.synchronous_tokens)
    return (
        *("--no-run-ahead", "--no-adaptive", "--num-speculative-tokens", tokens),
        *("--wait-nodes", tokens, "--max-wait-ms", f"{rtt_ms + SYNCHRONOUS_WAIT_MS:g}"),
    )


class Lab:
    """Entering starts everything that the plan needs; leaving ends it, whatever happened."""

    def __init__(self, plan: LabPlan, interrupts: Interrupts) -> None:
        self.plan = plan
        self.folder = Path(tempfile.mkdtemp(prefix="outrider-homelab-"))
        self.clients: dict[tuple[str, float], Client] = {}
        self.peers: dict[str, Peer] = {}
        self._interrupts = interrupts
        self._services: list[Child] = []
        self._others: list[LineProcess] = []
        self._has_failed = False

    def __enter__(self) -> "Lab":
        try:
            with Progress() as progress:
                self._start(progress)
        except BaseException:
            self._has_failed = True
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._has_failed = isinstance(error, Exception)
        self.stop()

    def client(self, mode: str, rtt_ms: float) -> Client:
        """Whom to ask. The target alone is asked through the shortest wire's orchestrator."""
        if mode in OVER_A_WIRE:
            return self.clients[mode, rtt_ms]
        return next(iter(self.clients.values()))

    def check_alive(self) -> None:
        """Raises UnavailableError that says which process has ended."""
        for child in self._services:
            if not child.is_alive:
                raise UnavailableError(f"{child.spec.title} ended: {child.epitaph()}")

    def stop(self) -> None:
        """Ends every process, at once where a signal arrives meanwhile. Logs are kept where
        something went wrong."""
        self._interrupts.defer()
        end_all(self._services, GRACE_S + 5.0, self._interrupts)
        for other in self._others:
            other.end()
        for client in self.clients.values():
            client.close()
        if not self._has_failed:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, progress: Progress) -> None:
        plan = self.plan
        verify_port, draft_port = _free_ports(2)
        needs_draft = any(mode in OVER_A_WIRE for mode in plan.modes)
        verify = self._service(
            "verify", "verify_service", plan.target_core, _model_flags(plan.model), verify_port
        )
        waiting = [verify]
        if needs_draft:
            flags = _model_flags(plan.draft_model)
            waiting.append(
                self._service("draft", "draft_service", plan.other_core, flags, draft_port)
            )
        peers = [self._peer(mode) for mode in plan.modes if mode not in OURS]
        self._wait_ready(waiting, progress)

        wires = {rtt_ms: f"127.0.0.1:{draft_port}" for rtt_ms in plan.rtts_ms}
        if needs_draft:
            proxies = {rtt_ms: self._proxy(rtt_ms, draft_port) for rtt_ms in plan.rtts_ms}
            wires = {rtt_ms: proxy.line(START_TIMEOUT_S) for rtt_ms, proxy in proxies.items()}
        orchestrators: dict[tuple[str, float], Child] = {}
        for rtt_ms in plan.rtts_ms:
            for mode in (m for m in plan.modes if m in OVER_A_WIRE):
                orchestrators[mode, rtt_ms] = self._orchestrator(mode, rtt_ms, verify_port, wires)
        if not orchestrators:
            orchestrators[OUTRIDER, 0.0] = self._orchestrator(OUTRIDER, 0.0, verify_port, {})
        self._wait_ready(list(orchestrators.values()), progress)
        for key, child in orchestrators.items():
            self.clients[key] = Client(child.address or "", timeout_s=ANSWER_TIMEOUT_S)
        for client in self.clients.values():
            _wait_introduced(client)
        for mode, process in zip([m for m in plan.modes if m not in OURS], peers, strict=True):
            progress.waits_for(f"waiting for {mode}, {progress.seconds:.0f} s")
            peer = TransformersPeer(process) if mode == TRANSFORMERS else LlamaCppPeer(process)
            peer.wait_ready(START_TIMEOUT_S)
            self.peers[mode] = peer
        progress.says(f"all processes are up after {progress.seconds:.0f} s")

    def _service(self, name: str, module: str, core: int, flags: Sequence[str], port: int) -> Child:
        spec = ChildSpec(
            name,
            name,
            module,
            ("--port", str(port), "--grace-s", f"{GRACE_S:g}", *flags),
            ONE_THREAD,
        )
        with started_on(core):
            child = Child(spec, self.folder, self.folder)
        self._services.append(child)
        return child

    def _orchestrator(
        self, mode: str, rtt_ms: float, verify_port: int, wires: dict[float, str]
    ) -> Child:
        draft = f"draft={wires[rtt_ms]}" if wires else "none"
        return self._service(
            f"{mode} at {rtt_ms:g} ms",
            "orchestrator",
            self.plan.other_core,
            (
                *("--ray", "local", "--no-http"),
                *("--verify", f"127.0.0.1:{verify_port}", "--draft", draft),
                *orchestrator_flags(self.plan, mode, rtt_ms),
            ),
            0,
        )

    def _proxy(self, rtt_ms: float, draft_port: int) -> LineProcess:
        return self._line_process(
            "tests.support.delay_proxy",
            (
                *("--to", f"127.0.0.1:{draft_port}", "--one-way-ms", f"{rtt_ms / 2:g}"),
                "--exit-with-stdin",
            ),
            self.plan.other_core,
        )

    def _peer(self, mode: str) -> LineProcess:
        plan = self.plan
        if mode == TRANSFORMERS:
            module = "benchmarks.peers_transformers"
            pair = (plan.hf_model, plan.hf_draft_model)
            extra: tuple[str, ...] = ()
            tokens = plan.transformers_tokens
        else:
            module = "benchmarks.peers_llamacpp"
            pair = (plan.model, plan.draft_model)
            extra = ("--context-tokens", str(KV_TOKENS))
            tokens = plan.longest[mode]
        flags = (
            *("--model", pair[0], "--draft-model", pair[1]),
            *("--num-speculative-tokens", str(tokens), *extra),
        )
        return self._line_process(module, flags, plan.target_core)

    def _line_process(self, module: str, arguments: Sequence[str], core: int) -> LineProcess:
        log = self.folder / f"{module}-{len(self._others)}.log"
        process = LineProcess(module, arguments, core, log)
        self._others.append(process)
        return process

    def _wait_ready(self, waiting: Sequence[Child], progress: Progress) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while missing := [child for child in waiting if child.address is None]:
            progress.waits_for(
                f"waiting for {', '.join(c.spec.title for c in missing)}, {progress.seconds:.0f} s"
            )
            self.check_alive()
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"{missing[0].spec.title} did not serve within {START_TIMEOUT_S:.0f} s; "
                    f"its log: {missing[0].log}"
                )
            time.sleep(POLL_S)


def _model_flags(model: str) -> tuple[str, ...]:
    flags = ("--model", model, "--kv-tokens", str(KV_TOKENS))
    return flags if is_weightless(model) else (*flags, "--threads", "1")


def _wait_introduced(client: Client) -> None:
    """Returns once the verifier and every draft are usable."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        cluster = client.get_cluster()
        unusable = [s for s in (cluster.verify, *cluster.drafts) if not s.usable]
        if not unusable:
            return
        if time.monotonic() > deadline or any(s.model is not None for s in unusable):
            raise UnavailableError(f"{unusable[0].name} is not used: {unusable[0].problem}")
        time.sleep(POLL_S)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
