"""Use language models as minds, through pydantic-ai (the extra `models`)."""

from __future__ import annotations

from hivemind.minds.language.config import ModelConfig, model_config
from hivemind.minds.language.mind import LanguageMind, import_client

__all__ = ["LanguageMind", "ModelConfig", "import_client", "model_config"]
