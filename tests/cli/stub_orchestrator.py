"""An orchestrator in this process that begins an answer and never ends it, or refuses."""

import threading
from concurrent import futures

import grpc

from outrider.errors import OutriderError
from outrider.types import PROTOCOL_VERSION
from outrider.v1 import common_pb2, orchestrator_pb2, orchestrator_pb2_grpc
from outrider.wire.errors import to_status

SEED = 11
TIMEOUT_S = 60.0


class StubOrchestrator(orchestrator_pb2_grpc.OrchestratorServiceServicer):
    """Sends two tokens and a notice, then waits until the caller gives up: `was_cancelled`."""

    def __init__(self) -> None:
        self.refusal: OutriderError | None = None
        self.requests: list[orchestrator_pb2.GenerateRequest] = []
        self.has_begun = threading.Event()
        self.both_have_begun = threading.Event()
        self.was_cancelled = threading.Event()
        self._server = grpc.server(futures.ThreadPoolExecutor(2))
        orchestrator_pb2_grpc.add_OrchestratorServiceServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self) -> "StubOrchestrator":
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None)

    def break_off(self) -> None:
        """Ends every connection at once."""
        self._server.stop(None)

    def GetModelInfo(self, request, context):  # noqa: N802 - gRPC names its methods
        info = common_pb2.ModelInfo(model_name="stub", protocol_version=PROTOCOL_VERSION)
        return orchestrator_pb2.OrchestratorServiceGetModelInfoResponse(model=info)

    def Generate(self, request, context):  # noqa: N802 - gRPC names its methods
        self.requests.append(request)
        if self.refusal is not None:
            context.abort_with_status(to_status(self.refusal))
        context.add_callback(self.was_cancelled.set)
        started = orchestrator_pb2.GenerateStarted(
            request_id="r1",
            seed=SEED,
            prompt_tokens=1,
            notices=["mind the gap"],
            mode="ACCEPTANCE_MODE_MATCH",
        )
        yield orchestrator_pb2.GenerateResponse(started=started)
        tokens = [orchestrator_pb2.EmittedToken(id=i, text=t) for i, t in ((1, "a"), (2, "b"))]
        if request.HasField("logprobs"):
            for token in tokens:
                token.logprob.id, token.logprob.logprob = token.id, -0.5
                token.logprob.piece = token.text.encode()
                token.top_logprobs.add().CopyFrom(token.logprob)
        yield orchestrator_pb2.GenerateResponse(
            tokens=orchestrator_pb2.GenerateTokens(tokens=tokens)
        )
        if self.has_begun.is_set():
            self.both_have_begun.set()
        self.has_begun.set()
        self.was_cancelled.wait(TIMEOUT_S)
