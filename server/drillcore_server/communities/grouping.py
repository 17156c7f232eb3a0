"""Communities as lists of their rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from drillcore_server.communities.leiden import NONE

Places = npt.NDArray[np.int64]


def groups(communities: npt.NDArray[np.int32], importances: npt.NDArray[np.float64], size_min: int) -> list[Places]:
    """The rows of each community, the most important first and of equals those before; none of too few rows."""
    within = np.flatnonzero(communities != NONE)
    order = within[np.lexsort((-importances[within], communities[within]))]
    cuts = np.flatnonzero(np.diff(communities[order])) + 1
    return [rows for rows in np.split(order, cuts) if len(rows) >= max(size_min, 1)]
