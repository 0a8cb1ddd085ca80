"""The settings class of each service, in the order in which people are told of them."""

from draft_service.settings import DraftSettings
from orchestrator.settings import OrchestratorSettings
from outrider.settings import ServerSettings
from verify_service.settings import VerifySettings

KINDS: dict[str, type[ServerSettings]] = {
    kind.section: kind for kind in (DraftSettings, VerifySettings, OrchestratorSettings)
}
