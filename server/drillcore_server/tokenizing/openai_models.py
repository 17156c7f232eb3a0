"""OpenAI's models: which encoding each has, and how many tokens it takes.

Windows are those that OpenAI publishes, of the smallest model where a family has several: a prompt that is shorter than
it could be is answered, one that is too long is not. A server's settings can say otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from drillcore_server.tokenizing.encodings import EncodingName

_CL100K, _O200K = EncodingName.CL100K_BASE, EncodingName.O200K_BASE


@dataclass(frozen=True, slots=True)
class Family:
    pattern: str
    """A name, or with a * at its end the beginning of names. The longest that fits is taken."""
    encoding: EncodingName
    context_window: int | None


FAMILIES: Final = (
    Family("gpt-5*", _O200K, 272_000),  # what a prompt may have of the 400,000; later ones take more
    Family("gpt-5-chat*", _O200K, 128_000),
    Family("gpt-5.1-chat*", _O200K, 128_000),
    Family("gpt-5.2-chat*", _O200K, 128_000),
    Family("gpt-5.3-chat*", _O200K, 128_000),
    Family("gpt-4.5*", _O200K, 128_000),
    Family("gpt-4.1*", _O200K, 1_047_576),
    Family("gpt-4o*", _O200K, 128_000),
    Family("gpt-4o-realtime*", _O200K, 32_000),
    Family("gpt-4o-mini-realtime*", _O200K, 16_000),
    Family("chatgpt-4o*", _O200K, 128_000),
    Family("o1*", _O200K, 200_000),
    Family("o1-mini*", _O200K, 128_000),
    Family("o1-preview*", _O200K, 128_000),
    Family("o3*", _O200K, 200_000),
    Family("o4-mini*", _O200K, 200_000),
    # Not gpt-4*: a gpt-4.2, say, would not have to have the encoding of gpt-4.
    Family("gpt-4", _CL100K, 8_192),
    Family("gpt-4-*", _CL100K, 8_192),
    Family("gpt-4-32k*", _CL100K, 32_768),
    Family("gpt-4-turbo*", _CL100K, 128_000),
    Family("gpt-4-0125-preview", _CL100K, 128_000),
    Family("gpt-4-1106-*", _CL100K, 128_000),
    Family("gpt-4-vision-preview", _CL100K, 128_000),
    Family("gpt-3.5-turbo*", _CL100K, 16_385),
    Family("gpt-3.5-turbo-0301", _CL100K, 4_096),
    Family("gpt-3.5-turbo-0613", _CL100K, 4_096),
    Family("gpt-3.5-turbo-instruct*", _CL100K, 4_096),
    Family("text-embedding-3-*", _CL100K, 8_191),
    *(Family(name.value, name, None) for name in EncodingName),
)

FINE_TUNED: Final = "ft:"
"""Before the name of a model that was trained further, as in ft:gpt-4o-2024-08-06:firm::1. It has the tokenizer and the
window of that model."""
