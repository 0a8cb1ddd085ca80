"""The verifier and the drafts as this orchestrator sees them: reachable, fitting, how far away.

Knows handshakes; knows no sessions.
"""

import asyncio
import math
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

from orchestrator.requests import ClusterView, ServiceView
from orchestrator.settings import address_of, name_of
from outrider.errors import (
    InvalidArgumentError,
    OutriderError,
    TokenizerMismatchError,
    UnavailableError,
)
from outrider.identity import Role
from outrider.pass_times import PassTimes
from outrider.telemetry.logs import get_logger
from outrider.types import Chunk, ModelInfo
from outrider.vocabulary import Vocabulary
from outrider.wire.channels import open_channel
from outrider.wire.draft_client import DraftClient
from outrider.wire.handshakes import tls_problem
from outrider.wire.tls import secured_by
from outrider.wire.uploads import UPLOAD_S
from outrider.wire.verify_client import VerifyClient

PROBE_TIMEOUT_S = 2.0
PROBE_EVERY_S = 1.0
RETELL_AFTER_S = 30.0
"""From a refusal that may pass to the next time that a draft is sent the vocabulary, at least."""


class Peer:
    """One service: what it runs, and why it is not usable if it is not.

    It is called with the identity in the folder `tls`, in plain text where that is ''.
    """

    client: VerifyClient | DraftClient

    def __init__(
        self, name: str, address: str, role: Role, tls: str, misfit: Callable[[ModelInfo], str]
    ) -> None:
        self.name = name
        self.address = address
        self._role = role
        self._tls = tls
        self._connect()
        self.info: ModelInfo | None = None
        self.round_trip_us = 0
        self._failure = "was not asked yet"
        self._announced = self._failure
        self._misfit = misfit

    @property
    def problem(self) -> str:
        """Why it is not usable; empty where it answered and fits the target."""
        return self._failure or (self._misfit(self.info) if self.info is not None else "")

    @property
    def is_usable(self) -> bool:
        """Whether it answered and fits the target."""
        return not self.problem

    def view(self) -> ServiceView:
        """How it is, for users."""
        return ServiceView(
            self.name, self.address, self.is_usable, self.problem, self.info, self.round_trip_us
        )

    @property
    def is_encrypted(self) -> bool:
        """Whether nobody on the way can read what is sent."""
        return self._secured is not None

    async def probe(self) -> None:
        """Asks for the model; what it answers, or that it does not, holds until the next probe."""
        try:
            if self._failure:
                # The first answer may have waited for the connection; the next one is the measure.
                await self.client.model_info(PROBE_TIMEOUT_S)
            started = time.perf_counter_ns()
            self.info = await self.client.model_info(PROBE_TIMEOUT_S)
        except UnavailableError as error:
            self._failure = await self.tls_problem() or error.message
            await self._renew()
        except OutriderError as error:
            self._failure = error.message
        else:
            round_trip_us = (time.perf_counter_ns() - started) // 1000
            self.round_trip_us = min(self.round_trip_us or round_trip_us, round_trip_us)
            self._failure = ""

    async def tls_problem(self) -> str:
        """Why it and this side do not agree on TLS; empty where something else is in the way."""
        return await asyncio.to_thread(tls_problem, self.address, self._secured)

    async def _renew(self) -> None:
        """Connects anew where the files of our identity were replaced: a channel keeps its own."""
        if self._secured is None or not self._secured.identity.is_outdated:
            return
        outdated = self.channel
        try:
            self._connect()
        except InvalidArgumentError as error:
            get_logger().warning("certificate_not_renewed", problem=error.message)
        else:
            await outdated.close()

    def _connect(self) -> None:
        """Opens the channel; raises InvalidArgumentError where the identity cannot be used."""
        self._secured = secured_by(self._tls, self._role)
        self.channel = open_channel(self.address, self._secured)

    def fail(self, problem: str) -> None:
        """It failed a session: not usable until the next probe says otherwise."""
        self._failure = problem
        self.announce()

    def announce(self) -> None:
        """Logs a change, once."""
        problem = self.problem
        if problem != self._announced:
            log = get_logger().warning if problem else get_logger().info
            log("peer", peer=self.name, address=self.address, problem=problem or None)
        self._announced = problem


class VerifyPeer(Peer):
    """The verifier; `passes` is what the last session to end had learned of them, for the next to
    begin with.
    """

    client: VerifyClient

    def __init__(self, address: str, tls: str = "") -> None:
        super().__init__("verify", address, Role.VERIFY, tls, lambda info: "")
        self.passes = PassTimes()
        self._vocabulary: Vocabulary | None = None
        self._fetching = asyncio.Lock()

    def _connect(self) -> None:
        super()._connect()
        self.client = VerifyClient(self.channel, self.address)

    def learn(self, target: ModelInfo, passes: PassTimes) -> None:
        """What a session of `target` had learned when it ended."""
        if target == self.info:
            self.passes = passes

    async def probe(self) -> None:
        """As every peer; what was learned of another model's passes is forgotten."""
        known = self.info
        await super().probe()
        if self.info != known:
            self.passes = PassTimes()

    async def ready(self) -> ModelInfo:
        """The target's facts; raises UnavailableError that says why there are none."""
        if not self.is_usable:
            await self.probe()
        if self.info is None or self.problem:
            raise UnavailableError(
                f"the verify service cannot be used: {self.problem}; start it (outrider serve "
                "verify) or give its address (--verify)",
                retry_after_s=PROBE_EVERY_S,
            )
        return self.info

    async def vocabulary(self) -> Vocabulary:
        """The bytes of every token, fetched once a tokenizer."""
        info = await self.ready()
        async with self._fetching:
            if self._vocabulary is None or self._vocabulary.hash != info.tokenizer_hash:
                self._vocabulary = await self.client.vocabulary()
            return self._vocabulary


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a draft said to the target's vocabulary, when, and in how many seconds it may say
    something else; infinity: never.
    """

    hashes: tuple[str, str]
    problem: str
    at_s: float
    retry_after_s: float

    def holds(self, hashes: tuple[str, str]) -> bool:
        """Whether telling the draft once more would be of no use now: a vocabulary is megabytes."""
        wait_s = max(self.retry_after_s, RETELL_AFTER_S)
        return self.hashes == hashes and time.monotonic() < self.at_s + wait_s


class DraftPeer(Peer):
    """A draft: of the target's tokenizer, of another one that it was told the target's vocabulary
    for, or one that works on any ids. `sessions` of this engine have it; `step_us` is what it
    told of itself, `acceptance` what became of its guesses, older news fading.
    """

    client: DraftClient

    def __init__(self, name: str, address: str, verify: VerifyPeer, tls: str = "") -> None:
        super().__init__(name, address, Role.DRAFT, tls, self._tokenizer_misfit)
        self.sessions = 0
        self.step_us = 0.0
        self.acceptance = 0.75
        self._full_until = 0.0
        self._verify = verify
        self._refusal: Refusal | None = None
        self._introduction: asyncio.Task[None] | None = None

    def _connect(self) -> None:
        super()._connect()
        self.client = DraftClient(self.channel, self.address)

    @property
    def shared_tokens(self) -> int:
        """Tokens that a draft of another tokenizer and the target both have, the only ones that it
        proposes; 0 for a draft of the target's tokenizer, of any, or not told the target's.
        """
        target = self._verify.info
        if target is None or self.info is None:
            return 0
        if self.info.tokenizer_hash in ("", target.tokenizer_hash):
            return 0
        return dict(self.info.known_vocabularies).get(target.tokenizer_hash, 0)

    @property
    def law(self) -> Hashable:
        """What tells its model from others: two drafts of one law propose the same."""
        return self.name if self.info is None else (self.info.model_name, self.info.tokenizer_hash)

    @property
    def is_lookup(self) -> bool:
        """Whether it looks its tokens up and runs no model."""
        return self.info is not None and self.info.backend == "ngram"

    @property
    def is_full(self) -> bool:
        """Whether it refused a session a short while ago for lack of room."""
        return time.monotonic() < self._full_until

    def fill(self, retry_after_s: float) -> None:
        """It has no room and said when it may have some; no session asks it before."""
        self._full_until = time.monotonic() + max(retry_after_s, PROBE_EVERY_S)

    def note(self, chunk: Chunk) -> None:
        """Learns how fast it is."""
        known = self.step_us
        self.step_us = chunk.step_us if not known else 0.95 * known + 0.05 * chunk.step_us

    def judge(self, is_right: bool) -> None:
        """Learns whether it had guessed a token that was committed, where it had made a guess."""
        self.acceptance = 0.99 * self.acceptance + (0.01 if is_right else 0.0)

    async def probe(self) -> None:
        """As every peer; one that was gone may be another process, which nobody refused."""
        await super().probe()
        if self._failure:
            self._refusal = None

    def introduce(self) -> "asyncio.Task[None] | None":
        """Begins to tell the draft the target's vocabulary, if it takes it and does not know it."""
        if self._introduction is not None and not self._introduction.done():
            return self._introduction
        target = self._verify.info
        if target is None or self.info is None or self._failure:
            return None
        hashes = (self.info.tokenizer_hash, target.tokenizer_hash)
        if self._refusal is not None and self._refusal.holds(hashes):
            return None
        if not wants_vocabulary(self.info, target):
            return None
        self._introduction = asyncio.create_task(self._tell(self.info, hashes))
        return self._introduction

    async def stop(self) -> None:
        """Ends what it is doing."""
        if self._introduction is not None:
            self._introduction.cancel()
        await self.channel.close()

    async def _tell(self, info: ModelInfo, hashes: tuple[str, str]) -> None:
        try:
            vocabulary = await self._verify.vocabulary()
            if vocabulary.hash != hashes[1]:
                raise InvalidArgumentError(
                    "the target's vocabulary is not the one that its tokenizer hash names; restart "
                    "the verify service"
                )
            shared = await self.client.set_vocabulary(vocabulary, UPLOAD_S)
        except OutriderError as error:
            is_final = isinstance(error, (TokenizerMismatchError, InvalidArgumentError))
            retry_after_s = math.inf if is_final else error.retry_after_s or 0.0
            self._refusal = Refusal(hashes, error.message, time.monotonic(), retry_after_s)
        else:
            self._refusal = None
            known = (*info.known_vocabularies, (hashes[1], shared))
            self.info = replace(info, known_vocabularies=known)
        self.announce()

    def _tokenizer_misfit(self, info: ModelInfo) -> str:
        target = self._verify.info
        problem = tokenizer_misfit(info, target)
        if not problem or target is None or self._refusal is None:
            return problem
        if self._refusal.hashes != (info.tokenizer_hash, target.tokenizer_hash):
            return problem
        return f"{info.model_name} cannot draft for this target: {self._refusal.problem}"


def wants_vocabulary(draft: ModelInfo, target: ModelInfo) -> bool:
    """Whether a draft can use the target's vocabulary and does not know it: to translate, or, where
    it works on any ids, to follow grammars.
    """
    return (
        draft.takes_vocabulary
        and draft.tokenizer_hash != target.tokenizer_hash
        and target.tokenizer_hash not in dict(draft.known_vocabularies)
    )


def tokenizer_misfit(draft: ModelInfo, target: ModelInfo | None) -> str:
    """Why a draft's tokens would mean something else at the target; empty where they would not."""
    if target is None or draft.tokenizer_hash in ("", target.tokenizer_hash):
        return ""
    if target.tokenizer_hash in dict(draft.known_vocabularies):
        return ""
    if wants_vocabulary(draft, target):
        return (
            f"{draft.model_name} has another tokenizer than the target {target.model_name} and is "
            "being told its vocabulary; from then on it is used"
        )
    return (
        f"{draft.model_name} has another tokenizer than the target {target.model_name}. "
        "Use a draft of the target's family, or the model ngram:"
    )


class Peers:
    """All services, probed again and again: drafts come, go and come back."""

    def __init__(
        self,
        verify: str,
        drafts: Sequence[str],
        tls_to: Callable[[str], str] = lambda address: "",
    ) -> None:
        """`tls_to` tells with which folder a service at an address is called; see `Peer`."""
        self.verify = VerifyPeer(verify, tls_to(verify))
        self.drafts = [
            DraftPeer(name_of(d), address_of(d), self.verify, tls_to(address_of(d))) for d in drafts
        ]
        self._prober: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Asks everyone once, then keeps asking."""
        await self.probe()
        self._prober = asyncio.create_task(self._keep_probing())

    async def probe(self) -> None:
        """Asks everyone at once; drafts that need the target's vocabulary are told it, which may
        go on for longer.
        """
        everyone: tuple[Peer, ...] = (self.verify, *self.drafts)
        await asyncio.gather(*(peer.probe() for peer in everyone))
        introductions = [task for draft in self.drafts if (task := draft.introduce())]
        if introductions:
            await asyncio.wait(introductions, timeout=PROBE_TIMEOUT_S)
        for peer in everyone:
            peer.announce()

    async def stop(self) -> None:
        """Closes the channels."""
        if self._prober is not None:
            self._prober.cancel()
        await self.verify.channel.close()
        for draft in self.drafts:
            await draft.stop()

    def view(self) -> ClusterView:
        """How everyone is, for users."""
        return ClusterView(self.verify.view(), tuple(draft.view() for draft in self.drafts))

    async def _keep_probing(self) -> None:
        while True:
            await asyncio.sleep(PROBE_EVERY_S)
            try:
                await self.probe()
            except Exception as error:
                get_logger().error("probe_failed", exc_info=error)
