"""The embedders of a server: its own, and those of models that its corpora were embedded with before."""

from __future__ import annotations

from dataclasses import dataclass

from drillcore_proto.reasons import Reason
from drillcore_server.domain.embeddings import Model
from drillcore_server.domain.errors import NotReady
from drillcore_server.ingest.embedding.ports import Embedder


def model_of(embedder: Embedder) -> Model:
    return Model(embedder.model, embedder.dimensions)


@dataclass(frozen=True, slots=True)
class Embedders:
    own: Embedder
    """Embeds what comes into a corpus without vectors, and what a migration makes anew."""
    former: tuple[Embedder, ...] = ()

    def find(self, model: Model) -> Embedder | None:
        return next((one for one in (self.own, *self.former) if model_of(one) == model), None)

    def of(self, model: Model) -> Embedder:
        """The embedder of a corpus's model. Raises `NotReady` if it is not here."""
        found = self.find(model)
        if found is None:
            message = (
                f"the corpus was embedded with {model}, and this server has {model_of(self.own)}; search it by vectors "
                "of its own model, name that in [[ingest.former]], or change the corpus with MigrateEmbeddings"
            )
            raise NotReady(Reason.MODEL_MISMATCH, message)
        return found
